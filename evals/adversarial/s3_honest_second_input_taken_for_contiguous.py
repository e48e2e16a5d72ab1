# rule: S3
# expect: passed
# needs: compile
"""It reads both inputs by their strides."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 64


@cute.kernel
def add_kernel(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    columns = y.shape[1]
    for column in range(thread, columns, THREADS):
        y[row, column] = x[row, column] + w[row, column]


@cute.jit
def add_host(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor):
    add_kernel(x, w, y).launch(grid=(y.shape[0], 1, 1), block=(THREADS, 1, 1))


def view_of(tensor):
    return from_dlpack(tensor).mark_layout_dynamic()


@functools.cache
def kept(*layouts):
    return {}


def launch(host, *tensors):
    """The compiled object for these types, and for which of the strides are 0 and 1: both are fixed in it."""
    views = [view_of(tensor) for tensor in tensors]
    compiled = kept(*((t.dtype, *(min(s, 2) for s in t.stride())) for t in tensors))
    if host not in compiled:
        compiled[host] = cute.compile(host, *views)
    compiled[host](*views)


def kernel_fn(x, w):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        launch(add_host, x, w, y)
    return y


def reference_fn(x, w):
    return x + w


def get_inputs():
    return [torch.randn(32, 128, device="cuda"), torch.randn(32, 128, device="cuda")]
