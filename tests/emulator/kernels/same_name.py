"""Two compilations of one kernel whose mangled names are equal: each launch must run the code that it was made for."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

FACTOR = 2.0


@cute.kernel
def scale_kernel(gx: cute.Tensor, gy: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    gy[tidx] = gx[tidx] * cutlass.Float32(FACTOR)


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor):
    scale_kernel(x, y).launch(grid=[1, 1, 1], block=[64, 1, 1])


def kernel_fn(x):
    global FACTOR
    first, second = torch.empty_like(x), torch.empty_like(x)
    FACTOR = 2.0
    double = cute.compile(scale, from_dlpack(x), from_dlpack(first))
    FACTOR = 3.0
    triple = cute.compile(scale, from_dlpack(x), from_dlpack(first))
    triple(from_dlpack(x), from_dlpack(second))
    double(from_dlpack(x), from_dlpack(first))
    return first, second


def reference_fn(x):
    return x * 2.0, x * 3.0


def get_inputs():
    return [torch.randn(64, device="cuda")]
