"""The leader waits for its own copy and reads the other block's, for which nothing waits.

CUTLASS, issue #3643, second part (products of two blocks for sm_100): each block loads its half of the scale factors
and counts it at its own mbarrier. The leader reads both halves after a wait for its own.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [{$r0}], [{$r1}], {$r2}, [{$r3}];"


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    scales = smem.allocate_tensor(cutlass.Float32, cute.make_layout(64), byte_alignment=128)
    full, ready = smem.allocate_array(cutlass.Int64), smem.allocate_array(cutlass.Int64)
    rank = cute.arch.block_idx_in_cluster()
    if tidx == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init(ready, 64)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    if tidx == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(full, 256)
        here = [scales.iterator, x.iterator + rank * 64, cutlass.Int32(256), full]
        cute.arch.inline_ptx(LOAD, read_only_args=here)
    if rank == 1:
        if cutlass.const_expr(corrected):
            cute.arch.mbarrier_wait(full, 0)
        cute.arch.mbarrier_arrive(ready, peer_cta_rank_in_cluster=0)
    else:
        cute.arch.mbarrier_wait(full, 0)
        cute.arch.mbarrier_wait(ready, 0)
        there = cute.arch.map_dsmem_ptr(scales.iterator + tidx, 1)
        read = "ld.shared::cluster.f32 {$w0}, [{$r0}];"
        value = cute.arch.inline_ptx(read, write_only_types=[cutlass.Float32], read_only_args=[there])  # fault: race
        y[tidx] = scales[tidx] + value
    cute.arch.mbarrier_wait(full, 0)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[2, 1, 1], block=[64, 1, 1], cluster=[2, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty(64, device=x.device)
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
    return x[:64] + x[64:]


def get_inputs():
    return [torch.randn(128, device="cuda")]
