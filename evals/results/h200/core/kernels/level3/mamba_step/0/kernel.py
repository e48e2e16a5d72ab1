"""mamba_step.py as a CuTe DSL kernel.

Written by cutesmith 0.1.0 for sm_90a: pattern rows, configuration vector=4, elements_per_thread=8, min_threads=128,
max_threads=1024, max_cluster=1, resident_elements=64, reload_elements=32, shared_bytes=0, hints="none",
stores="none", threads_per_sm=0.
Standalone: needs torch and nvidia-cutlass-dsl only; kernel_fn computes what reference_fn below does.
"""

import functools
import math
from typing import NamedTuple

import torch

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Uint8, const_expr, range_constexpr

# ---- kernel: sum over the last dimension

ROWS_RANK = 2  # leading dimensions that are rows; the other dimensions are the columns that a row reduces


class Plan(NamedTuple):
    """How one row is spread over a block: `threads` a row, each with `blocks` x `chunks` vectors of `vector` elements."""

    columns: int
    vector: int
    threads: int
    rows: int  # rows a block
    chunks: int  # vectors a thread holds in registers at once
    blocks: int  # 1: the row stays in registers; more: later stages fetch it again
    cluster: int  # thread blocks that share a row
    shared: bool  # a row too long for the registers is kept in shared memory, not read again

    @property
    def vectors(self) -> int:
        return self.columns // self.vector

    @property
    def resident(self) -> bool:
        return self.blocks == 1

    @property
    def even(self) -> bool:
        return self.vectors == self.threads * self.cluster * self.chunks * self.blocks

    @property
    def warps(self) -> int:
        return max(1, self.threads // 32)

    @property
    def parts(self) -> int:
        """Partial results of a row: one a warp of every block that shares it; a warp combines them, so at most 32."""
        return self.warps * self.cluster


ELEMENTS_PER_THREAD = 8
MIN_THREADS = 128  # a block: short rows share one
MAX_THREADS = 1024  # a block; longer rows are split over a cluster of blocks
MAX_CLUSTER = 1
RESIDENT_ELEMENTS = 64  # a thread, in registers
RELOAD_ELEMENTS = 32  # loads in flight a thread where a row is longer
SHARED_BYTES = 0  # longer rows up to this size stay in shared memory, the others are read again from L2
KEPT_BYTES = 0  # a column, of the tensors that more than one stage reads


def plan_rows(columns: int, vector: int) -> Plan:
    """The launch plan for rows of `columns` elements read `vector` at a time."""
    vectors = columns // vector
    threads = max(1, -(-columns // ELEMENTS_PER_THREAD))
    threads = 1 << (threads - 1).bit_length() if threads < 32 else -(-threads // 32) * 32
    cluster = 1
    while threads > MAX_THREADS and cluster < MAX_CLUSTER and MAX_THREADS // 32 * cluster < 32:
        threads, cluster = -(-threads // 64) * 32, cluster * 2
    threads = min(threads, MAX_THREADS)
    chunks, blocks = max(1, -(-vectors // (threads * cluster))), 1
    if chunks * vector > RESIDENT_ELEMENTS:
        in_flight = max(1, RELOAD_ELEMENTS // vector)
        chunks, blocks = in_flight, -(-chunks // in_flight)
    rows = max(1, MIN_THREADS // threads) if cluster == 1 else 1
    shared = blocks > 1 and cluster == 1 and 0 < columns * KEPT_BYTES <= SHARED_BYTES
    return Plan(columns, vector, threads, 1 if blocks > 1 else rows, chunks, blocks, cluster, shared)

def combine_add(a, b):
    return a + b
@cute.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    one = type(x)(1.0)
    return one / (one + cute.math.exp(-x))

def across_lanes(state, combine, lanes):
    """Butterfly over `lanes` neighbouring lanes of a warp; every lane gets the result."""
    offset = 1
    while offset < lanes:
        state = combine(*state, *(cute.arch.shuffle_sync_bfly(part, offset=offset) for part in state))
        state = state if isinstance(state, tuple) else (state,)
        offset *= 2
    return state


PTX_SUFFIX = {Float32: "f32", Float64: "f64", Int32: "s32", Int64: "s64"}


def store_to_peer(pointer, value, peer):
    """Store to the same place of another block's shared memory in the cluster."""
    there = cute.arch.map_dsmem_ptr(pointer, peer)
    cute.arch.inline_ptx(f"st.shared::cluster.{PTX_SUFFIX[type(value)]} [{{$r0}}], {{$r1}};", read_only_args=[there, value])

def combine_lanes_1(sum_1, lanes, even):
    """Combine sum of the row over `lanes` neighbouring lanes of a warp; `even`: each speaks for as many elements."""
    sum_1, = across_lanes((sum_1,), combine_add, lanes)
    return sum_1


@cute.jit
def reduce_1(sum_1, s_sum_1: cute.Tensor, slot: Int32, lane: Int32, plan: cutlass.Constexpr):
    """Combine sum of the row over the threads of a row; every thread gets the result."""
    sum_1 = combine_lanes_1(sum_1, const_expr(min(32, plan.threads)), plan.even)
    if const_expr(plan.cluster > 1):
        cute.arch.cluster_wait()  # every block of the cluster has started: its shared memory may be written
        peer = lane % 32
        if peer < plan.cluster:
            at = cute.arch.block_idx_in_cluster() * plan.warps + lane // 32
            store_to_peer(s_sum_1.iterator + at, sum_1, peer)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    elif const_expr(plan.warps > 1):
        if lane % 32 == 0:
            s_sum_1[lane // 32, slot] = sum_1
        cute.arch.barrier()
    if const_expr(plan.parts > 1):
        lanes = const_expr(1 << (plan.parts - 1).bit_length())
        part = lane % lanes
        inside = part < plan.parts
        part = part if inside else Int32(0)
        sum_1 = s_sum_1[part, slot] if inside else Float32(0.0)
        sum_1 = combine_lanes_1(sum_1, lanes, const_expr(plan.even and lanes == plan.parts))
    return sum_1


EVICT_FIRST, EVICT_LAST = Int64(0x12F0000000000000), Int64(0x14F0000000000000)  # L2 policies as `createpolicy` encodes them


def read(source, target, again: bool = False):
    """Copy one vector from global memory to registers."""
    cute.autovec_copy(source, target)


def write(source, target):
    """Copy one vector from registers to global memory."""
    cute.autovec_copy(source, target)


@cute.kernel
def rows_kernel(m_state: cute.Tensor, m_x: cute.Tensor, m_step: cute.Tensor, m_decay: cute.Tensor, m_into_1: cute.Tensor, m_out_of_1: cute.Tensor, m_skip_1: cute.Tensor, m_gate: cute.Tensor, m_out_0: cute.Tensor, m_out_1: cute.Tensor, rows: Int32, plan: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    lane, slot = thread % plan.threads, thread // plan.threads
    row = block // plan.cluster * plan.rows + slot
    place = lane  # the thread's place among all that share the row
    if const_expr(plan.cluster > 1):
        place = cute.arch.block_idx_in_cluster() * plan.threads + lane
        cute.arch.cluster_arrive_relaxed()
    read_row = (row if row < rows else rows - 1).to(Int64)  # threads past the last row repeat it and store nothing
    x_row = m_x[read_row].to(Float32)
    step_row = m_step[read_row].to(Float32)
    skip_1_row = m_skip_1[read_row].to(Float32)
    gate_row = m_gate[read_row].to(Float32)
    smem = cutlass.memory.SmemAllocator()
    partials = cute.make_layout((plan.parts, plan.rows))
    s_sum_1 = smem.allocate_tensor(Float32, partials, byte_alignment=16)
    g_state = cute.zipped_divide(m_state[read_row, None], (plan.vector,))
    r_state = cute.make_rmem_tensor((plan.vector, plan.chunks), Float32)
    g_decay = cute.zipped_divide(m_decay[read_row, None], (plan.vector,))
    r_decay = cute.make_rmem_tensor((plan.vector, plan.chunks), Float32)
    g_into_1 = cute.zipped_divide(m_into_1[read_row, None], (plan.vector,))
    r_into_1 = cute.make_rmem_tensor((plan.vector, plan.chunks), Float32)
    g_out_of_1 = cute.zipped_divide(m_out_of_1[read_row, None], (plan.vector,))
    r_out_of_1 = cute.make_rmem_tensor((plan.vector, plan.chunks), Float32)
    g_out_1 = cute.zipped_divide(m_out_1[read_row, None], (plan.vector,))
    f_out_1 = cute.make_rmem_tensor((plan.vector,), Float32)
    r_out_1 = cute.make_rmem_tensor((plan.vector,), Float32)

    if const_expr(plan.resident):
        for c in range_constexpr(plan.chunks):
            at = (c) * (plan.threads * plan.cluster) + place
            if const_expr(plan.even):
                read(g_state[None, at], r_state[None, c])
                read(g_decay[None, at], r_decay[None, c])
                read(g_into_1[None, at], r_into_1[None, c])
                read(g_out_of_1[None, at], r_out_of_1[None, c])
            else:
                if at < plan.vectors:
                    read(g_state[None, at], r_state[None, c])
                    read(g_decay[None, at], r_decay[None, c])
                    read(g_into_1[None, at], r_into_1[None, c])
                    read(g_out_of_1[None, at], r_out_of_1[None, c])
    # Stage 1: sum of the row
    row_gt_4 = step_row > Float32(20.0)
    row_maximum_5 = cute.arch.fmax(step_row, Float32(0.0), nan=True)
    row_abs_6 = cute.math.absf(step_row)
    row_neg_7 = -row_abs_6
    row_exp_8 = cute.math.exp(row_neg_7)
    row_log1p_9 = cute.math.log1p(row_exp_8)
    row_add_10 = row_maximum_5 + row_log1p_9
    row_where_11 = step_row if row_gt_4 else row_add_10
    sum_1 = Float32(0.0)
    for b in cutlass.range(plan.blocks, unroll=1, unroll_full=plan.resident):
        if const_expr(not plan.resident):
            for c in range_constexpr(plan.chunks):
                again_1 = (b * plan.chunks + c) * (plan.threads * plan.cluster) + place
                if const_expr(plan.even):
                    read(g_state[None, again_1], r_state[None, c])
                    read(g_decay[None, again_1], r_decay[None, c])
                    read(g_into_1[None, again_1], r_into_1[None, c])
                    read(g_out_of_1[None, again_1], r_out_of_1[None, c])
                else:
                    if again_1 < plan.vectors:
                        read(g_state[None, again_1], r_state[None, c])
                        read(g_decay[None, again_1], r_decay[None, c])
                        read(g_into_1[None, again_1], r_into_1[None, c])
                        read(g_out_of_1[None, again_1], r_out_of_1[None, c])
        for c in range_constexpr(plan.chunks):
            index_1 = (b * plan.chunks + c) * (plan.threads * plan.cluster) + place
            s1_state = r_state[None, c].load()
            s1_decay = r_decay[None, c].load()
            s1_into_1 = r_into_1[None, c].load()
            s1_out_of_1 = r_out_of_1[None, c].load()
            for v in range_constexpr(plan.vector):
                s1_state_v = s1_state[v]
                s1_decay_v = s1_decay[v]
                s1_mul_3 = row_where_11 * s1_decay_v
                s1_exp_4 = cute.math.exp(s1_mul_3)
                s1_mul_5 = s1_state_v * s1_exp_4
                s1_into_1_v = s1_into_1[v]
                s1_mul_7 = row_where_11 * s1_into_1_v
                s1_mul_9 = s1_mul_7 * x_row
                s1_add_10 = s1_mul_5 + s1_mul_9
                s1_out_of_1_v = s1_out_of_1[v]
                s1_mul_12 = s1_add_10 * s1_out_of_1_v
                item_2 = s1_mul_12
                if const_expr(not plan.even):
                    item_2 = item_2 if index_1 < plan.vectors else Float32(0.0)
                sum_1 = combine_add(sum_1, item_2)
                f_out_1[v] = s1_add_10
            r_out_1.store(f_out_1.load())
            if (row < rows) & (index_1 < plan.vectors):
                write(r_out_1, g_out_1[None, index_1])
    sum_1 = reduce_1(sum_1, s_sum_1, slot, lane, plan)
    row_mul_13 = skip_1_row * x_row
    row_add_14 = sum_1 + row_mul_13
    row_sigmoid_15 = sigmoid(gate_row)
    row_mul_16 = gate_row * row_sigmoid_15
    row_mul_17 = row_add_14 * row_mul_16
    if (place == 0) & (row < rows):
        m_out_0[row] = row_mul_17


class Layout(NamedTuple):
    """A tensor as rows x columns with strides known when compiling; `None` for a role: it is dense."""

    shape: tuple
    stride: tuple


def collapse(shape, stride):
    """The same elements in row-major order with as few dimensions as possible, innermost first (CuTe's order)."""
    merged = []
    for size, step in reversed(list(zip(shape, stride))):
        if size < 2:
            continue
        if merged and merged[-1][0] * merged[-1][1] == step:
            merged[-1] = (merged[-1][0] * size, merged[-1][1])
        else:
            merged.append((size, step))
    merged = merged or [(1, 1)]
    return tuple(size for size, _ in merged), tuple(step for _, step in merged)


@cute.jit
def as_matrix(tensor: cute.Tensor, layout: cutlass.Constexpr, role: cutlass.Constexpr, rows: Int32, columns: cutlass.Constexpr):
    """The tensor as (rows, columns), (rows,) or (columns,), by its role."""
    if const_expr(layout is not None):
        shape, stride = layout.shape, layout.stride
    elif const_expr(role == "element"):
        shape, stride = (rows, max(columns, 1)), (columns, 1)
    elif const_expr(role == "column"):
        shape, stride = (max(columns, 1),), (1,)
    else:
        shape, stride = (rows,), (1,)
    return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=stride))


@cute.jit
def launch_rows(state: cute.Tensor, x: cute.Tensor, step: cute.Tensor, decay: cute.Tensor, into_1: cute.Tensor, out_of_1: cute.Tensor, skip_1: cute.Tensor, gate: cute.Tensor, out_0: cute.Tensor, out_1: cute.Tensor, plan: cutlass.Constexpr, layouts: cutlass.Constexpr, stream):
    rows = Int32(math.prod(out_1.shape[:ROWS_RANK]))  # an output: its leading dimensions are the rows
    rows_kernel(
        as_matrix(state, layouts[0], ROLES[0], rows, plan.columns),
        as_matrix(x, layouts[1], ROLES[1], rows, plan.columns),
        as_matrix(step, layouts[2], ROLES[2], rows, plan.columns),
        as_matrix(decay, layouts[3], ROLES[3], rows, plan.columns),
        as_matrix(into_1, layouts[4], ROLES[4], rows, plan.columns),
        as_matrix(out_of_1, layouts[5], ROLES[5], rows, plan.columns),
        as_matrix(skip_1, layouts[6], ROLES[6], rows, plan.columns),
        as_matrix(gate, layouts[7], ROLES[7], rows, plan.columns),
        as_matrix(out_0, layouts[8], ROLES[8], rows, plan.columns),
        as_matrix(out_1, layouts[9], ROLES[9], rows, plan.columns),
        rows,
        plan,
    ).launch(
        grid=[cute.ceil_div(rows, plan.rows) * plan.cluster, 1, 1],
        block=[plan.threads * plan.rows, 1, 1],
        cluster=[plan.cluster, 1, 1] if const_expr(plan.cluster > 1) else None,
        stream=stream,
    )


TYPES = {
    torch.float16: Float16, torch.bfloat16: BFloat16, torch.float32: Float32, torch.float64: Float64,
    torch.int8: Int8, torch.int16: Int16, torch.int32: Int32, torch.int64: Int64, torch.uint8: Uint8,
}


@functools.cache
def compile_rows(columns: int, vector: int, tensors: tuple):
    """Compile for rows of `columns` elements; `tensors` holds (dtype, shape, stride, alignment, layout) each.

    A dense tensor has no stride and no layout, and -1 for every size that is free at run time.
    """
    fakes = []
    for dtype, shape, stride, alignment, _ in tensors:
        if stride is None:
            sizes = tuple(cute.sym_int() if size < 1 else size for size in shape)  # -1: free; 0: an empty row
            order = tuple(reversed(range(len(shape))))
            fake = cute.runtime.make_fake_compact_tensor(TYPES[dtype], sizes, stride_order=order, assumed_align=alignment)
        else:
            sizes = tuple(size or cute.sym_int() for size in shape)
            fake = cute.runtime.make_fake_tensor(TYPES[dtype], sizes, stride, assumed_align=alignment)
        fakes.append(fake)
    layouts = tuple(layout for *_, layout in tensors)
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    plan = plan_rows(columns, vector)
    scalars = []
    compiled = cute.compile(launch_rows, *fakes, *scalars, plan, layouts, stream, options="--enable-tvm-ffi")
    return compiled.__tvm_ffi_object__() or compiled  # TVM-FFI's own function: the DSL's wrapper costs a third of a microsecond


ROLES = ('element', 'row', 'row', 'element', 'element', 'element', 'kept row', 'row', 'row', 'element')


def specialise(*tensors):
    """The compiled kernel for tensors of these shapes, strides, types and alignments; nothing to do when there is no row."""
    shape = tuple(tensors[0].shape)
    leading, trailing = shape[:ROWS_RANK], shape[ROWS_RANK:]
    rows, columns = math.prod(leading), math.prod(trailing)
    vector = 4 if columns > 0 else 1
    if rows == 0:
        return lambda *_: None
    sizes = {"element": rows * columns, "column": columns, "row": rows, "kept row": rows}
    dense = all(t.is_contiguous() and t.numel() == sizes[role] for t, role in zip(tensors, ROLES))
    described = []
    for tensor, role in zip(tensors, ROLES):
        alignment = min(16, tensor.data_ptr() & -tensor.data_ptr() or 16)
        if dense:
            fixed = len(trailing) if role in ("element", "column") else 0
            free = (-1,) * (tensor.dim() - fixed) + tuple(tensor.shape[tensor.dim() - fixed :])
            description = (tensor.dtype, free, None, alignment, None)
        else:
            layout = matrix_layout(tensor, role, leading, trailing)
            description = (tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), alignment, layout)
        described.append(description)
        if role in ("element", "column"):
            vector = min(vector, vector_of(description[-1], columns, alignment // tensor.element_size()))
    return compile_rows(columns, vector, tuple(described))


def matrix_layout(tensor, role: str, leading, trailing) -> Layout:
    """The layout of `tensor`, broadcast to its role's shape, as rows x columns."""
    if role == "element":
        tensor = tensor.expand(*leading, *trailing)
        rows = collapse(tensor.shape[:ROWS_RANK], tensor.stride()[:ROWS_RANK])
        columns = collapse(tensor.shape[ROWS_RANK:], tensor.stride()[ROWS_RANK:])
        return Layout((rows[0], columns[0]), (rows[1], columns[1]))
    if role == "kept row":
        tensor = tensor.view(tensor.shape[: max(0, tensor.dim() - len(trailing))])
    tensor = tensor.expand(trailing if role == "column" else leading)
    shape, stride = collapse(tensor.shape, tensor.stride())
    return Layout((shape,), (stride,))


def vector_of(layout, columns: int, aligned: int) -> int:
    """How many elements of a tensor one vector access may cover (a power of two)."""
    width = math.gcd(columns, 16, max(1, aligned))
    if layout is None:
        return width
    if layout.stride[-1] != (1,):
        return 1
    return math.gcd(width, *(layout.stride[0] if len(layout.stride) == 2 else ()))


_launchers = {}


def kernel_fn(state, x, step, decay, into, out_of, skip, gate):
    into_1 = into.unsqueeze(1)
    out_of_1 = out_of.unsqueeze(1)
    skip_1 = skip.unsqueeze(1)
    out_0 = torch.empty_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)
    out_1 = torch.empty_like(state, memory_format=torch.contiguous_format)
    key = (state.shape, state.stride(), state.dtype, x.shape, x.stride(), x.dtype, step.shape, step.stride(), step.dtype, decay.shape, decay.stride(), decay.dtype, into_1.shape, into_1.stride(), into_1.dtype, out_of_1.shape, out_of_1.stride(), out_of_1.dtype, skip_1.shape, skip_1.stride(), skip_1.dtype, gate.shape, gate.stride(), gate.dtype, (state.data_ptr() | x.data_ptr() | step.data_ptr() | decay.data_ptr() | into_1.data_ptr() | out_of_1.data_ptr() | skip_1.data_ptr() | gate.data_ptr()) & 15)
    launch = _launchers.get(key)
    if launch is None:
        launch = _launchers.setdefault(key, specialise(state, x, step, decay, into_1, out_of_1, skip_1, gate, out_0, out_1))
    launch(state, x, step, decay, into_1, out_of_1, skip_1, gate, out_0, out_1)
    return (out_0, out_1)


# ------------------------------------------------------------------------------
# The problem, as it was given: what to compute, and on which inputs.
# ------------------------------------------------------------------------------

"""One decoding step of the selective state space model of Mamba-2.8B: 5120 channels of 16 states, 256 sequences."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("ssm", "decode", "fp32", "mamba")


def reference_fn(state, x, step, decay, into, out_of, skip, gate):
    """state [batch, channels, states]; x, step, gate [batch, channels]; decay [channels, states]; into, out_of
    [batch, states]; skip [channels]. Returns the output and the new state.
    """
    step = F.softplus(step).unsqueeze(-1)
    new_state = state * torch.exp(step * decay) + step * into.unsqueeze(1) * x.unsqueeze(-1)
    y = (new_state * out_of.unsqueeze(1)).sum(dim=-1) + skip * x
    return y * F.silu(gate), new_state


def get_inputs(batch=256, channels=5120, states=16):
    def draw(*shape):
        return torch.randn(shape, device="cuda")

    decay = -torch.exp(0.5 * draw(channels, states))
    rows = [draw(batch, channels), draw(batch, channels) - 2.0]
    return [
        draw(batch, channels, states),
        *rows,
        decay,
        draw(batch, states),
        draw(batch, states),
        draw(channels),
        draw(batch, channels),
    ]


def get_input_sets():
    for sizes in ((1, 256, 16), (3, 100, 16), (7, 33, 5), (2, 1, 128)):
        yield get_inputs(*sizes)
