# rule: V1
# expect: passed
# needs: values
"""Pointwise Kullback-Leibler divergence, 0 for a target of 0."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def flat_kernel(x: cute.Tensor, target: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        t = target[index]
        safe = cutlass.Float32(1.0) if t == 0.0 else t
        y[index] = t * cute.math.log(safe) - t * x[index]


@cute.jit
def flat_host(x: cute.Tensor, target: cute.Tensor, y: cute.Tensor):
    flat_kernel(x, target, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (length,))
    target = make_fake_compact_tensor(cutlass.Float32, (length,))
    y = make_fake_compact_tensor(cutlass.Float32, (length,))
    return cute.compile(flat_host, x, target, y, options="--enable-tvm-ffi")


def kernel_fn(x, target):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), target.view(-1), y.view(-1))
    return y


def reference_fn(x, target):
    return torch.nn.functional.kl_div(x, target, reduction="none")


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.rand(64, 500, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), torch.rand(2, 33, device="cuda")]
