# rule: V5
# expect: passed
# needs: values
"""A softmax with a temperature, which has to be above 0."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, y: cute.Tensor, temperature: cutlass.Float32):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    top = cutlass.Float32(float("-inf"))
    for column in range(lane, x.shape[1], THREADS):
        top = cute.arch.fmax(top, x[row, column])
    top = cute.arch.warp_reduction(top, lambda a, b: cute.arch.fmax(a, b))
    total = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        total += cute.math.exp((x[row, column] - top) / temperature)
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    for column in range(lane, x.shape[1], THREADS):
        y[row, column] = cute.math.exp((x[row, column] - top) / temperature) / total


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor, temperature: cutlass.Float32):
    rows_kernel(x, y, temperature).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, y, cutlass.Float32(0), options="--enable-tvm-ffi")


def kernel_fn(x, temperature):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, y, temperature)
    return y


def reference_fn(x, temperature):
    return torch.softmax(x / temperature, dim=-1)


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), 0.8]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), 0.8]
