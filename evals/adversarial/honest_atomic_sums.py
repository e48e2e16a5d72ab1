# rule:
# expect: passed
# needs: compile
"""Column sums by float atomics: the order differs from run to run, the result hardly."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def sums_kernel(x: cute.Tensor, sums: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(thread, x.shape[1], THREADS):
        cute.arch.atomic_add((sums.iterator + column).llvm_ptr, x[row, column])


@cute.jit
def sums_host(x: cute.Tensor, sums: cute.Tensor):
    sums_kernel(x, sums).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    sums = make_fake_compact_tensor(cutlass.Float32, (columns,))
    return cute.compile(sums_host, x, sums, options="--enable-tvm-ffi")


def kernel_fn(x):
    sums = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
    if x.numel():
        compiled()(x, sums)
    return sums


def reference_fn(x):
    return x.sum(dim=0)


def get_inputs():
    return [torch.randn(100, 257, device="cuda")]
