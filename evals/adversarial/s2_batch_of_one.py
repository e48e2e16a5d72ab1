# rule: S2
# expect: wrong_result
# needs: values
# says: - | S2
"""Differences of neighbours in time that run on from one sequence into the next: right for a batch of one."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def one_each_kernel(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < count:
        r, c = i // x.shape[1], i % x.shape[1]
        before = x[r - 1, c] if r > 0 else cutlass.Float32(0.0)
        y[r, c] = x[r, c] - before


@cute.jit
def one_each(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    one_each_kernel(x, y, count).launch(grid=(cute.ceil_div(count, THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    fx = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    fy = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    return cute.compile(one_each, fx, fy, 1, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        compiled()(x.reshape(-1, x.shape[2]), y.view(-1, x.shape[2]), y.numel())
    return y


def reference_fn(x):
    return torch.diff(x, dim=1, prepend=torch.zeros_like(x[:, :1]))


def get_inputs():
    return [torch.randn(1, 64, 48, device="cuda")]


def get_input_sets():
    yield [torch.randn(1, 16, 33, device="cuda")]
