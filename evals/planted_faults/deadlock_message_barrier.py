"""An mbarrier that expects two arrivals and gets one."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    barrier = SmemAllocator().allocate_array(cutlass.Int64, 1)
    if tidx == 0:
        cute.arch.mbarrier_init(barrier, 1 if cutlass.const_expr(corrected) else 2)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if tidx == 0:
        cute.arch.mbarrier_arrive(barrier)
    cute.arch.mbarrier_wait(barrier, 0)  # fault: deadlock
    y[tidx] = x[tidx]


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
    return [torch.randn(64, device="cuda")]
