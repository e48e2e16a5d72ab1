"""Vectors of four over a length that is not a multiple of four."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    vectors = cute.make_tensor(x.iterator, cute.make_layout((4, 64), stride=(1, 4)))
    results = cute.make_tensor(y.iterator, cute.make_layout((4, 64), stride=(1, 4)))
    if cutlass.const_expr(corrected):
        if tidx < 63:
            results[(None, tidx)].store(vectors[(None, tidx)].load())
        elif tidx == 63:
            y[252] = x[252]
            y[253] = x[253]
    else:
        results[(None, tidx)].store(vectors[(None, tidx)].load())  # fault: out_of_bounds


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[64, 1, 1])


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
    return x.clone()


def get_inputs():
    return [torch.randn(254, device="cuda")]
