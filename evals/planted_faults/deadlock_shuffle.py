"""Half a warp shuffles with the whole warp in its mask, the other half waits at a barrier."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    value = x[tidx]
    if cutlass.const_expr(corrected):
        value = cute.arch.shuffle_sync_bfly(value, 1)
        cute.arch.sync_threads()
    else:
        if tidx % 32 < 16:
            value = cute.arch.shuffle_sync_bfly(value, 1)  # fault: deadlock
            cute.arch.barrier(barrier_id=1, number_of_threads=64)
        else:
            cute.arch.barrier(barrier_id=2, number_of_threads=64)
    y[tidx] = value


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
    return x.view(-1, 2).flip(1).reshape(-1)


def get_inputs():
    return [torch.randn(64, device="cuda")]
