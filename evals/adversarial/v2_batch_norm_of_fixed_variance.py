# rule: V2
# expect: wrong_result
# needs: values
# says: - | V2 | O6 | O3
"""An evaluated batch norm that takes the running variance for ones."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, mean: cute.Tensor, variance: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(lane, x.shape[1], THREADS):
        y[row, column] = (x[row, column] - mean[column]) / cute.math.sqrt(cutlass.Float32(1.0 + 1e-5))


@cute.jit
def rows_host(x: cute.Tensor, mean: cute.Tensor, variance: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, mean, variance, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    mean = make_fake_compact_tensor(cutlass.Float32, (columns,))
    variance = make_fake_compact_tensor(cutlass.Float32, (columns,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, mean, variance, y, options="--enable-tvm-ffi")


def kernel_fn(x, mean, variance):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, mean, variance, y)
    return y


def reference_fn(x, mean, variance):
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.zeros(500, device="cuda"), torch.ones(500, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), torch.zeros(33, device="cuda"), torch.ones(33, device="cuda")]
