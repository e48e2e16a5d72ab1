"""A warp waits for the first load before it looks whether its block has a tile.

CUTLASS, pull request #2172 (GEMM for sm_90 with beta = 1): the warp that loads C waited for the order of loads outside
of the loop over tiles. In a block without a tile nothing is loaded, so nothing arrives there.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    smem = SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout(32), byte_alignment=16)
    loaded = smem.allocate_array(cutlass.Int64)
    warp = cute.arch.make_warp_uniform(tidx // 32)
    has_work = block < cute.size(x) // 32
    if tidx == 0:
        cute.arch.mbarrier_init(loaded, 32)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if warp == 0:
        if has_work:
            tile[tidx] = x[32 * block + tidx]
            cute.arch.mbarrier_arrive(loaded)
    else:
        if cutlass.const_expr(not corrected):
            cute.arch.mbarrier_wait(loaded, 0)  # fault: deadlock
        if has_work:
            if cutlass.const_expr(corrected):
                cute.arch.mbarrier_wait(loaded, 0)
            y[32 * block + tidx - 32] = 2 * tile[tidx - 32]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[4, 1, 1], block=[64, 1, 1])


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
    return [torch.randn(96, device="cuda")]
