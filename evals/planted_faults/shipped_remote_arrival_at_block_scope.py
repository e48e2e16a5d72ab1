"""An arrival at another block's mbarrier releases at the scope of its own block alone.

CUTLASS, issue #3643, first part, and #3324 (products of two blocks for sm_100): `mbarrier.arrive.release.cta` tells the
block that waits of no write before it, so what it reads from the other block may be old.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

ARRIVE = "mbarrier.arrive.release.{scope}.shared::cluster.b64 _, [{{$r0}}];"


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    scales = smem.allocate_tensor(cutlass.Float32, cute.make_layout(64), byte_alignment=16)
    full = smem.allocate_array(cutlass.Int64)
    rank = cute.arch.block_idx_in_cluster()
    if tidx == 0:
        cute.arch.mbarrier_init(full, 64)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    scales[tidx] = 2 * x[rank * 64 + tidx]
    signal = cute.arch.map_dsmem_ptr(full, rank ^ 1)
    scope = "cluster" if cutlass.const_expr(corrected) else "cta"
    cute.arch.inline_ptx(ARRIVE.format(scope=scope), read_only_args=[signal])
    cute.arch.mbarrier_wait(full, 0)
    there = cute.arch.map_dsmem_ptr(scales.iterator + tidx, rank ^ 1)
    read = "ld.shared::cluster.f32 {$w0}, [{$r0}];"
    value = cute.arch.inline_ptx(read, write_only_types=[cutlass.Float32], read_only_args=[there])  # fault: race
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
