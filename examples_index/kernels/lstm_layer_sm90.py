"""All steps of an LSTM layer in one launch, the weights of the states in registers of a cluster of eight blocks.

`given` is what the input contributes to the gates of every step: one product of matrices beforehand. The steps depend
on each other, so a launch for each would read the weights again and wait for the launch before. Here a cluster has some
rows of the batch, and each of its blocks an eighth of the units. LANES threads share a unit: they keep the weights of
its four gates in registers, multiply them by the state before, which lies in the shared memory of every block, and add
up by shuffles. The new state of a unit goes to all eight blocks by `st.async`, whose bytes an mbarrier of the block
counts. A second one tells that all blocks have read the place where the next states go. What the next step is given is
loaded while blocks wait. Up to 256 units: of more a block cannot hold its part.

Arch: sm_90a
Operation: rnn
Features: cluster, dsmem, mbarrier, recurrence, warp_shuffle, smem, multiple_outputs, tvm_ffi
Start here when each step of a loop multiplies the state before by the same matrix.
"""

import functools
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass import BFloat16, Float16, Float32, Int32, Int64, range_constexpr
from cutlass.memory import SmemAllocator

TYPES = {torch.float32: Float32, torch.float16: Float16, torch.bfloat16: BFloat16}
GATES = 4  # of a unit: input, forget, new, output
CLUSTER = 8  # blocks that share the units of a layer: the most that every GPU with clusters allows
LANES = 8  # threads that share the sums of a unit
ROWS = 2  # of the batch, of a cluster
COPIES = LANES // ROWS  # threads that have the state of a unit in a row
MOST_WEIGHTS = 128  # of a thread: with 256 units it has 254 registers, with 320 some are spilled


class Plan(NamedTuple):
    """What is known when compiling: units of the layer and of a block, and the numbers of a state of a thread."""

    units: int
    own: int
    numbers: int


@cute.jit
def add_up(sums: cute.Tensor, lane):
    """Adds up the sums of a unit's threads: each has those of all gates in one row at last, the row lane // COPIES."""
    for level in range_constexpr(ROWS.bit_length() - 1):
        step, half = LANES >> (level + 1), ROWS >> (level + 1)
        upper = (lane & step) != 0
        for b in range_constexpr(half):
            for g in range_constexpr(GATES):
                low, high = sums[g, b], sums[g, b + half]
                passed_on, kept = (low, high) if upper else (high, low)
                sums[g, b] = kept + cute.arch.shuffle_sync_bfly(passed_on, offset=step)
    for level in range_constexpr(COPIES.bit_length() - 1):
        for g in range_constexpr(GATES):
            sums[g, 0] = sums[g, 0] + cute.arch.shuffle_sync_bfly(sums[g, 0], offset=COPIES >> (level + 1))


@cute.jit
def sigmoid(x: Float32):
    return Float32(1.0) / (Float32(1.0) + cute.math.exp(-x))


@cute.jit
def weight(m_weights: cute.Tensor, row, k, plan: cutlass.Constexpr):
    """A number of a row of weights; 0 behind the last one."""
    value = Float32(0.0)
    if k < plan.units:
        value = m_weights[row, k].to(Float32)
    return value


