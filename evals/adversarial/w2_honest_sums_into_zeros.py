# rule: W2
# expect: passed
# needs: compile
"""Adds to a tensor of zeros by atomics: without its launches the zeros stay."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def count_kernel(labels: cute.Tensor, counts: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(labels):
        cute.arch.atomic_add((counts.iterator + labels[index]).llvm_ptr, cutlass.Int32(1))


@cute.jit
def count_host(labels: cute.Tensor, counts: cute.Tensor):
    grid = (cute.ceil_div(cute.size(labels), THREADS), 1, 1)
    count_kernel(labels, counts).launch(grid=grid, block=(THREADS, 1, 1))


@functools.cache
def compiled():
    labels = make_fake_compact_tensor(cutlass.Int32, (cute.sym_int(),))
    counts = make_fake_compact_tensor(cutlass.Int32, (64,))
    return cute.compile(count_host, labels, counts, options="--enable-tvm-ffi")


def kernel_fn(labels):
    counts = torch.zeros(64, dtype=torch.int32, device=labels.device)
    if labels.numel():
        compiled()(labels, counts)
    return counts


def reference_fn(labels):
    return torch.zeros(64, dtype=torch.int32, device=labels.device).index_add_(
        0, labels.long(), torch.ones_like(labels)
    )


def get_inputs():
    return [torch.randint(64, (5000,), device="cuda", dtype=torch.int32)]
