"""A block sends a tile to its neighbour, which may have ended by then."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

PEER = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{$r0}], [{$r1}], {$r2}, [{$r3}];"


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout(256), byte_alignment=128)
    taken = smem.allocate_tensor(cutlass.Float32, cute.make_layout(256), byte_alignment=128)
    full = smem.allocate_array(cutlass.Int64)
    if tidx == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    rank = cute.arch.block_idx_in_cluster()
    for i in cutlass.range_constexpr(4):
        tile[i * 64 + tidx] = x[rank * 256 + i * 64 + tidx]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    if tidx == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(full, 1024)
        there, signal = (cute.arch.map_dsmem_ptr(here, rank ^ 1) for here in (taken.iterator, full))
        here = [there, tile.iterator, cutlass.Int32(1024), signal]
        cute.arch.inline_ptx(PEER, read_only_args=here)  # fault: missing_wait
    if cutlass.const_expr(corrected):
        cute.arch.mbarrier_wait(full, 0)
    for i in cutlass.range_constexpr(4):
        if cutlass.const_expr(corrected):
            y[rank * 256 + i * 64 + tidx] = taken[i * 64 + tidx]
        else:
            y[rank * 256 + i * 64 + tidx] = 0.0
    if cutlass.const_expr(corrected):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()


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
    return torch.cat([x[256:], x[:256]])


def get_inputs():
    return [torch.randn(512, device="cuda")]
