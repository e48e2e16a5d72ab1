"""Does not compile: the DSL 4.8 takes no bare torch tensor for a parameter that is annotated `cute.Tensor`."""

import cutlass.cute as cute
import torch


@cute.kernel
def copy_kernel(gx: cute.Tensor, gy: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    gy[tidx] = gx[tidx]


@cute.jit
def copy(x: cute.Tensor, y: cute.Tensor):
    copy_kernel(x, y).launch(grid=[1, 1, 1], block=[128, 1, 1])


def kernel_fn(x):
    y = torch.empty_like(x)
    cute.compile(copy, x, y)(x, y)
    return y


def reference_fn(x):
    return x.clone()


def get_inputs():
    return [torch.randn(128, device="cuda")]
