"""The operands of other threads are multiplied without a barrier."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator


@cute.kernel
def kernel(
    x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, mma: cute.TiledMma, layout: cute.ComposedLayout,
    corrected: cutlass.Constexpr,
):  # fmt: skip
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    sX = smem.allocate_tensor(cutlass.BFloat16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
    sW = smem.allocate_tensor(cutlass.BFloat16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
    for i in cutlass.range(32, unroll=1):
        sX[i * 2 + tidx // 64, tidx % 64] = x[i * 2 + tidx // 64, tidx % 64]
        sW[i * 2 + tidx // 64, tidx % 64] = w[i * 2 + tidx // 64, tidx % 64]
    cute.arch.fence_proxy("async.shared", space="cta")
    if cutlass.const_expr(corrected):
        cute.arch.sync_threads()
    rX = mma.make_fragment_A(mma.get_slice(0).partition_A(sX))
    rW = mma.make_fragment_B(mma.get_slice(0).partition_B(sW))
    acc = cute.make_rmem_tensor(mma.partition_shape_C((64, 64)), cutlass.Float32)
    mma.set(warpgroup.Field.ACCUMULATE, False)
    warpgroup.fence()
    for k in cutlass.range_constexpr(4):
        cute.gemm(mma, acc, rX[None, None, k], rW[None, None, k], acc)  # fault: race
        mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    cute.autovec_copy(acc, mma.get_slice(tidx).partition_C(y))


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, cutlass.BFloat16)
    layout = cute.tile_to_shape(atom, (64, 64), order=(0, 1))
    k_major, source = OperandMajorMode.K, warpgroup.OperandSource.SMEM
    op = warpgroup.MmaF16BF16Op(cutlass.BFloat16, cutlass.Float32, (64, 64, 16), source, k_major, k_major)
    kernel(x, w, y, cute.make_tiled_mma(op), layout, corrected).launch(grid=[1, 1, 1], block=[128, 1, 1])


_compiled = {}


def run(x, w, corrected):
    y = torch.empty(64, 64, device="cuda")
    tensors = (x, w, y)
    if corrected not in _compiled:
        views = [from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True) for tensor in tensors]
        _compiled[corrected] = cute.compile(launch, *views, corrected, options="--enable-tvm-ffi")
    _compiled[corrected](*tensors)
    return y


def kernel_fn(x, w):
    return run(x, w, False)


def corrected_fn(x, w):
    return run(x, w, True)


def reference_fn(x, w):
    return x.float() @ w.float().T


def get_inputs():
    return [torch.randint(-3, 4, (64, 64), device="cuda").bfloat16() for _ in range(2)]
