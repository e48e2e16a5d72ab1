"""Sums of the rows of a matrix: one warp a row, one element a load."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream


def add(a, b):
    return a + b


@cute.kernel
def row_sum_kernel(mX: cute.Tensor, mY: cute.Tensor):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    total = Float32(0.0)
    for column in cutlass.range(lane, cute.size(mX, mode=[1]), 32, unroll=1):
        total += mX[row, column].to(Float32)
    total = cute.arch.warp_reduction(total, add)
    if lane == 0:
        mY[row] = total


@cute.jit
def row_sum(mX: cute.Tensor, mY: cute.Tensor, stream):
    row_sum_kernel(mX, mY).launch(grid=[cute.size(mX, mode=[0]), 1, 1], block=[32, 1, 1], stream=stream)


@functools.cache
def compiled(columns: int):
    rows = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.BFloat16, (rows, columns), stride_order=(1, 0), assumed_align=2)
    y = make_fake_compact_tensor(Float32, (rows,))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(row_sum, x, y, stream, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    compiled(x.shape[1])(x, y)
    return y


def reference_fn(x):
    return x.float().sum(dim=-1)


def get_inputs():
    return [torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16)]
