# rule: V1
# expect: passed
# needs: values
"""A logsumexp by parts of a row, any of which may be all -Inf."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    part = cute.ceil_div(x.shape[1], THREADS)
    begin = lane * part
    end = begin + part if begin + part < x.shape[1] else x.shape[1]
    top = cutlass.Float32(float("-inf"))
    for column in range(begin, end):
        top = cute.arch.fmax(top, x[row, column])
    top = cute.arch.fmin(top, 3.0e38)
    top = cute.arch.fmax(top, -3.0e38)
    total = cutlass.Float32(0.0)
    for column in range(begin, end):
        total += cute.math.exp(x[row, column] - top)
    most = cute.arch.warp_reduction(top, lambda a, b: cute.arch.fmax(a, b))
    total = cute.arch.warp_reduction(total * cute.math.exp(top - most), lambda a, b: a + b)
    if lane == 0:
        y[row] = cute.math.log(total) + most


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return torch.logsumexp(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 500, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda")]
