"""x @ weight.T by wgmma, operands copied to shared memory by the threads themselves: no TMA, no pipeline."""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

BM, BN, BK, THREADS = 128, 128, 64, 128
DTYPE = cutlass.BFloat16


@cute.kernel
def gemm_kernel(mA, mB, mC, tiled_mma: cute.TiledMma, sA_layout: cute.ComposedLayout, sB_layout: cute.ComposedLayout):
    thread, _, _ = cute.arch.thread_idx()
    m, n, _ = cute.arch.block_idx()
    smem = SmemAllocator()
    sA = smem.allocate_tensor(DTYPE, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(DTYPE, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    gA = cute.local_tile(mA, (BM, BK), (m, None))
    gB = cute.local_tile(mB, (BN, BK), (n, None))
    gC = cute.local_tile(mC, (BM, BN), (m, n))
    thr_mma = tiled_mma.get_slice(thread)
    tCrA = tiled_mma.make_fragment_A(tiled_mma.get_slice(0).partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(tiled_mma.get_slice(0).partition_B(sB))
    acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, BN)), Float32)
    acc.fill(0.0)
    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    for k in cutlass.range(cute.size(gA, mode=[2]), unroll=1):
        for g, s, rows in ((gA, sA, BM), (gB, sB, BN)):
            for i in range_constexpr(rows * BK // 8 // THREADS):
                row, column = (thread + i * THREADS) // (BK // 8), (thread + i * THREADS) % (BK // 8)
                cute.autovec_copy(
                    cute.local_tile(g[None, None, k], (1, 8), (row, column)), cute.local_tile(s, (1, 8), (row, column))
                )
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()
        warpgroup.fence()
        for block_k in range_constexpr(cute.size(tCrA, mode=[2])):
            cute.gemm(tiled_mma, acc, tCrA[None, None, block_k], tCrB[None, None, block_k], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        cute.arch.sync_threads()
    tCgC = thr_mma.partition_C(gC)
    cute.autovec_copy(acc, tCgC)


@cute.jit
def gemm(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, stream):
    major = OperandMajorMode.K
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, DTYPE, BK)
    atom = warpgroup.make_smem_layout_atom(kind, DTYPE)
    sA_layout = cute.tile_to_shape(atom, (BM, BK), order=(0, 1))
    sB_layout = cute.tile_to_shape(atom, (BN, BK), order=(0, 1))
    mma = sm90.make_trivial_tiled_mma(DTYPE, DTYPE, major, major, Float32, (1, 1, 1), tiler_mn=(64, BN))
    grid = (mC.shape[0] // BM, mC.shape[1] // BN, 1)
    gemm_kernel(mA, mB, mC, mma, sA_layout, sB_layout).launch(grid=grid, block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled():
    m, n, k = (cute.sym_int(divisibility=size) for size in (BM, BN, BK))
    tensors = [
        make_fake_compact_tensor(dtype, shape, stride_order=(1, 0), assumed_align=16)
        for dtype, shape in ((DTYPE, (m, k)), (DTYPE, (n, k)), (Float32, (m, n)))
    ]
    return cute.compile(gemm, *tensors, make_fake_stream(use_tvm_ffi_env_stream=True), options="--enable-tvm-ffi")


def kernel_fn(x, weight):
    out = torch.empty(x.shape[0], weight.shape[0], dtype=torch.float32, device=x.device)
    compiled()(x, weight, out)
    return out


def reference_fn(x, weight):
    return x.float() @ weight.float().T


def get_inputs(m=256, n=256, k=256):
    return [torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n)]
