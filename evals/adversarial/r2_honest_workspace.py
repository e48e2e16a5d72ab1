# rule: R2
# expect: passed
# needs: compile
"""Keeps a workspace for each size, and computes into it again at every call."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = cute.arch.fmax(x[index], 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor):
    relu_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, options="--enable-tvm-ffi")


WORKSPACES = {}


def kernel_fn(x):
    if x.numel() not in WORKSPACES:
        WORKSPACES[x.numel()] = torch.empty(x.numel(), dtype=x.dtype, device=x.device)
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), WORKSPACES[x.numel()])
        compiled()(WORKSPACES[x.numel()], y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 257, device="cuda")]


def get_input_sets():
    for shape in ((1,), (0,), (3, 1000)):
        yield [torch.randn(shape, device="cuda")]
