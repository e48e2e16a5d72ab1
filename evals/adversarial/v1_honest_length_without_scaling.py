# rule: V1
# expect: passed
# needs: values
"""The length of rows that are divided by their largest element first."""

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
    longest = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        value = x[row, column].to(cutlass.Float32)
        longest = cute.arch.fmax(longest, value if value > 0 else -value, nan=True)
    longest = cute.arch.warp_reduction(longest, lambda a, b: cute.arch.fmax(a, b, nan=True))
    unit = longest if longest != 0.0 else cutlass.Float32(1.0)
    squares = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        ratio = x[row, column].to(cutlass.Float32) / unit
        squares += ratio * ratio
    squares = cute.arch.warp_reduction(squares, lambda a, b: a + b)
    if lane == 0:
        y[row] = longest * cute.math.sqrt(squares)


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
