# rule: S2
# expect: passed
# needs: values
"""Causal scores whose diagonal ends at the last query and the last key."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def one_each_kernel(q: cute.Tensor, k: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < count:
        r, c = i // k.shape[0], i % k.shape[0]
        total = cutlass.Float32(0.0)
        for d in range(q.shape[1]):
            total += q[r, d] * k[c, d]
        y[r, c] = total if c <= r + k.shape[0] - q.shape[0] else cutlass.Float32(float("-inf"))


@cute.jit
def one_each(q: cute.Tensor, k: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    one_each_kernel(q, k, y, count).launch(grid=(cute.ceil_div(count, THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    fq = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    fk = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    fy = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    return cute.compile(one_each, fq, fk, fy, 1, options="--enable-tvm-ffi")


def kernel_fn(q, k):
    y = torch.empty(q.shape[0], k.shape[0], dtype=q.dtype, device=q.device)
    if y.numel():
        compiled()(q, k, y, y.numel())
    return y


def reference_fn(q, k):
    scores = q @ k.T
    seen = torch.ones_like(scores, dtype=torch.bool).tril(k.shape[0] - q.shape[0])
    return scores.masked_fill(~seen, float("-inf"))


def get_inputs():
    return [torch.randn(64, 32, device="cuda"), torch.randn(64, 32, device="cuda")]


def get_input_sets():
    yield [torch.randn(16, 32, device="cuda"), torch.randn(16, 32, device="cuda")]
