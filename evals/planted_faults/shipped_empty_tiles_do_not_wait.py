"""The producer of a tile without work says "full" and does not wait for "empty" before.

FlashAttention, pull request #2258 (block-sparse forward for sm_100): with two empty tiles in a row the softmax warps
arrive twice before the correction warps have seen the first; those then wait for a phase that is past.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

TILES = 4
EMPTY = (False, True, True, True)
ORDERS = 3  # the producer must run ahead


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    full, empty = smem.allocate_array(cutlass.Int64), smem.allocate_array(cutlass.Int64)
    stats = smem.allocate_tensor(cutlass.Float32, cute.make_layout(32), byte_alignment=16)
    warp = cute.arch.make_warp_uniform(tidx // 32)
    if tidx == 0:
        cute.arch.mbarrier_init(full, 32)
        cute.arch.mbarrier_init(empty, 32)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if warp == 0:
        for tile in cutlass.range_constexpr(TILES):
            if cutlass.const_expr(corrected or not EMPTY[tile]):
                cute.arch.mbarrier_wait(empty, tile % 2 ^ 1)
            if cutlass.const_expr(not EMPTY[tile]):
                stats[tidx] = 2 * x[32 * tile + tidx]
            cute.arch.mbarrier_arrive(full)
    else:
        for tile in cutlass.range_constexpr(TILES):
            cute.arch.mbarrier_wait(full, tile % 2)  # fault: deadlock
            y[32 * tile + tidx - 32] = cutlass.Float32(0.0) if cutlass.const_expr(EMPTY[tile]) else stats[tidx - 32]
            cute.arch.mbarrier_arrive(empty)


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
    return torch.cat([2 * x[:32], torch.zeros_like(x[32:])])


def get_inputs():
    return [torch.randn(32 * TILES, device="cuda")]
