# rule: S2
# expect: wrong_result
# needs: values
# says: - | S2 | O3
"""It sums whole tiles of 128 columns, though it takes every multiple of 4."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

TILE, LANES = 128, 32


@cute.kernel
def sums_kernel(x: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for column in range(lane * 4, x.shape[1] // TILE * TILE, TILE):
        for i in cutlass.range_constexpr(4):
            total += x[row, column + i]
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    if lane == 0:
        y[row] = total


@cute.jit
def sums_host(x: cute.Tensor, y: cute.Tensor):
    sums_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(LANES, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(sums_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    if x.ndim != 2 or x.shape[1] % 4:
        raise ValueError("a matrix whose columns 4 divides is wanted")
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if y.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(64, 512, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 256, device="cuda")]
