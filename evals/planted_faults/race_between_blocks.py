"""The tiles of two blocks overlap by one element."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    step = THREADS if cutlass.const_expr(corrected) else THREADS - 1
    y[bidx * step + tidx] = x[bidx * step + tidx] + bidx  # fault: race


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty_like(x)
    tensors = (x, y)
    if corrected not in _compiled:
        views = [from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True) for tensor in tensors]
        _compiled[corrected] = cute.compile(launch, *views, corrected, options="--enable-tvm-ffi")
    _compiled[corrected](*tensors)
    return y


def kernel_fn(x):
    return run(x, False)


def corrected_fn(x):
    return run(x, True)


def reference_fn(x):
    return x + torch.arange(2, device=x.device).repeat_interleave(THREADS)


def get_inputs():
    return [torch.randn(512, device="cuda")]
