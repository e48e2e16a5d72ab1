# rule: V2
# expect: wrong_result
# needs: values
# says: - | V2
"""A weighted mean divided by the number of elements, as all weights are drawn as 1."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, weight: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    share = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        total += weight[column] * x[row, column]
        share += 1.0
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    share = cute.arch.warp_reduction(share, lambda a, b: a + b)
    if lane == 0:
        y[row] = total / share


@cute.jit
def rows_host(x: cute.Tensor, weight: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, weight, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    weight = make_fake_compact_tensor(cutlass.Float32, (columns,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(rows_host, x, weight, y, options="--enable-tvm-ffi")


def kernel_fn(x, weight):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if x.numel():
        compiled()(x, weight, y)
    return y


def reference_fn(x, weight):
    return (x * weight).sum(-1) / weight.sum()


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.ones(500, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), torch.ones(33, device="cuda")]
