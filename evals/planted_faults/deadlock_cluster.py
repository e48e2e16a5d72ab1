"""One block of a cluster arrives, the other leaves."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    rank = cute.arch.block_idx_in_cluster()
    if cutlass.const_expr(corrected):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    else:
        if rank == 0:
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()  # fault: deadlock
        else:
            cute.arch.cluster_wait()
    y[rank * 64 + tidx] = x[rank * 64 + tidx]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[2, 1, 1], block=[64, 1, 1], cluster=[2, 1, 1])


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
    return [torch.randn(128, device="cuda")]