@cute.kernel
def lstm_kernel(
    m_given: cute.Tensor,
    m_weights: cute.Tensor,
    m_bias: cute.Tensor,
    m_hidden: cute.Tensor,
    m_cell: cute.Tensor,
    m_states: cute.Tensor,
    m_last: cute.Tensor,
    plan: cutlass.Constexpr,
):
    thread = cute.arch.thread_idx()[0]
    lane = thread % LANES
    first = cute.arch.block_idx()[0] // CLUSTER * ROWS
    unit = cute.arch.block_idx_in_cluster() * plan.own + thread // LANES
    steps, rows = m_given.shape[0], m_given.shape[1]
    slot = lane // COPIES
    row = first + slot
    is_unit = unit < plan.units
    is_stored = is_unit & (row < rows) & (lane % COPIES == 0)
    # Threads without a unit or a row repeat the last one and store nothing.
    read = unit if is_unit else plan.units - 1
    read_row = row if row < rows else rows - 1

    width = plan.numbers * LANES  # places of a state in shared memory; behind its units lie zeros
    smem = SmemAllocator()
    held = smem.allocate_tensor(Float32, cute.make_layout((width, ROWS, 2)), byte_alignment=16)
    full = smem.allocate_tensor(Int64, cute.make_layout(2), byte_alignment=8)  # all states of a step are there
    free = smem.allocate_tensor(Int64, cute.make_layout(2), byte_alignment=8)  # all blocks have read them
    for at in cutlass.range(thread, width * ROWS, plan.own * LANES):
        k, b = at % width, at // width
        value = Float32(0.0)
        if (k < plan.units) & (first + b < rows):
            value = m_hidden[first + b, k].to(Float32)
        held[k, b, 0] = value
        held[k, b, 1] = Float32(0.0)
    bias = cute.make_rmem_tensor((GATES,), Float32)
    given = cute.make_rmem_tensor((GATES,), Float32)
    weights = cute.make_rmem_tensor((4, plan.numbers // 4, GATES), Float32)
    for g in range_constexpr(GATES):
        bias[g] = m_bias[g * plan.units + read].to(Float32)
        given[g] = m_given[0, read_row, g * plan.units + read].to(Float32)
        for j in range_constexpr(plan.numbers // 4):
            for i in range_constexpr(4):
                weights[i, j, g] = weight(m_weights, g * plan.units + read, 4 * (lane + LANES * j) + i, plan)
    cell = m_cell[read_row, read].to(Float32)
    if thread == 0:
        for b in range_constexpr(2):
            cute.arch.mbarrier_init(full.iterator + b, 1)
            cute.arch.mbarrier_init(free.iterator + b, plan.own * LANES // 32 * CLUSTER)
    cute.arch.mbarrier_init_fence()
    cute.arch.fence_view_async_shared()
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # every block has started, and has its first states

    sums = cute.make_rmem_tensor((GATES, ROWS), Float32)
    part = cute.make_rmem_tensor((4, ROWS), Float32)
    for step in cutlass.range(steps, unroll=1):
        now, then = step % 2, (step + 1) % 2
        if thread == 0:
            cute.arch.mbarrier_arrive_and_expect_tx(full.iterator + then, 4 * plan.units * ROWS)
        sums.fill(0.0)
        for j in range_constexpr(plan.numbers // 4):
            for b in range_constexpr(ROWS):
                cute.autovec_copy(cute.local_tile(held[None, b, now], (4,), (lane + LANES * j,)), part[None, b])
            for i in range_constexpr(4):
                for b in range_constexpr(ROWS):
                    for g in range_constexpr(GATES):  # neighbouring products add to other sums: none waits
                        sums[g, b] = sums[g, b] + weights[i, j, g] * part[i, b]
        cute.arch.fence_view_async_shared()
        cute.arch.sync_warp()
        if (thread % 32 < CLUSTER) & (step + 1 < steps):  # none waits for the last step's, and blocks end
            cute.arch.mbarrier_arrive(free.iterator + now, thread % 32)
        add_up(sums, lane)
        i = sigmoid(given[0] + (sums[0, 0] + bias[0]))
        f = sigmoid(given[1] + (sums[1, 0] + bias[1]))
        new = cute.math.tanh(given[2] + (sums[2, 0] + bias[2]))
        o = sigmoid(given[3] + (sums[3, 0] + bias[3]))
        cell = f * cell + i * new
        state = (o * cute.math.tanh(cell)).to(m_states.element_type)  # rounded as the next step of PyTorch has it
        if step > 0:
            cute.arch.mbarrier_wait(free.iterator + then, (step - 1) // 2 % 2)
        if is_unit:
            target = held.iterator + (unit + width * (slot + ROWS * then))
            for turn in range_constexpr(-(-CLUSTER // COPIES)):
                peer = lane % COPIES + turn * COPIES
                if peer < CLUSTER:
                    cute.arch.store_async_dsmem(target, state.to(Float32).bitcast(Int32), full.iterator + then, peer)
        ahead = step + 1 if step + 1 < steps else step
        for g in range_constexpr(GATES):
            given[g] = m_given[ahead, read_row, g * plan.units + read].to(Float32)
        if is_stored:
            m_states[step, row, unit] = state
        cute.arch.mbarrier_wait(full.iterator + then, step // 2 % 2)
    if is_stored:
        m_last[row, unit] = cell.to(m_last.element_type)


@cute.jit
def launch_lstm(
    m_given: cute.Tensor,
    m_weights: cute.Tensor,
    m_bias: cute.Tensor,
    m_hidden: cute.Tensor,
    m_cell: cute.Tensor,
    m_states: cute.Tensor,
    m_last: cute.Tensor,
    plan: cutlass.Constexpr,
    stream,
):
    lstm_kernel(m_given, m_weights, m_bias, m_hidden, m_cell, m_states, m_last, plan).launch(
        grid=[cute.ceil_div(m_given.shape[1], ROWS) * CLUSTER, 1, 1],
        block=[plan.own * LANES, 1, 1],
        cluster=[CLUSTER, 1, 1],
        stream=stream,
    )


@functools.cache
def compile_lstm(dtype: torch.dtype, units: int):
    """Compile for a type and a number of units: steps, rows and strides are free."""
    plan = Plan(units, -(-units // (CLUSTER * 4)) * 4, -(-units // (4 * LANES)) * 4)
    fakes = [
        cute.runtime.make_fake_tensor(
            TYPES[dtype],
            tuple(cute.sym_int() for _ in range(rank)),
            tuple(cute.sym_int64() for _ in range(rank)),
            assumed_align=dtype.itemsize,
        )
        for rank in (3, 2, 1, 2, 2, 3, 2)
    ]
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(launch_lstm, *fakes, plan, stream, options="--enable-tvm-ffi")


def kernel_fn(given, weights, bias, hidden, cell):
    units = weights.shape[1]
    if GATES * -(-units // (4 * LANES)) * 4 > MOST_WEIGHTS:
        raise ValueError(f"this kernel takes layers of up to 256 units, not {units}")
    if given.shape[2] != GATES * units or weights.shape[0] != GATES * units or bias.shape != (GATES * units,):
        raise ValueError(f"this kernel takes four gates for each of {units} units")
    if hidden.shape != cell.shape or hidden.shape != (given.shape[1], units):
        raise ValueError(f"hidden and cell must be {(given.shape[1], units)}")
    if given.dtype not in TYPES or any(t.dtype != given.dtype for t in (weights, bias, hidden, cell)):
        raise ValueError("this kernel takes tensors of one type: float32, float16 or bfloat16")
    states = torch.empty((*given.shape[:2], units), dtype=given.dtype, device=given.device)
    last = torch.empty((given.shape[1], units), dtype=given.dtype, device=given.device)
    if given.shape[0] == 0:
        raise ValueError("this kernel takes at least one step")
    if last.numel():
        compile_lstm(given.dtype, units)(given, weights, bias, hidden, cell, states, last)
    return states, last


def reference_fn(given, weights, bias, hidden, cell):
    """given [steps, rows, 4 units], weights [4 units, units], bias [4 units], states [rows, units]: all states."""
    states = []
    for step in given:
        i, f, new, o = (step + hidden @ weights.t() + bias).chunk(4, -1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(new)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        states.append(hidden)
    return torch.stack(states), cell


def get_inputs(steps=6, rows=3, units=40, dtype=torch.float32):
    shapes = (steps, rows, 4 * units), (4 * units, units), (4 * units,), (rows, units), (rows, units)
    given, weights, *others = (torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes)
    return [given, weights / units**0.5, *others]


def get_input_sets():
    yield get_inputs()
    yield get_inputs(steps=3, rows=1, units=70)
    yield get_inputs(steps=2, rows=5, units=8)
    yield get_inputs(steps=4, rows=2, units=33, dtype=torch.bfloat16)
