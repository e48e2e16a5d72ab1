# rule: V3
# expect: passed
# needs: values
"""Counts in 32 bits."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, VALUES = 128, 16


@cute.kernel
def count_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    value, _, _ = cute.arch.block_idx()
    count = cutlass.Int32(0)
    for index in range(thread, cute.size(x), THREADS):
        if x[index] == value:
            count += 1
    memory = cutlass.utils.SmemAllocator()
    counts = memory.allocate_tensor(cutlass.Int32, cute.make_layout(THREADS // 32))
    count = cute.arch.warp_reduction(count, lambda a, b: a + b)
    if thread % 32 == 0:
        counts[thread // 32] = count
    cute.arch.sync_threads()
    if thread == 0:
        total = counts[0] + counts[1] + counts[2] + counts[3]
        y[value] = cutlass.Int64(total)


@cute.jit
def count_host(x: cute.Tensor, y: cute.Tensor):
    count_kernel(x, y).launch(grid=(VALUES, 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Int64, (length,))
    y = make_fake_compact_tensor(cutlass.Int64, (VALUES,))
    return cute.compile(count_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.zeros(VALUES, dtype=torch.int64, device=x.device)
    if x.numel():
        compiled()(x.view(-1), y)
    return y


def reference_fn(x):
    return (x == torch.arange(16, device=x.device)[:, None]).sum(1)


def get_inputs():
    return [torch.randint(0, 16, (1 << 17,), device="cuda")]
