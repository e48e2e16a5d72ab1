# rule: S2
# expect: passed
# needs: compile
"""Its steps of 32 columns end where the row does."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

LANES = 32


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    for step in range(cute.ceil_div(x.shape[1], LANES)):
        column = step * LANES + lane
        if column < x.shape[1]:
            y[row, column] = cute.arch.fmax(x[row, column], 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor):
    relu_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(LANES, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0)) for _ in range(2))
    return cute.compile(relu_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    if x.ndim != 2 or x.shape[1] % 16:
        raise ValueError("a matrix whose columns 16 divides is wanted")
    y = torch.empty_like(x)
    if y.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 512, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 128, device="cuda")]
