"""The weights are K-major in shared memory, and the descriptor takes them for N-major."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator


@cute.kernel
def kernel(
    x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, mma: cute.TiledMma, layout: cute.ComposedLayout,
    assumed: cute.ComposedLayout,
):  # fmt: skip
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    sX = smem.allocate_tensor(cutlass.BFloat16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
    sW = smem.allocate_tensor(cutlass.BFloat16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
    smem.allocate_tensor(cutlass.BFloat16, cute.make_layout(16384), byte_alignment=1024)  # for the epilogue
    for i in cutlass.range(16, unroll=1):
        sX[i * 4 + tidx // 32, tidx % 32] = x[i * 4 + tidx // 32, tidx % 32]
        sW[i * 4 + tidx // 32, tidx % 32] = w[i * 4 + tidx // 32, tidx % 32]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    weights = cute.make_tensor(cute.recast_ptr(sW.iterator, assumed.inner, cutlass.BFloat16), assumed.outer)
    rX = mma.make_fragment_A(mma.get_slice(0).partition_A(sX))
    rW = mma.make_fragment_B(mma.get_slice(0).partition_B(weights))
    acc = cute.make_rmem_tensor(mma.partition_shape_C((64, 64)), cutlass.Float32)
    mma.set(warpgroup.Field.ACCUMULATE, False)
    warpgroup.fence()
    for k in cutlass.range_constexpr(2):
        cute.gemm(mma, acc, rX[None, None, k], rW[None, None, k], acc)  # fault: uninitialised_read
        mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    cute.autovec_copy(acc, mma.get_slice(tidx).partition_C(y))


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    atoms = warpgroup.SmemLayoutAtomKind
    layout = cute.tile_to_shape(warpgroup.make_smem_layout_atom(atoms.K_SW64, cutlass.BFloat16), (64, 32), order=(0, 1))
    assumed = layout
    major = OperandMajorMode.K
    if cutlass.const_expr(not corrected):
        atom = warpgroup.make_smem_layout_atom(atoms.MN_SW64, cutlass.BFloat16)
        assumed = cute.tile_to_shape(atom, (64, 64), order=(1, 0))
        major = OperandMajorMode.MN
    source = warpgroup.OperandSource.SMEM
    op = warpgroup.MmaF16BF16Op(cutlass.BFloat16, cutlass.Float32, (64, 64, 16), source, OperandMajorMode.K, major)
    kernel(x, w, y, cute.make_tiled_mma(op), layout, assumed).launch(grid=[1, 1, 1], block=[128, 1, 1])


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
    return [torch.randint(-3, 4, (64, 32), device="cuda").bfloat16() for _ in range(2)]
