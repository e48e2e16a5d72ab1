# rule: V5
# expect: wrong_result
# needs: values
# says: - | V5
"""The sum of the first k elements, one for each thread: none beyond the 32nd."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, y: cute.Tensor, k: cutlass.Int32):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    if lane < k:
        total = x[row, lane]
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    if lane == 0:
        y[row] = total


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor, k: cutlass.Int32):
    rows_kernel(x, y, k).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(rows_host, x, y, cutlass.Int32(0), options="--enable-tvm-ffi")


def kernel_fn(x, k):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if x.numel():
        compiled()(x, y, max(0, min(x.shape[1], k if k >= 0 else k + x.shape[1])))
    return y


def reference_fn(x, k):
    return x[:, :k].sum(-1)


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), 4]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), 4]
