"""Many short rows sorted, values and places, as `cutesmith generate` writes it: a bitonic network for each row.

Written from `torch.sort(x, stable=True)`. Keys are integers that rise with the values, so that NaN is the largest, and
equal elements keep their order by their places. A thread takes up to three steps of the network on eight elements in
registers; the row lies in shared memory, or in a scratch of global memory where it is too long for that.
Verified on the emulated GPU; no GPU has timed this file.

Arch: sm_80+
Operation: topk
Features: smem, predication, multiple_outputs
Start here when rows of a few hundred elements are sorted; long ones are faster by digits.
"""

import functools
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int16, Int32, Int64, const_expr, range_constexpr
from cutlass.memory import SmemAllocator

# ---- kernel: the first of each line in rising order

THREADS = 32  # of a block, which has one line
LOADS = 4  # elements that a thread loads before the first is used
SHARED_BYTES = 165888  # that a block has for its buffer
Key = Int32  # as buffers hold it
LAST_KEY = 2 ** (Key.width - 1) - 1


class Plan(NamedTuple):
    """What is known when compiling: elements of a line, how many are kept, and how many lines there are.

    `size` is the buffer's, a power of two; it lies in shared memory, or each line has a part of a `scratch`.
    """

    length: int
    count: int
    lines: int
    size: int
    in_shared: bool
    place: type  # of 16 bits where a line has no more places
    index: type


@cute.jit
def key_of(value):
    """An integer that rises with the value; NaN is the largest value, zeros are equal."""
    bits = cute.make_rmem_tensor((1,), Float32)
    bits[0] = value
    key = cute.recast_tensor(bits, Key)[0].to(Int32)
    key = key ^ ((key >> (Key.width - 1)) & LAST_KEY)
    number = value.to(Float32)
    if number == Float32(0.0):
        key = Int32(0)
    if number != number:
        key = Int32(LAST_KEY)
    return key


