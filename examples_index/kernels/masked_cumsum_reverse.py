"""Masked cumulative sum from the end of each row, in one pass: one element is read and written once.

Written by `cutesmith generate` from `(x * mask).flip(1).cumsum(1).flip(1)`; nothing is flipped in memory. Vectors are
loaded from the end and lie the other way round in registers. A thread scans its vectors, up-shuffles join the lanes,
shared memory joins the warps with one barrier a tile, and a register carries the sum to the next tile.

Arch: sm_80+
Operation: scan
Features: vectorized_copy, warp_shuffle, smem, recurrence
Start here when a line is longer than a block holds, or is scanned from its end, or what is scanned is computed first.
"""

import functools
import math
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cutlass import (
    BFloat16,
    Boolean,
    Float16,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    const_expr,
    range_constexpr,
)
from cutlass.memory import SmemAllocator

# ---- kernel: scan: sum + cast + mul

LANES = 32  # of a warp, one after the other along a line; the others have lines of their own
LINES = 32 // LANES  # of a warp
ALONG = 8  # warps along a line
ACROSS = 1  # times as many warps in a block, each time for other lines
VECTOR = 4  # neighbouring elements of a thread
VECTORS = 4  # of those, all loaded before the first is used
SPAN = LANES * VECTOR  # elements between one vector of a thread and the next
TILE = ALONG * VECTORS * SPAN  # elements of a line that are scanned at once
CLAMP = (32 - LANES) << 8  # a shuffle stays among the lanes of a line


class Plan(NamedTuple):
    """What is known when compiling: elements of a line that are scanned, and that the result has, and how many lines.

    `widths` are the elements of an access of each tensor, `lengths` how many of a line it holds.
    """

    length: int
    count: int
    lines: int
    index: type
    widths: tuple
    lengths: tuple
    sizes: tuple  # of the result


@cute.jit
def combined(a: Float32, b: Float32):
    """What two neighbouring parts of a line give together; a comes before b."""
    return a + b


@cute.jit
def element(x_at: Float32, mask_at: Boolean):
    cast_2 = Float32(1.0) if mask_at else Float32(0.0)
    mul_3 = x_at * cast_2
    return mul_3


