# rule:
# expect: passed
# needs: compile
"""Compiles from the first tensors that it is given, one kernel for each number of dimensions."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

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


COMPILED = {}


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        pair = [from_dlpack(value.view(-1), enable_tvm_ffi=True).mark_layout_dynamic() for value in (x, y)]
        if "relu" not in COMPILED:
            COMPILED["relu"] = cute.compile(relu_host, *pair, options="--enable-tvm-ffi")
        COMPILED["relu"](x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 257, device="cuda")]


def get_input_sets():
    for shape in ((1,), (0,), (3, 1000)):
        yield [torch.randn(shape, device="cuda")]
