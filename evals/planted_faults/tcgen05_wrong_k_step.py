"""Every product takes the first 16 of k."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

ARCH = "sm_100a"
M, N, K = 128, 64, 64


@cute.kernel
def kernel(
    x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, mma: cute.TiledMma, layoutX: cute.ComposedLayout,
    layoutW: cute.ComposedLayout, corrected: cutlass.Constexpr,
):  # fmt: skip
    tidx, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = SmemAllocator()
    sX = smem.allocate_tensor(cutlass.BFloat16, layoutX.outer, byte_alignment=1024, swizzle=layoutX.inner)
    sW = smem.allocate_tensor(cutlass.BFloat16, layoutW.outer, byte_alignment=1024, swizzle=layoutW.inner)
    done = smem.allocate_array(cutlass.Int64)
    held = smem.allocate_array(cutlass.Int32)
    if tidx == 0:
        cute.arch.mbarrier_init(done, 1)
        cute.arch.mbarrier_init_fence()
    if warp == 0:
        cute.arch.alloc_tmem(N, held)
    for i in cutlass.range(M // 2, unroll=1):
        sX[i * 2 + tidx // K, tidx % K] = x[i * 2 + tidx // K, tidx % K]
    for i in cutlass.range(N // 2, unroll=1):
        sW[i * 2 + tidx // K, tidx % K] = w[i * 2 + tidx // K, tidx % K]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    address = cute.arch.retrieve_tmem_ptr(cutlass.Float32, 16, held)
    acc = cute.make_tensor(address, mma.make_fragment_C(mma.partition_shape_C((M, N))).layout)
    rX = mma.make_fragment_A(mma.get_slice(0).partition_A(sX))
    rW = mma.make_fragment_B(mma.get_slice(0).partition_B(sW))
    if warp == 0:
        mma.set(tcgen05.Field.ACCUMULATE, False)
        for k in cutlass.range_constexpr(K // 16):
            step = k if cutlass.const_expr(corrected) else 0
            cute.gemm(mma, acc, rX[None, None, step], rW[None, None, step], acc)  # fault: wrong_result
            mma.set(tcgen05.Field.ACCUMULATE, True)
        with cute.arch.elect_one():
            tcgen05.commit(done)
    cute.arch.mbarrier_wait(done, 0)
    load = tcgen05.make_tmem_copy(
        cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(N)), cutlass.Float32), acc[(None, None), 0, 0]
    )
    tTtC = load.get_slice(tidx).partition_S(acc[(None, None), 0, 0])
    tTgC = load.get_slice(tidx).partition_D(y)
    registers = cute.make_rmem_tensor(tTgC.shape, cutlass.Float32)
    cute.copy(load, tTtC, registers)
    cute.arch.fence_view_async_tmem_load()
    cute.autovec_copy(registers, tTgC)
    cute.arch.sync_threads()
    if warp == 0:
        cute.arch.dealloc_tmem(address, N)


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    atom = tcgen05.make_smem_layout_atom(tcgen05.SmemLayoutAtomKind.K_SW128, cutlass.BFloat16)
    layoutX, layoutW = (cute.tile_to_shape(atom, (rows, K), order=(0, 1)) for rows in (M, N))
    k_major, source = OperandMajorMode.K, tcgen05.OperandSource.SMEM
    op = tcgen05.MmaF16BF16Op(
        cutlass.BFloat16, cutlass.Float32, (M, N, 16), tcgen05.CtaGroup.ONE, source, k_major, k_major
    )
    mma = cute.make_tiled_mma(op)
    kernel(x, w, y, mma, layoutX, layoutW, corrected).launch(grid=[1, 1, 1], block=[128, 1, 1])


_compiled = {}


def run(x, w, corrected):
    y = torch.empty(M, N, device="cuda")
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
    return [torch.randint(-3, 4, (rows, K), device="cuda").bfloat16() for rows in (M, N)]
