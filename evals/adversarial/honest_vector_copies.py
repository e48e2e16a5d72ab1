# rule:
# expect: passed
# needs: compile
"""Sixteen bytes a thread by autovec_copy, where the size allows it."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, VECTOR = 128, 4


@cute.kernel
def vector_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    vectors, results = cute.zipped_divide(x, (VECTOR,)), cute.zipped_divide(y, (VECTOR,))
    if index < cute.size(vectors, mode=[1]):
        registers = cute.make_rmem_tensor((VECTOR,), cutlass.Float32)
        cute.autovec_copy(vectors[None, index], registers)
        registers.store(registers.load() * 2.0)
        cute.autovec_copy(registers, results[None, index])


@cute.jit
def vector_host(x: cute.Tensor, y: cute.Tensor):
    grid = (cute.ceil_div(cute.size(x), THREADS * VECTOR), 1, 1)
    vector_kernel(x, y).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int(divisibility=4)
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,), assumed_align=16) for _ in range(2))
    return cute.compile(vector_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return x * 2


def get_inputs():
    return [torch.randn(64, 256, device="cuda")]
