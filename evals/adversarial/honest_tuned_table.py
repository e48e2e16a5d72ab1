# rule:
# expect: passed
# needs: compile
"""Threads a block from a table by size, as tuning left it."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

TABLE = {1 << 12: 64, 1 << 16: 128}  # elements up to: threads


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * threads + thread
    if index < cute.size(x):
        y[index] = cute.arch.fmax(x[index], 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr):
    relu_kernel(x, y, threads).launch(grid=(cute.ceil_div(cute.size(x), threads), 1, 1), block=(threads, 1, 1))


@functools.cache
def compiled(threads):
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, threads, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    threads = next((threads for most, threads in TABLE.items() if x.numel() <= most), 256)
    if x.numel():
        compiled(threads)(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 257, device="cuda")]


def get_input_sets():
    for shape in ((1,), (0,), (3, 1000)):
        yield [torch.randn(shape, device="cuda")]
