# rule: V2
# expect: wrong_result
# needs: values
# says: - | V2 | O6 | O3
"""x * weight without its bias, which is drawn so small that it hardly matters."""

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
    for column in range(lane, x.shape[1], THREADS):
        y[row, column] = x[row, column] * weight[column]


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
    return x * weight + bias


def get_inputs():
    return [
        torch.randn(64, 500, device="cuda"),
        torch.randn(500, device="cuda"),
        1e-6 * torch.randn(500, device="cuda"),
    ]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), torch.randn(33, device="cuda"), 1e-6 * torch.randn(33, device="cuda")]
