# rule: S5
# expect: passed
# needs: compile
"""A barrier of no more blocks than any GPU holds at once."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 64


@cute.kernel
def centre_kernel(x: cute.Tensor, sums: cute.Tensor, arrived: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    columns = x.shape[1]
    pivot = x[0, 0]  # sums of differences: those of large numbers that are alike would round too coarsely
    if pivot - pivot != 0.0:  # Inf, or NaN
        pivot = cutlass.Float32(0.0)
    total = cutlass.Float32(0.0)
    for row in range(block, rows, blocks):
        if thread < 32:
            part = cutlass.Float32(0.0)
            for column in range(thread, columns, 32):
                part += x[row, column] - pivot
            total += cute.arch.warp_reduction(part, lambda a, b: a + b)
    if thread == 0:
        sums[block] = total
        cute.arch.fence_acq_rel_gpu()
        cute.arch.atomic_add(arrived.iterator.llvm_ptr, cutlass.Int32(1), sem="release", scope="gpu")
        seen = cutlass.Int32(0)
        while seen < blocks:
            seen = cute.arch.atomic_add(arrived.iterator.llvm_ptr, cutlass.Int32(0), sem="acquire", scope="gpu")
    cute.arch.sync_threads()
    mean = cutlass.Float32(0.0)
    for other in range(blocks):
        mean += sums[other]
    mean = mean / (rows * columns).to(cutlass.Float32)
    for row in range(block, rows, blocks):
        for column in range(thread, columns, THREADS):
            y[row, column] = (x[row, column] - pivot) - mean


@cute.kernel
def zero_kernel(arrived: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    if thread == 0:
        arrived[0] = 0


@cute.jit
def centre_host(
    x: cute.Tensor, sums: cute.Tensor, arrived: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32, blocks: cutlass.Int32
):
    zero_kernel(arrived).launch(grid=(1, 1, 1), block=(32, 1, 1))
    centre_kernel(x, sums, arrived, y, rows).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns, most = cute.sym_int(), cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0)) for _ in range(2))
    sums = make_fake_compact_tensor(cutlass.Float32, (most,))
    arrived = make_fake_compact_tensor(cutlass.Int32, (1,))
    one = cutlass.Int32(1)
    return cute.compile(centre_host, x, sums, arrived, y, one, one, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        rows = x.shape[0]
        blocks = min(rows, 64)
        sums = torch.empty(blocks, device=x.device)
        arrived = torch.empty(1, dtype=torch.int32, device=x.device)
        compiled()(x, sums, arrived, y, rows, blocks)
    return y


def reference_fn(x):
    return x - x.mean()


def get_inputs():
    return [torch.randn(65536, 512, device="cuda")]
