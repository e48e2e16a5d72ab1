"""Rows sorted, or their first k: a bitonic network over registers, shuffles and shared memory, stable.

Shows how a network of fixed comparisons maps onto a block. A value and its place become one 64-bit number, so that a
comparison is a minimum and a maximum, equal values keep their order, and NaN is the largest as in PyTorch. Each thread
holds 8 neighbouring numbers: near partners meet in its registers, farther ones by shuffles, the farthest through shared
memory. The first step of each merge pairs mirrored places, so that every merge sorts upwards.

Arch: sm_80+
Operation: topk
Features: warp_shuffle, smem, predication, multiple_outputs
Start here when a row must be sorted or its largest values are wanted.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int64, Uint32, Uint64, range_constexpr
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor
from cutlass.memory import SmemAllocator

DTYPES = {torch.float32: cutlass.Float32, torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
HELD = 8  # numbers of a thread
LARGEST_ROW = 8192  # 1024 threads, 64 KB of shared memory
ALL_ONES = 0xFFFFFFFF


@cute.jit
def sortable(x: Float32, descending: cutlass.Constexpr):
    """Bits that order as unsigned numbers do: -inf … inf, NaN; of both zeros the same."""
    bits = x.bitcast(Uint32)
    if x == 0.0:
        bits = Uint32(0)
    sign = bits >> 31
    key = bits ^ (Uint32(0x80000000) | (Uint32(0) - sign))  # a negative number: all bits, else the sign alone
    if x != x:
        key = Uint32(ALL_ONES)
    return key ^ Uint32(ALL_ONES) if cutlass.const_expr(descending) else key


@cute.jit
def keep_smaller(mine: Uint64, other: Uint64, mask: Uint64):
    """The smaller of two where the mask is 0, the larger where it is all ones."""
    return cutlass.min(mine ^ mask, other ^ mask) ^ mask


@cute.jit
def meet_in_thread(held: cute.Tensor, flip: cutlass.Constexpr):
    """Numbers whose places differ by `flip` within the thread: the smaller one goes to the lower place."""
    for e in range_constexpr(HELD):
        if cutlass.const_expr(e < e ^ flip):
            low, high = held[e], held[e ^ flip]
            held[e], held[e ^ flip] = cutlass.min(low, high), cutlass.max(low, high)


@cute.jit
def meet_across(
    held: cute.Tensor, shared: cute.Tensor, thread: cutlass.Int32, flip: cutlass.Constexpr, mirrored: cutlass.Constexpr
):
    """Numbers of this thread and of thread ^ flip, the same ones or, mirrored, in reverse."""
    others = cute.make_rmem_tensor((HELD,), Uint64)
    if cutlass.const_expr(flip < 32):
        for e in range_constexpr(HELD):
            others[e] = cute.arch.shuffle_sync_bfly(held[HELD - 1 - e if mirrored else e], flip)
    else:
        cute.arch.sync_threads()  # what was there before has been read
        for e in range_constexpr(HELD):
            shared[thread, e] = held[e]  # threads are neighbours: no two of a warp in the same bank
        cute.arch.sync_threads()
        for e in range_constexpr(HELD):
            others[e] = shared[thread ^ flip, HELD - 1 - e if mirrored else e]
    upper = (thread ^ flip) < thread
    mask = Uint64(0) - Uint64(upper)
    for e in range_constexpr(HELD):
        held[e] = keep_smaller(held[e], others[e], mask)


@cute.kernel
def sort_kernel(
    mX: cute.Tensor,  # (rows, columns)
    mValues: cute.Tensor,  # (rows, k)
    mIndices: cute.Tensor,  # (rows, k)
    threads: cutlass.Constexpr,
    descending: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    columns, k = mX.shape[1], mValues.shape[1]
    shared = SmemAllocator().allocate_tensor(Uint64, cute.make_layout((threads, HELD)), byte_alignment=16)
    held = cute.make_rmem_tensor((HELD,), Uint64)
    for e in range_constexpr(HELD):
        place = e * threads + thread  # where a number begins does not matter: lanes read neighbours
        key = Uint32(ALL_ONES)  # of what pads the row; its place puts it behind everything
        if place < columns:
            key = sortable(mX[row, place].to(Float32), descending)
        held[e] = (Uint64(key) << 32) | Uint64(place)

    size = 2
    while cutlass.const_expr(size <= threads * HELD):
        if cutlass.const_expr(size <= HELD):
            meet_in_thread(held, size - 1)
        else:
            meet_across(held, shared, thread, size // HELD - 1, True)
        distance = size // 4
        while cutlass.const_expr(distance > 0):
            if cutlass.const_expr(distance < HELD):
                meet_in_thread(held, distance)
            else:
                meet_across(held, shared, thread, distance // HELD, False)
            distance //= 2
        size *= 2

    for e in range_constexpr(HELD):
        rank = thread * HELD + e
        if rank < k:
            found = Int64(held[e] & Uint64(ALL_ONES))
            mValues[row, rank] = mX[row, found]
            mIndices[row, rank] = found


@cute.jit
def sort(
    mX: cute.Tensor,
    mValues: cute.Tensor,
    mIndices: cute.Tensor,
    threads: cutlass.Constexpr,
    descending: cutlass.Constexpr,
    stream,
):
    sort_kernel(mX, mValues, mIndices, threads, descending).launch(
        grid=(mX.shape[0], 1, 1), block=(threads, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, threads: int, descending: bool):
    """One kernel for all numbers of rows and all rows that as many threads hold, whatever their strides."""
    rows, columns, k = (cute.sym_int() for _ in range(3))
    x = make_fake_tensor(DTYPES[dtype], (rows, columns), (cute.sym_int64(), cute.sym_int64()))
    values = make_fake_tensor(DTYPES[dtype], (rows, k), (cute.sym_int64(), 1))
    indices = make_fake_tensor(Int64, (rows, k), (cute.sym_int64(), 1))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(sort, x, values, indices, threads, descending, stream, options="--enable-tvm-ffi")


def kernel_fn(x, k, descending):
    if x.shape[1] > LARGEST_ROW or not 0 <= k <= x.shape[1]:
        raise ValueError(f"the first {k} of rows of {x.shape[1]}: rows have at most {LARGEST_ROW}")
    values = torch.empty(x.shape[0], k, dtype=x.dtype, device=x.device)
    indices = torch.empty(x.shape[0], k, dtype=torch.int64, device=x.device)
    if values.numel():
        threads = max(32, 1 << (x.shape[1] - 1).bit_length() >> 3)
        compiled(x.dtype, threads, bool(descending))(x, values, indices)
    return values, indices


def reference_fn(x, k, descending):
    values, indices = torch.sort(x, dim=1, descending=descending, stable=True)
    return values[:, :k], indices[:, :k]


def get_inputs(rows=16384, columns=1024, k=64, descending=True, dtype=torch.float32):
    return [torch.randn(rows, columns, device="cuda", dtype=dtype), k, descending]


def get_input_sets():
    yield get_inputs(7, 300, 300, False)
    yield get_inputs(3, 2500, 5, dtype=torch.bfloat16)
    yield get_inputs(5, 1, 1, dtype=torch.float16)
