# rule: V3
# expect: passed
# needs: values
"""Negative log likelihood with 0 where the label is to be ignored."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, target: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    if lane == 0:
        label = target[row]
        safe = label if label >= 0 else cutlass.Int64(0)
        y[row] = cutlass.Float32(0.0) if label == -100 else -x[row, safe]


@cute.jit
def rows_host(x: cute.Tensor, target: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, target, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    target = make_fake_compact_tensor(cutlass.Int64, (rows,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(rows_host, x, target, y, options="--enable-tvm-ffi")


def kernel_fn(x, target):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if x.numel():
        compiled()(x, target, y)
    return y


def reference_fn(x, target):
    return torch.nn.functional.nll_loss(x, target, reduction="none")


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.randint(0, 500, (64,), device="cuda")]


def get_input_sets():
    yield [torch.randn(5, 33, device="cuda"), torch.randint(0, 33, (5,), device="cuda")]
