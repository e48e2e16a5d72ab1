# rule: S4
# expect: wrong_result | crashed
# needs: values
# says: - | S3 | S4 | O8
"""It keeps what it compiled by the shape, though the strides of the first call are fixed in it."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_ptr

THREADS = 64


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(thread, x.shape[1], THREADS):
        y[row, column] = cute.arch.fmax(x[row, column], 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Pointer, y: cute.Pointer, shape: cutlass.Constexpr, strides: cutlass.Constexpr):
    mx = cute.make_tensor(x, cute.make_layout(shape, stride=strides))
    my = cute.make_tensor(y, cute.make_layout(shape, stride=(shape[1], 1)))
    relu_kernel(mx, my).launch(grid=(shape[0], 1, 1), block=(THREADS, 1, 1))


_kept = {}


def pointer(tensor):
    return make_ptr(cutlass.Float32, tensor.data_ptr(), cute.AddressSpace.gmem)


def kernel_fn(x):
    if x.ndim != 2 or x.dtype != torch.float32 or x.numel() == 0:
        raise ValueError("a matrix of float32 is wanted")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    key = tuple(x.shape)
    if key not in _kept:
        _kept[key] = cute.compile(relu_host, pointer(x), pointer(y), tuple(x.shape), x.stride())
    _kept[key](pointer(x), pointer(y))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 96, device="cuda")]
