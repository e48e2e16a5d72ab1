# rule: V3
# expect: passed
# needs: values
"""Sums of scores that letters choose, in 32 bits."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def one_each_kernel(letters: cute.Tensor, scores: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < count:
        total = cutlass.Int32(0)
        for at in range(letters.shape[0]):
            total += scores[letters[at], i]
        y[i] = total


@cute.jit
def one_each(letters: cute.Tensor, scores: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    one_each_kernel(letters, scores, y, count).launch(grid=(cute.ceil_div(count, THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    fletters = make_fake_compact_tensor(cutlass.Int64, (cute.sym_int(),))
    fscores = make_fake_compact_tensor(cutlass.Int32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    fy = make_fake_compact_tensor(cutlass.Int32, (cute.sym_int(),))
    return cute.compile(one_each, fletters, fscores, fy, 1, options="--enable-tvm-ffi")


def kernel_fn(letters, scores):
    y = torch.empty(scores.shape[1], dtype=torch.int32, device=scores.device)
    compiled()(letters, scores, y, y.numel())
    return y


def reference_fn(letters, scores):
    return scores[letters].sum(0, dtype=torch.int32)


DOMAIN = {"letters": "positive"}


def get_inputs():
    return [torch.randint(4, (512,), device="cuda"), torch.randint(-4, 5, (4, 4), device="cuda", dtype=torch.int32)]
