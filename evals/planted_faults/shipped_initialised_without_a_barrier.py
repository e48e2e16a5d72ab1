"""Threads arrive at an mbarrier that another thread initialises, with no barrier of the block between.

nvFuser, issue #1552 (a test that hung on an H100; pull request #1769): nothing orders the initialisation before the
first arrival. Where an arrival comes first it is lost, and all wait for ever.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout(64), byte_alignment=16)
    filled = smem.allocate_array(cutlass.Int64)
    if tidx == 0:
        cute.arch.mbarrier_init(filled, 64)
    if cutlass.const_expr(corrected):
        cute.arch.sync_threads()
    tile[tidx] = 2 * x[tidx]
    cute.arch.mbarrier_arrive(filled)  # fault: race
    cute.arch.mbarrier_wait(filled, 0)
    y[tidx] = tile[63 - tidx]


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
    return 2 * x.flip(0)


def get_inputs():
    return [torch.randn(64, device="cuda")]
