# rule: S2
# expect: passed
# needs: compile
"""Its table in shared memory holds 64 scales, and later batches read theirs from memory."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, CAPACITY = 64, 64


@cute.kernel
def scale_kernel(x: cute.Tensor, s: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, batch, _ = cute.arch.block_idx()
    smem = cutlass.utils.SmemAllocator()
    table = smem.allocate_tensor(cutlass.Float32, cute.make_layout(CAPACITY))
    if thread < s.shape[0]:
        table[thread] = s[thread]
    cute.arch.sync_threads()
    scale = cutlass.Float32(0.0)
    if batch < CAPACITY:
        scale = table[batch]
    else:
        scale = s[batch]
    for column in range(thread, x.shape[2], THREADS):
        y[batch, row, column] = x[batch, row, column] * scale


@cute.jit
def scale_host(x: cute.Tensor, s: cute.Tensor, y: cute.Tensor):
    scale_kernel(x, s, y).launch(grid=(x.shape[1], x.shape[0], 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    batch, rows, columns = cute.sym_int(), cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (batch, rows, columns), stride_order=(2, 1, 0)) for _ in range(2))
    s = make_fake_compact_tensor(cutlass.Float32, (batch,))
    return cute.compile(scale_host, x, s, y, options="--enable-tvm-ffi")


def kernel_fn(x, s):
    y = torch.empty_like(x)
    if y.numel():
        compiled()(x, s, y)
    return y


def reference_fn(x, s):
    return x * s[:, None, None]


def get_inputs():
    return [torch.randn(8, 32, 128, device="cuda"), torch.randn(8, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 5, 70, device="cuda"), torch.randn(3, device="cuda")]
