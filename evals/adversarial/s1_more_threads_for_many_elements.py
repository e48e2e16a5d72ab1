# rule: S1
# expect: wrong_result
# needs: values
# says: - | S1
"""From 2^23 elements on it is compiled for 512 threads a row, of which 256 add up."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

SHORT, LONG = 128, 512


@cute.kernel
def sums_kernel(x: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    smem = cutlass.utils.SmemAllocator()
    parts = smem.allocate_tensor(cutlass.Float32, cute.make_layout(LONG // 32))
    total = cutlass.Float32(0.0)
    for column in range(thread, x.shape[1], threads):
        total += x[row, column]
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    if thread % 32 == 0:
        parts[thread // 32] = total
    cute.arch.sync_threads()
    if thread == 0:
        whole = cutlass.Float32(0.0)
        for warp in cutlass.range_constexpr(min(threads, 256) // 32):
            whole += parts[warp]
        y[row] = whole


@cute.jit
def sums_host(x: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr):
    sums_kernel(x, y, threads).launch(grid=(x.shape[0], 1, 1), block=(threads, 1, 1))


@functools.cache
def compiled(threads):
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(sums_host, x, y, threads, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if y.numel():
        compiled(LONG if x.shape[0] * x.shape[1] >= 1 << 23 else SHORT)(x, y)
    return y


def reference_fn(x):
    return x.sum(dim=-1)


def get_inputs():
    return [torch.rand(8192, 2048, device="cuda")]


def get_input_sets():
    yield [torch.rand(3, 257, device="cuda")]
