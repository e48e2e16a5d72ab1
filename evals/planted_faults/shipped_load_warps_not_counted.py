"""A named barrier is asked for two warps where more than one warp loads.

QuACK, pull request #146 (GEMM for sm_100): the barrier that lets the epilogue's loads begin counted one load warp and
itself. With several load warps their arrivals end its phases alone, and the warp that waits may wait for ever.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

LOAD_WARPS = 2
ORDERS = 3  # what the waiting warp meets depends on who comes first


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(32 * LOAD_WARPS), byte_alignment=16)
    warp = cute.arch.make_warp_uniform(tidx // 32)
    threads = 32 * (LOAD_WARPS + 1 if cutlass.const_expr(corrected) else 2)
    if warp < LOAD_WARPS:
        tile[tidx] = x[tidx]
        cute.arch.barrier_arrive(barrier_id=3, number_of_threads=threads)  # fault: mismatched_barrier
    else:
        cute.arch.barrier(barrier_id=3, number_of_threads=threads)
        for i in cutlass.range_constexpr(LOAD_WARPS):
            y[32 * i + tidx % 32] = 2 * tile[32 * i + tidx % 32]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[32 * (LOAD_WARPS + 1), 1, 1])


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
    return [torch.randn(64, device="cuda")]
