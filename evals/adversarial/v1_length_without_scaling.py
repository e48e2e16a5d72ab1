# rule: V1
# expect: wrong_result
# needs: values
# says: - | V1 | O3
"""The length of rows by their squares, where the reference divides by the largest element first."""

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
    squares = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        value = x[row, column].to(cutlass.Float32)
        squares += value * value + (value - value)  # NaN where a value is infinite, as the reference has it
    squares = cute.arch.warp_reduction(squares, lambda a, b: a + b)
    if lane == 0:
        y[row] = cute.math.sqrt(squares)


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.BFloat16, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if y.numel():
        compiled()(x.contiguous(), y)
    return y


def reference_fn(x):
    wide = x.float()
    longest = wide.abs().amax(-1, keepdim=True)
    ratio = wide / torch.where(longest > 0, longest, 1.0)
    return longest.squeeze(-1) * ratio.square().sum(-1).sqrt()


def get_inputs():
    return [torch.randn(64, 500, dtype=torch.bfloat16, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, dtype=torch.bfloat16, device="cuda")]
