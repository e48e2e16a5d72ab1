"""Consumers ask for more registers than the producers give up: the increase waits for ever."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    warpgroup = cute.arch.make_warp_uniform(tidx // 128)
    if warpgroup == 0:
        cute.arch.setmaxregister_decrease(24 if cutlass.const_expr(corrected) else 120)
    else:
        cute.arch.setmaxregister_increase(240)  # fault: deadlock
        y[tidx - 128] = 2 * x[tidx - 128]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[384, 1, 1], min_blocks_per_mp=1)


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
    return 2 * x


def get_inputs():
    return [torch.randn(256, device="cuda")]
