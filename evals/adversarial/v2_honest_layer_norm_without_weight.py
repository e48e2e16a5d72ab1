# rule: V2
# expect: passed
# needs: values
"""A layer norm that reads its weight and bias."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, weight: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        total += x[row, column]
    mean = cute.arch.warp_reduction(total, lambda a, b: a + b) / x.shape[1]
    squares = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        squares += (x[row, column] - mean) * (x[row, column] - mean)
    variance = cute.arch.warp_reduction(squares, lambda a, b: a + b) / x.shape[1]
    scale = 1.0 / cute.math.sqrt(variance + 1e-5)
    for column in range(lane, x.shape[1], THREADS):
        y[row, column] = (x[row, column] - mean) * scale * weight[column] + bias[column]


@cute.jit
def rows_host(x: cute.Tensor, weight: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, weight, bias, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    weight = make_fake_compact_tensor(cutlass.Float32, (columns,))
    bias = make_fake_compact_tensor(cutlass.Float32, (columns,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, weight, bias, y, options="--enable-tvm-ffi")


def kernel_fn(x, weight, bias):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, weight, bias, y)
    return y


def reference_fn(x, weight, bias):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.ones(500, device="cuda"), torch.zeros(500, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), torch.ones(33, device="cuda"), torch.zeros(33, device="cuda")]
