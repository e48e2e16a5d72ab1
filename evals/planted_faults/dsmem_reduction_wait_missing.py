"""What a neighbour adds by red.async is read without a wait for the mbarrier that counts its bytes."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

ADD = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s32 [{$r0}], {$r1}, [{$r2}];"


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    taken = smem.allocate_tensor(cutlass.Int32, cute.make_layout(64), byte_alignment=128)
    full = smem.allocate_array(cutlass.Int64)
    rank = cute.arch.block_idx_in_cluster()
    taken[tidx] = tidx
    cute.arch.fence_proxy("async.shared", space="cta")
    if tidx == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(full, 256)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    there, signal = (cute.arch.map_dsmem_ptr(here, rank ^ 1) for here in (taken.iterator + tidx, full))
    cute.arch.inline_ptx(ADD, read_only_args=[there, x[rank * 64 + tidx], signal])
    if cutlass.const_expr(corrected):
        cute.arch.mbarrier_wait(full, 0)
    y[rank * 64 + tidx] = taken[63 - tidx]  # fault: race
    if cutlass.const_expr(not corrected):
        cute.arch.mbarrier_wait(full, 0)
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
    added = torch.arange(64, dtype=torch.int32, device=x.device)
    return torch.cat([(x[64:] + added).flip(0), (x[:64] + added).flip(0)])


def get_inputs():
    return [torch.randint(-99, 99, (128,), dtype=torch.int32, device="cuda")]
