# rule: V4
# expect: wrong_result
# needs: values
# says: - | V4 | V1
"""The largest element under a mask, from -1e9 on: a row without any is not -Inf."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, mask: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    best = cutlass.Float32(-1.0e9)
    for column in range(lane, x.shape[1], THREADS):
        if mask[row, column]:
            best = cute.arch.fmax(best, x[row, column], nan=True)
    best = cute.arch.warp_reduction(best, lambda a, b: cute.arch.fmax(a, b, nan=True))
    if lane == 0:
        y[row] = best


@cute.jit
def rows_host(x: cute.Tensor, mask: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, mask, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    mask = make_fake_compact_tensor(cutlass.Boolean, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(rows_host, x, mask, y, options="--enable-tvm-ffi")


def kernel_fn(x, mask):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if x.numel():
        compiled()(x, mask, y)
    return y


def reference_fn(x, mask):
    return x.masked_fill(~mask, -torch.inf).amax(-1)


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.rand(64, 500, device="cuda") < 0.5]


def get_input_sets():
    yield [torch.randn(3, 96, device="cuda"), torch.rand(3, 96, device="cuda") < 0.5]
