"""An index of the input points outside of the table."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, index: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    row = index[tidx]
    if cutlass.const_expr(corrected):
        row = cutlass.min(cutlass.max(row, 0), cute.size(x) - 1)
    y[tidx] = x[row]  # fault: out_of_bounds


@cute.jit
def launch(x: cute.Tensor, index: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, index, y, corrected).launch(grid=[1, 1, 1], block=[64, 1, 1])


_compiled = {}


def run(x, index, corrected):
    y = torch.empty(64, device=x.device)
    tensors = (x, index, y)
    if corrected not in _compiled:
        views = [from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True) for tensor in tensors]
        _compiled[corrected] = cute.compile(launch, *views, corrected, options="--enable-tvm-ffi")
    _compiled[corrected](*tensors)
    return y


def kernel_fn(x, index):
    return run(x, index, False)


def corrected_fn(x, index):
    return run(x, index, True)


def reference_fn(x, index):
    return x[index.clamp(0, x.numel() - 1).long()]


def get_inputs():
    return [torch.randn(100, device="cuda"), torch.arange(60, 124, device="cuda", dtype=torch.int32)]
