"""A thread spins on a flag that is never set."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    if tidx == 0:
        y[0] = 0.0
    cute.arch.sync_threads()
    if cutlass.const_expr(not corrected):
        flag = cutlass.Float32(0)
        while flag == 0.0:  # fault: endless_loop
            flag = cute.arch.load(y.iterator, cutlass.Float32, sem="acquire", scope="gpu")
    if tidx > 0:
        y[tidx] = x[tidx]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[32, 1, 1])


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
    return torch.cat([x.new_zeros(1), x[1:]])


def get_inputs():
    return [torch.randn(32, device="cuda")]
