"""All threads add to one element of the output with a plain load and store."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    if tidx == 0:
        y[0] = 0.0
    cute.arch.sync_threads()
    if cutlass.const_expr(corrected):
        cute.arch.atomic_add(y.iterator, x[tidx])
    else:
        y[0] = y[0] + x[tidx]  # fault: race


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty(1, device=x.device, dtype=x.dtype)
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
    return x.sum().reshape(1)


def get_inputs():
    return [torch.randint(-9, 9, (256,), device="cuda").float()]
