"""The output is one element shorter than the grid assumes."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    if cutlass.const_expr(corrected):
        if tidx < THREADS - 1:
            y[tidx] = x[tidx + 1] - x[tidx]
    else:
        right = cutlass.min(tidx + 1, THREADS - 1)
        y[tidx] = x[right] - x[tidx]  # fault: out_of_bounds


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty(255, device=x.device)
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
    return x.diff()


def get_inputs():
    return [torch.randn(256, device="cuda")]
