"""Warps that only arrive run ahead by a tile and arrive again in the same phase.

vLLM, pull request #26026 (CUTLASS MLA for sm_100), and FlashInfer, #4732: nothing stops the warps that compute between
two tiles, so both arrivals may count for one phase, and the warps that load miss one and wait for ever.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

TILES = 2
ORDERS = 3  # the warps that compute must run ahead


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    sums = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((64, TILES)), byte_alignment=16)
    warp = cute.arch.make_warp_uniform(tidx // 32)
    if warp < 2:
        for tile in cutlass.range(TILES, unroll=1):
            sums[tidx, tile] = 2 * x[tile * 64 + tidx]
            if cutlass.const_expr(corrected):
                cute.arch.barrier(barrier_id=2, number_of_threads=128)
            else:
                cute.arch.barrier_arrive(barrier_id=2, number_of_threads=128)  # fault: mismatched_barrier
    else:
        for tile in cutlass.range(TILES, unroll=1):
            cute.arch.barrier(barrier_id=2, number_of_threads=128)
            y[tile * 64 + tidx - 64] = sums[tidx - 64, tile]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[128, 1, 1])


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
    return [torch.randn(128, device="cuda")]
