"""A copy: what the variants in `tests/kernel_files.py` change in a line or two."""

import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def copy_kernel(gx: cute.Tensor, gy: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    i = bidx * 128 + tidx
    if i < cute.size(gx):
        gy[i] = gx[i]


@cute.jit
def copy(x: cute.Tensor, y: cute.Tensor):
    copy_kernel(x, y).launch(grid=[8, 1, 1], block=[128, 1, 1])


_compiled = None


def _view(tensor):
    return from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True)


def kernel_fn(x):
    global _compiled
    y = torch.empty_like(x)
    if _compiled is None:
        _compiled = cute.compile(copy, _view(x), _view(y), options="--enable-tvm-ffi")
    _compiled(x, y)
    return y


def reference_fn(x):
    return x.clone()


def get_inputs():
    return [torch.randn(1024, device="cuda")]
