"""Mbarriers are initialised, the cluster's barrier is relaxed, and no fence is between.

CUTLASS, pull request #2030 (pipelines for sm_90): `fence.mbarrier_init` was left out of the constructors. A relaxed
barrier of the cluster hands nothing on, so another block may arrive at an mbarrier that is not there yet.
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
    taken = smem.allocate_tensor(cutlass.Float32, cute.make_layout(64), byte_alignment=16)
    full = smem.allocate_array(cutlass.Int64)
    rank = cute.arch.block_idx_in_cluster()
    if tidx == 0:
        cute.arch.mbarrier_init(full, 64)
        if cutlass.const_expr(corrected):
            cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    taken[tidx] = 2 * x[rank * 64 + tidx]
    cute.arch.mbarrier_arrive(full, peer_cta_rank_in_cluster=rank ^ 1)  # fault: missing_fence
    cute.arch.mbarrier_wait(full, 0)
    there = cute.arch.map_dsmem_ptr(taken.iterator + tidx, rank ^ 1)
    read = "ld.shared::cluster.f32 {$w0}, [{$r0}];"
    value = cute.arch.inline_ptx(read, write_only_types=[cutlass.Float32], read_only_args=[there])
    y[rank * 64 + tidx] = value
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
    return 2 * torch.cat([x[64:], x[:64]])


def get_inputs():
    return [torch.randn(128, device="cuda")]
