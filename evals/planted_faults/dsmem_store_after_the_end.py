"""A block writes to the shared memory of its neighbour, which may have ended by then."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    rank = cute.arch.block_idx_in_cluster()
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), byte_alignment=16)
    tile[tidx] = x[rank * THREADS + tidx]
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    peer = cute.arch.map_dsmem_ptr(tile.iterator + (THREADS - 1 - tidx), rank ^ 1)
    value = tile[tidx]
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    cute.arch.inline_ptx("st.shared::cluster.f32 [{$r0}], {$r1};", read_only_args=[peer, value])  # fault: race
    if cutlass.const_expr(corrected):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    y[(rank ^ 1) * THREADS + (THREADS - 1 - tidx)] = value


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[2, 1, 1], block=[THREADS, 1, 1], cluster=[2, 1, 1])


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
    return x.flip(0)


def get_inputs():
    return [torch.randn(512, device="cuda")]