@cute.jit
def load(memory: cute.Tensor, line, first, length, values: cute.Tensor, width: cutlass.Constexpr):
    """Elements `first` and on of a line, as many as there are values; those that the line does not have stay."""
    for j in range_constexpr(VECTOR // width):
        at = first + j * width
        if at < length:
            cute.autovec_copy(memory[(None, (length - at) // width - 1), line], cute.local_tile(values, (width,), (j,)))


@cute.jit
def store(values: cute.Tensor, memory: cute.Tensor, line, first, length, width: cutlass.Constexpr):
    """The values as elements `first` and on of a line, as many as it has."""
    for j in range_constexpr(VECTOR // width):
        at = first + j * width
        if at < length:
            cute.autovec_copy(cute.local_tile(values, (width,), (j,)), memory[(None, (length - at) // width - 1), line])


def in_register(v: int, width: int) -> int:
    """Where a vector holds the element in place `v` from the end: accesses of `width` lie the other way round."""
    return v - v % width + width - 1 - v % width


@cute.kernel
def scan_kernel(m_x_at: cute.Tensor, m_mask_at: cute.Tensor, m_out: cute.Tensor, plan: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    lane, warp = thread % 32, thread // 32
    lane_along, column = lane % LANES, lane // LANES
    along, across = warp % ALONG, warp // ALONG
    line = (plan.index(block) * ACROSS + across) * LINES + column
    is_there = line < plan.lines
    smem = SmemAllocator()
    totals = smem.allocate_tensor(
        Float32, cute.make_layout((LINES, ALONG, ACROSS, 2)), 16
    )  # of warps, of two tiles in turn
    r_x_at = cute.make_rmem_tensor((VECTOR, VECTORS), Float32)
    r_mask_at = cute.make_rmem_tensor((VECTOR, VECTORS), Uint8)
    r_out = cute.make_rmem_tensor((VECTOR,), Float32)
    values = cute.make_rmem_tensor((VECTOR, VECTORS), Float32)  # scanned within a vector
    before = cute.make_rmem_tensor((VECTORS,), Float32)  # of the warp's elements before each vector
    carry = Float32(0.0)  # of all tiles so far
    n_x_at = plan.index(plan.lengths[0]) if is_there else plan.index(0)
    n_mask_at = plan.index(plan.lengths[1]) if is_there else plan.index(0)
    count = plan.index(plan.count) if is_there else plan.index(0)
    start = plan.index(along * (VECTORS * SPAN) + lane_along * VECTOR)
    for tile in range(cute.ceil_div(plan.count, TILE)):
        for c in range_constexpr(VECTORS):
            load(m_x_at, line, start + c * SPAN, n_x_at, r_x_at[None, c], plan.widths[0])
            load(m_mask_at, line, start + c * SPAN, n_mask_at, r_mask_at[None, c], plan.widths[1])
        passed = Float32(0.0)
        for c in range_constexpr(VECTORS):
            for v in range_constexpr(VECTOR):
                at = start + c * SPAN + v
                x_at = r_x_at[in_register(v, plan.widths[0]), c]
                mask_at = r_mask_at[in_register(v, plan.widths[1]), c]
                value = element(x_at, (mask_at != Uint8(0.0)))
                values[v, c] = value if at < plan.length else Float32(0.0)
                if const_expr(v > 0):
                    values[v, c] = combined(values[v - 1, c], values[v, c])
            total = values[VECTOR - 1, c]
            # The lanes of a line add up what lies before each of them, in as many steps as it takes to double to all.
            for step in range_constexpr(LANES.bit_length() - 1):
                earlier = cute.arch.shuffle_sync_up(total, 1 << step, mask_and_clamp=CLAMP)
                both = combined(earlier, total)
                total = both if lane_along >= 1 << step else total

            earlier = cute.arch.shuffle_sync_up(total, 1, mask_and_clamp=CLAMP)
            last = cute.arch.shuffle_sync(total, LANES - 1, mask_and_clamp=CLAMP | 31)
            both = combined(passed, earlier)
            mine = both if lane_along > 0 else passed

            before[c] = mine
            passed = combined(passed, last)
        mine = carry
        turn = tile % 2  # what the last tile left is still being read by slower warps
        if lane_along == LANES - 1:
            totals[column, along, across, turn] = passed
        cute.arch.barrier()
        for w in range_constexpr(ALONG):
            carry = combined(carry, totals[column, w, across, turn])
            mine = carry if w + 1 == along else mine

        for c in range_constexpr(VECTORS):
            first = combined(mine, before[c])
            for v in range_constexpr(VECTOR):
                acc = combined(first, values[v, c])
                out = acc
                r_out[in_register(v, plan.widths[2])] = out
            store(r_out, m_out, line, start + c * SPAN, count, plan.widths[2])
        start = start + TILE


@cute.jit
def launch_scan(
    x_at: cute.Tensor,
    mask_at: cute.Tensor,
    out: cute.Tensor,
    plan: cutlass.Constexpr,
    layouts: cutlass.Constexpr,
    stream,
):
    scan_kernel(
        cute.make_tensor(x_at.iterator, cute.make_layout(layouts[0][0], stride=layouts[0][1])),
        cute.make_tensor(mask_at.iterator, cute.make_layout(layouts[1][0], stride=layouts[1][1])),
        cute.make_tensor(out.iterator, cute.make_layout(layouts[2][0], stride=layouts[2][1])),
        plan,
    ).launch(
        grid=[cute.ceil_div(plan.lines, ACROSS * LINES), 1, 1],
        block=[32 * ALONG * ACROSS, 1, 1],
        stream=stream,
    )


TYPES = {
    torch.float16: Float16,
    torch.bfloat16: BFloat16,
    torch.float32: Float32,
    torch.float64: Float64,
    torch.int8: Int8,
    torch.int16: Int16,
    torch.int32: Int32,
    torch.int64: Int64,
    torch.uint8: Uint8,
}


@functools.cache
def compile_scan(plan: Plan, layouts: tuple, tensors: tuple):
    """Compile for tensors given as (dtype, shape, stride, alignment)."""
    fakes = [
        cute.runtime.make_fake_tensor(TYPES[dtype], *layout, assumed_align=align) for dtype, *layout, align in tensors
    ]
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    numbers = []
    compiled = cute.compile(launch_scan, *fakes, *numbers, plan, layouts, stream, options="--enable-tvm-ffi")
    return (
        compiled.__tvm_ffi_object__() or compiled
    )  # TVM-FFI's own function: the DSL's wrapper costs a third of a microsecond


DIM = -1  # which is scanned


def specialise(*tensors):
    """The compiled kernel for tensors of these shapes, strides, types and alignments; the last is an output."""
    sizes = tuple(tensors[-1].shape)
    count = sizes[DIM]
    length = count
    seen = [
        t.expand(
            *sizes[:DIM],
            t.shape[DIM] if t.dim() >= -DIM and t.shape[DIM] != 1 else count,
            *sizes[len(sizes) + DIM + 1 :],
        )
        for t in tensors
    ]
    lines, strides = merge_dimensions(seen)
    widths = tuple(map(access, tensors, seen, strides))
    layouts = tuple(
        (((width, t.shape[DIM] // width), lines), ((t.stride(DIM), t.stride(DIM) * width), stride))
        for t, width, stride in zip(seen, widths, strides)
    )
    extent = max(1 + sum((size - 1) * step for size, step in zip(t.shape, t.stride())) for t in seen)
    index = Int32 if max(extent, math.prod(sizes)) + TILE < 2**31 else Int64
    lengths = tuple(t.shape[DIM] for t in seen)
    plan = Plan(length, count, math.prod(lines), index, widths, lengths, sizes)
    described = tuple(
        (t.dtype, tuple(t.shape), tuple(t.stride()), min(16, t.data_ptr() & -t.data_ptr() or 16)) for t in tensors
    )
    return compile_scan(plan, layouts, described)


def access(tensor, seen, strides) -> int:
    """Elements of the widest aligned access along a line."""
    if seen.stride(DIM) != 1:
        return 1
    width = 16 // tensor.element_size()
    return math.gcd(VECTOR, width, seen.shape[DIM], tensor.data_ptr() // tensor.element_size(), *strides)


def merge_dimensions(tensors):
    """Sizes and each tensor's strides of the other dimensions, innermost first, in as few as all tensors allow."""
    shape = tensors[-1].shape
    sizes, strides = [], [[] for _ in tensors]
    for dim in reversed(range(len(shape))):
        if shape[dim] == 1 or dim == len(shape) + DIM:
            continue
        steps = [t.stride(dim) for t in tensors]
        if sizes and all(own[-1] * sizes[-1] == step for own, step in zip(strides, steps)):
            sizes[-1] *= shape[dim]
            continue
        sizes.append(shape[dim])
        for own, step in zip(strides, steps):
            own.append(step)
    return (tuple(sizes), [tuple(own) for own in strides]) if sizes else ((1,), [(0,) for _ in tensors])


LAUNCHERS = {}


def kernel_fn(x, mask):
    mask_view = mask.view(torch.uint8)
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    if out.numel() == 0:
        return out
    key = (
        x.shape,
        x.stride(),
        x.dtype,
        mask_view.shape,
        mask_view.stride(),
        mask_view.dtype,
        (x.data_ptr() & 15, mask_view.data_ptr() & 15),
    )
    launch = LAUNCHERS.get(key)
    if launch is None:
        if (x.dtype, mask.dtype) != (torch.float32, torch.bool):
            raise ValueError("this kernel takes x of float32, mask of bool")
        launch = LAUNCHERS[key] = specialise(x, mask_view, out)
    launch(x, mask_view, out)
    return out


# ------------------------------------------------------------------------------
# The problem, as it was given: what to compute, and on which inputs.
# ------------------------------------------------------------------------------


def reference_fn(x, mask):
    """x [rows, columns], mask [rows, columns] bool: how much is still to come of what the mask keeps."""
    return (x * mask).flip(1).cumsum(1).flip(1)


def get_inputs(rows=4096, columns=16384, dtype=torch.float32):
    return [torch.rand(rows, columns, device="cuda", dtype=dtype), torch.rand(rows, columns, device="cuda") < 0.5]


def get_input_sets():
    for sizes in ((3, 4096), (33, 1000), (7, 129), (2, 1)):
        yield get_inputs(*sizes)
