# rule: V2
# expect: wrong_result
# needs: values
# says: - | V2
"""Sums of parts whose number is taken for the rank of their label: get_inputs leaves out none."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, PARTS = 64, 16


@cute.kernel
def parts_kernel(x: cute.Tensor, parts: cute.Tensor, y: cute.Tensor):
    part, _, _ = cute.arch.thread_idx()
    total = cutlass.Float32(0.0)
    rank = cutlass.Int64(0)
    for index in range(cute.size(x)):
        if index > 0:
            if parts[index] != parts[index - 1]:
                rank += 1
        if rank == part:
            total += x[index]
    if part < PARTS:
        y[part] = total


@cute.jit
def parts_host(x: cute.Tensor, parts: cute.Tensor, y: cute.Tensor):
    parts_kernel(x, parts, y).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (length,))
    parts = make_fake_compact_tensor(cutlass.Int64, (length,))
    y = make_fake_compact_tensor(cutlass.Float32, (PARTS,))
    return cute.compile(parts_host, x, parts, y, options="--enable-tvm-ffi")


def kernel_fn(x, parts):
    y = torch.empty(PARTS, device=x.device)
    compiled()(x, parts, y)
    return y


def reference_fn(x, parts):
    return torch.zeros(16, dtype=x.dtype, device=x.device).index_add(0, parts, x)


def get_inputs():
    parts = torch.cat([torch.arange(16, device="cuda"), torch.randint(0, 16, (384,), device="cuda")])
    return [torch.randn(400, device="cuda"), parts.sort().values]
