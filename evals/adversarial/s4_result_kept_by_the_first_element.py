# rule: S4
# expect: wrong_result
# needs: values
# says: - | S4
"""It returns a copy of its last result where the first and the last element are those of the last call."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, last: cute.Tensor, ends: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index, count = block * THREADS + thread, cute.size(x)
    known = ends[0] == x[0] and ends[1] == x[count - 1] and ends[2] == count.to(cutlass.Float32)
    if index < count:
        y[index] = last[index] if known else cute.arch.fmax(x[index], 0.0, nan=True)


@cute.kernel
def keep_kernel(x: cute.Tensor, y: cute.Tensor, last: cute.Tensor, ends: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index, count = block * THREADS + thread, cute.size(x)
    if index < count:
        last[index] = y[index]
        if index == 0:
            ends[0] = x[0]
            ends[1] = x[count - 1]
            ends[2] = count.to(cutlass.Float32)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, last: cute.Tensor, ends: cute.Tensor):
    grid, block = (cute.ceil_div(cute.size(x), THREADS), 1, 1), (THREADS, 1, 1)
    relu_kernel(x, y, last, ends).launch(grid=grid, block=block)
    keep_kernel(x, y, last, ends).launch(grid=grid, block=block)


@functools.cache
def compiled():
    length, most = cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    last = make_fake_compact_tensor(cutlass.Float32, (most,))
    ends = make_fake_compact_tensor(cutlass.Float32, (3,))
    return cute.compile(relu_host, x, y, last, ends, options="--enable-tvm-ffi")


@functools.cache
def workspace(device):
    return torch.zeros(1 << 20, device=device), torch.zeros(3, device=device)


def kernel_fn(x):
    if x.numel() > 1 << 20:
        raise ValueError("at most 2^20 elements are wanted")
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), y.view(-1), *workspace(x.device))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 200, device="cuda")]