@cute.jit
def exchange(
    keys: cute.Tensor, places: cute.Tensor, thread, run, apart, size: cutlass.Constexpr, steps: cutlass.Constexpr
):
    """Steps of a round, the last of elements 2**apart from each other: a thread holds all that it swaps in
    registers.
    """
    held = const_expr(1 << steps)
    for turn in range((size // held + THREADS - 1) // THREADS):
        group = turn * THREADS + thread
        if group < size // held:
            low = group & ((Int32(1) << apart) - 1)
            first = ((group - low) << steps) | low
            rises = ((first >> run) & 1) == 0
            key = cute.make_rmem_tensor((held,), Key)
            place = cute.make_rmem_tensor((held,), Int32)
            for j in range_constexpr(held):
                key[j] = keys[first + (j << apart)]
                place[j] = places[first + (j << apart)].to(Int32)
            for step in range_constexpr(steps):
                for j in range_constexpr(held):
                    other = j + (held >> (step + 1))
                    if const_expr(j & (held >> (step + 1)) == 0):
                        is_later = key[j] > key[other] or (key[j] == key[other] and place[j] > place[other])
                        if is_later == rises:
                            key[j], key[other] = key[other], key[j]
                            place[j], place[other] = place[other], place[j]
            for j in range_constexpr(held):
                keys[first + (j << apart)] = key[j]
                places[first + (j << apart)] = place[j].to(places.element_type)
    cute.arch.barrier()


@cute.jit
def sort_buffer(keys: cute.Tensor, places: cute.Tensor, thread, size: cutlass.Constexpr):
    """A bitonic network: runs of twice the length in each round, and each step of a round halves what lies between."""
    # steps at once that leave work to all threads
    most = const_expr(max(1, min(3, (size // THREADS).bit_length() - 1)))
    for run in range(1, size.bit_length()):
        for steps in range_constexpr(1, most):
            if run % most == steps:
                exchange(keys, places, thread, run, run - steps, size, steps)
        for turn in range(run // most):
            exchange(keys, places, thread, run, (run // most - 1 - turn) * most, size, most)


@cute.kernel
def select_kernel(
    x_lines: cute.Tensor,
    values_lines: cute.Tensor,
    places_lines: cute.Tensor,
    m_keys: cute.Tensor,
    m_places: cute.Tensor,
    plan: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    line = plan.index(block)
    last_place = const_expr(2 ** (plan.place.width - 1) - 1)  # of what fills the buffer
    smem = SmemAllocator()
    counter = smem.allocate_tensor(Int32, cute.make_layout(1), 16)  # elements in the buffer
    if const_expr(plan.in_shared):
        # of banks; each begins one bank later than the one before
        row, rows = min(32, plan.size), max(1, plan.size // 32)
        apart = cute.make_layout(((row, rows),), stride=((1, row + 1),))
        keys = smem.allocate_tensor(Key, apart, 16)
        places = smem.allocate_tensor(plan.place, apart, 16)
    else:
        keys, places = m_keys[None, line], m_places[None, line]
    for turn in range((plan.size + THREADS - 1) // THREADS):
        at = turn * THREADS + thread
        if at < plan.size:
            key, place = Int32(LAST_KEY), Int32(last_place)
            if at < plan.length:
                key, place = key_of(x_lines[line, at]), at
            keys[at], places[at] = key.to(Key), place.to(places.element_type)
    if thread == 0:
        counter[0] = Int32(plan.count)
    cute.arch.barrier()
    sort_buffer(keys, places, thread, plan.size)
    if const_expr(plan.length > plan.size):
        # An element that comes after the last of the best so far is left out: of random ones, nearly all.
        limit = keys[plan.count - 1].to(Int32)
        chunks = (plan.length - plan.size + THREADS * LOADS - 1) // (THREADS * LOADS)
        for chunk in range(chunks):
            loaded = cute.make_rmem_tensor((LOADS,), Float32)
            for j in range_constexpr(LOADS):
                at = plan.size + (chunk * LOADS + j) * THREADS + thread
                if at < plan.length:
                    loaded[j] = x_lines[line, at]
            for j in range_constexpr(LOADS):
                at = plan.size + (chunk * LOADS + j) * THREADS + thread
                if at < plan.length:
                    key = key_of(loaded[j])
                    if key < limit:
                        slot = cute.arch.atomic_add(counter.iterator, Int32(1), sem="relaxed", scope="cta")
                        keys[slot], places[slot] = key.to(Key), at.to(places.element_type)
            cute.arch.barrier()
            filled = counter[0]
            cute.arch.barrier()
            if filled > plan.size - THREADS * LOADS or chunk == chunks - 1:
                for turn in range((plan.size + THREADS - 1) // THREADS):
                    at = turn * THREADS + thread
                    if at >= filled and at < plan.size:
                        keys[at], places[at] = Key(LAST_KEY), Int32(last_place).to(places.element_type)
                if thread == 0:
                    counter[0] = Int32(plan.count)
                cute.arch.barrier()
                sort_buffer(keys, places, thread, plan.size)
                limit = keys[plan.count - 1].to(Int32)
                cute.arch.barrier()
    for turn in range((plan.count + THREADS - 1) // THREADS):
        at = turn * THREADS + thread
        if at < plan.count:
            place = places[at].to(Int32)
            values_lines[line, at] = x_lines[line, place]
            places_lines[line, at] = place.to(Int64)


@cute.jit
def launch_selection(
    x: cute.Tensor,
    values: cute.Tensor,
    places: cute.Tensor,
    scratch_keys: cute.Tensor,
    scratch_places: cute.Tensor,
    plan: cutlass.Constexpr,
    layouts: cutlass.Constexpr,
    stream,
):
    select_kernel(
        cute.make_tensor(x.iterator, cute.make_layout(layouts[0][0], stride=layouts[0][1])),
        cute.make_tensor(values.iterator, cute.make_layout(layouts[1][0], stride=layouts[1][1])),
        cute.make_tensor(places.iterator, cute.make_layout(layouts[2][0], stride=layouts[2][1])),
        scratch_keys,
        scratch_places,
        plan,
    ).launch(grid=[plan.lines, 1, 1], block=[THREADS, 1, 1], stream=stream)


TYPES = {torch.float32: Float32, torch.int64: Int64, torch.int32: Int32}
DIM = -1  # along which lines are sorted


@functools.cache
def compile_selection(plan: Plan, layouts: tuple, tensors: tuple):
    """Compile for tensors given as (dtype, shape, stride)."""
    fakes = [
        cute.runtime.make_fake_tensor(TYPES[dtype], *layout, assumed_align=TYPES[dtype].width // 8)
        for dtype, *layout in tensors
    ]
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    compiled = cute.compile(launch_selection, *fakes, plan, layouts, stream, options="--enable-tvm-ffi")
    return compiled.__tvm_ffi_object__() or compiled  # TVM-FFI's own function: the DSL's wrapper takes 0.3 us more


def buffer_size(length: int, count: int) -> int:
    """Elements that are sorted at once: a line, or the best so far and as many again, no fewer than are loaded."""
    whole = 1 << max(0, length - 1).bit_length()
    some = 1 << (2 * max(count, THREADS * LOADS) - 1).bit_length()
    return some if some < whole and is_shared(length, some) else whole


def is_shared(length: int, size: int) -> bool:
    """Whether shared memory holds a buffer of so many elements of a line."""
    return (size + size // 32 + 1) * (Key.width // 8 + place_type(length).width // 8) <= SHARED_BYTES


def scratch_size(size: int) -> int:
    """Elements of a line's scratch where shared memory does not hold its buffer."""
    return size


def place_type(length: int) -> type:
    """Of the places of a line; behind its end lies the largest."""
    return Int16 if length <= 1 << 15 else Int32


def lines_of(tensor):
    """The layout of (line, element along it) of a tensor."""
    others = [dim for dim in reversed(range(tensor.dim())) if dim != tensor.dim() + DIM and tensor.shape[dim] > 1]
    sizes, strides = ([tensor.shape[dim] for dim in others] or [1], [tensor.stride(dim) for dim in others] or [0])
    return (tuple(sizes), tensor.shape[DIM]), (tuple(strides), tensor.stride(DIM))


def specialise(x, *others):
    """The compiled kernel for tensors of these shapes, strides and types; the last two are scratch."""
    length, count = x.shape[DIM], others[0].shape[DIM]
    lines, size = x.numel() // length, buffer_size(length, count)
    extent = max(1 + sum((size - 1) * step for size, step in zip(t.shape, t.stride())) for t in (x, *others))
    shared, index = is_shared(length, size), Int32 if extent < 2**31 else Int64
    plan = Plan(length, count, lines, size, shared, place_type(length), index)
    described = tuple((t.dtype, tuple(t.shape), tuple(t.stride())) for t in (x, *others))
    return compile_selection(plan, tuple(map(lines_of, (x, *others[:-2]))), described)


LAUNCHERS = {}


def kernel_fn(x):
    sizes = list(x.shape)
    length, count = sizes[DIM], x.shape[1]
    if not 0 <= count <= length:
        raise ValueError(f"a line of {length} elements has no first {count}")
    sizes[DIM] = count
    values = torch.empty(sizes, dtype=torch.float32, device=x.device)
    places = torch.empty(sizes, dtype=torch.int64, device=x.device)
    if values.numel() == 0:
        return (values, places)
    size = buffer_size(length, count)
    scratch = [1, 1] if is_shared(length, size) else [x.numel() // length, scratch_size(size)]
    scratch_keys = torch.empty(scratch, dtype=torch.int32, device=x.device).t()
    scratch_places = torch.empty(scratch, dtype=torch.int32, device=x.device).t()
    key = (count, x.shape, x.stride(), x.dtype, (x.data_ptr()) & 15)
    launch = LAUNCHERS.get(key)
    if launch is None:
        if x.dtype != torch.float32:
            raise ValueError("this kernel takes x of float32")
        launch = LAUNCHERS[key] = specialise(x, values, places, scratch_keys, scratch_places)
    launch(x, values, places, scratch_keys, scratch_places)
    return (values, places)


# ------------------------------------------------------------------------------
# The problem, as it was given: what to compute, and on which inputs.
# ------------------------------------------------------------------------------


def reference_fn(x):
    """x [rows, columns]: each row in order, and where its elements were; equal ones keep their order."""
    return torch.sort(x, dim=-1, stable=True)


def get_inputs(rows=4096, columns=256):
    return [torch.randn(rows, columns, device="cuda")]


def get_input_sets():
    for sizes in ((3, 256), (5, 100), (2, 1), (1, 3000)):
        yield get_inputs(*sizes)
