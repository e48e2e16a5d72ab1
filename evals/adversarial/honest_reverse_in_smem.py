# rule:
# expect: passed
# needs: compile
"""Reverses blocks of 128 elements through shared memory."""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.memory
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def reverse_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), 16)
    tile[thread] = x[block * THREADS + thread]
    cute.arch.sync_threads()
    y[block * THREADS + thread] = tile[THREADS - 1 - thread]


@cute.jit
def reverse_host(x: cute.Tensor, y: cute.Tensor):
    reverse_kernel(x, y).launch(grid=(cute.size(x) // THREADS, 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(reverse_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return x.view(-1, 128).flip(-1).reshape(x.shape)


def get_inputs():
    return [torch.randn(64, 256, device="cuda")]
