# rule: S5
# expect: passed
# needs: compile
"""Each block waits for the one before it, which the GPU has started earlier."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def scan_kernel(x: cute.Tensor, sums: cute.Tensor, ready: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    block, _, _ = cute.arch.block_idx()
    row = block
    total = cutlass.Float64(0.0)  # 16384 rows are added one after the other
    for column in range(lane, x.shape[1], THREADS):
        total += cutlass.Float64(x[row, column])
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    if lane == 0:
        if row > 0:
            seen = cutlass.Int32(0)
            while seen == 0:
                flag = ready.iterator + (row - 1)
                seen = cute.arch.atomic_add(flag.llvm_ptr, cutlass.Int32(0), sem="acquire", scope="gpu")
            total += sums[row - 1]
        sums[row] = total
        y[row] = cutlass.Float32(total)
        flag = ready.iterator + row
        cute.arch.atomic_add(flag.llvm_ptr, cutlass.Int32(1), sem="release", scope="gpu")


@cute.kernel
def zero_kernel(ready: cute.Tensor):
    lane = cute.arch.lane_idx()
    block, _, _ = cute.arch.block_idx()
    if lane == 0:
        ready[block] = 0


@cute.jit
def scan_host(x: cute.Tensor, sums: cute.Tensor, ready: cute.Tensor, y: cute.Tensor):
    zero_kernel(ready).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))
    scan_kernel(x, sums, ready, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    sums, y = (make_fake_compact_tensor(dtype, (rows,)) for dtype in (cutlass.Float64, cutlass.Float32))
    ready = make_fake_compact_tensor(cutlass.Int32, (rows,))
    return cute.compile(scan_host, x, sums, ready, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    rows = x.shape[0]
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    if y.numel():
        sums = torch.empty(rows, dtype=torch.float64, device=x.device)
        ready = torch.empty(rows, dtype=torch.int32, device=x.device)
        compiled()(x, sums, ready, y)
    return y


def reference_fn(x):
    return x.sum(dim=1).cumsum(dim=0)


def get_inputs():
    return [torch.rand(16384, 2048, device="cuda")]
