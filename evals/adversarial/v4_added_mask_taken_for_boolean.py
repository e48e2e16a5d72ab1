# rule: V4
# expect: wrong_result
# needs: values
# says: - | V4 | V2
"""A softmax of scores and an added mask, of which only -Inf is looked at: a bias of -2 is lost."""

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
    top = cutlass.Float32(float("-inf"))
    for column in range(lane, x.shape[1], THREADS):
        score = x[row, column] if mask[row, column] > float("-inf") else cutlass.Float32(float("-inf"))
        top = cute.arch.fmax(top, score)
    top = cute.arch.warp_reduction(top, lambda a, b: cute.arch.fmax(a, b))
    total = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], THREADS):
        score = x[row, column] if mask[row, column] > float("-inf") else cutlass.Float32(float("-inf"))
        total += cute.math.exp(score - top)
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    for column in range(lane, x.shape[1], THREADS):
        score = x[row, column] if mask[row, column] > float("-inf") else cutlass.Float32(float("-inf"))
        y[row, column] = cute.math.exp(score - top) / total


@cute.jit
def rows_host(x: cute.Tensor, mask: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, mask, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    mask = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, mask, y, options="--enable-tvm-ffi")


def kernel_fn(x, mask):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, mask, y)
    return y


def reference_fn(x, mask):
    return torch.softmax((x + mask).masked_fill(mask == -torch.inf, -torch.inf), dim=-1)


def get_inputs():
    mask = torch.zeros(64, 500, device="cuda").masked_fill(torch.rand(64, 500, device="cuda") < 0.3, -torch.inf)
    return [torch.randn(64, 500, device="cuda"), mask]


def get_input_sets():
    mask = torch.zeros(2, 33, device="cuda").masked_fill(torch.rand(2, 33, device="cuda") < 0.3, -torch.inf)
    yield [torch.randn(2, 33, device="cuda"), mask]
