# rule:
# expect: passed
# needs: compile
"""Copies rows by an index of 64 bits."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def gather_kernel(table: cute.Tensor, rows: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    for column in range(thread, table.shape[1], THREADS):
        y[block, column] = table[rows[block], column]


@cute.jit
def gather_host(table: cute.Tensor, rows: cute.Tensor, y: cute.Tensor):
    gather_kernel(table, rows, y).launch(grid=(cute.size(rows), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    entries, count, columns = cute.sym_int(), cute.sym_int(), cute.sym_int()
    table = make_fake_compact_tensor(cutlass.Float32, (entries, columns), stride_order=(1, 0))
    rows = make_fake_compact_tensor(cutlass.Int64, (count,))
    y = make_fake_compact_tensor(cutlass.Float32, (count, columns), stride_order=(1, 0))
    return cute.compile(gather_host, table, rows, y, options="--enable-tvm-ffi")


def kernel_fn(table, rows):
    y = torch.empty(rows.shape[0], table.shape[1], dtype=table.dtype, device=table.device)
    if y.numel():
        compiled()(table, rows, y)
    return y


def reference_fn(table, rows):
    return table.index_select(0, rows)


def get_inputs():
    return [torch.randn(50, 96, device="cuda"), torch.randint(50, (77,), device="cuda")]
