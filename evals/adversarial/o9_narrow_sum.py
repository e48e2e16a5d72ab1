# rule: O9
# expect: wrong_result
# needs: values
# says: O9 | - | O3
"""Adds up a bfloat16 row in bfloat16."""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.memory
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    lane = cute.arch.lane_idx()
    total = cutlass.Float32(0.0)
    for column in range(thread, x.shape[1], THREADS):
        total = (total + x[row, column].to(cutlass.Float32)).to(cutlass.BFloat16).to(cutlass.Float32)
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    partial = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS // 32), 16)
    if lane == 0:
        partial[thread // 32] = total
    cute.arch.sync_threads()
    if thread == 0:
        y[row] = partial[0].to(y.element_type)


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled(dtype):
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(dtype, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(dtype, (rows,))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if y.numel():
        compiled(cutlass.BFloat16)(x, y)
    return y


def reference_fn(x):
    return x.sum(dim=-1)


def get_inputs():
    return [torch.rand(16, 8192, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    yield [torch.rand(3, 77, device="cuda", dtype=torch.bfloat16)]
