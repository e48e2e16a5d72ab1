# rule:
# expect: passed
# needs: compile
"""The other calling path: cute tensors by from_dlpack, without TVM-FFI."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor

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
    return cute.compile(relu_host, x, y)


def kernel_fn(x):
    if (
        x.dtype != torch.float32 or not x.is_contiguous()
    ):  # without TVM-FFI nothing compares them with what was compiled
        raise ValueError("a contiguous float32 input is wanted")
    y = torch.empty_like(x)
    if x.numel():
        compiled()(*(from_dlpack(value.view(-1)).mark_layout_dynamic() for value in (x, y)))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 257, device="cuda")]
