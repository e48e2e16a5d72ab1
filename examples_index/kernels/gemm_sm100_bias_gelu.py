"""Blackwell GEMM with a fused epilogue: gelu(x @ weight.T + bias) + residual by tcgen05 and tensor memory.

Verified on the emulated GPU alone (`scripts/verify_kernel.py --arch sm_100a`): no Blackwell GPU has run it here.
Shows what changes from Hopper: accumulators live in tensor memory (TMEM), not in registers, so that one thread issues
the products and any four warps may read them; one warp loads, one multiplies, four write out. In the epilogue a thread
owns a row of the tile, reads its columns of TMEM in slices, and finds bias and residual as vectors of 16 bytes.

Arch: sm_100a
Operation: gemm
Features: tma, tcgen05, tmem, pipeline, warp_specialization, mbarrier, epilogue_fusion, bias, activation, residual
Start here when a matrix product on Blackwell (SM100) needs an epilogue that reads further tensors.
"""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as sm100
import torch
from cutlass import Float32, const_expr, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator, TmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
TILE = (128, 256, 64)  # M, N, K of a block; one tcgen05.mma covers 128 x 256 x 16
BM, BN, BK = TILE
STAGES = 4  # of 48 KB
EPILOGUE_WARPS = 4  # warp i reads the lanes 32 i … 32 i + 31 of TMEM: the hardware allows no others
LOAD_WARP, MMA_WARP = 4, 5
THREADS = 192
EPI_N = 32  # columns that a thread holds at once
VECTOR = 8
TMEM_COLUMNS = 256  # of 512: BN float32 accumulators in each of 128 lanes
TMEM_BARRIER = 1  # 0 is sync_threads


@cute.jit
def gelu_tanh(x: Float32) -> Float32:
    """GELU in its tanh form, as x * sigmoid(2u): accurate where 1 + tanh u cancels."""
    u2 = x * (1.5957691216057308 + 0.07135481282553484 * x * x)  # 2 sqrt(2/pi) (x + 0.044715 x^3)
    return x * cute.arch.rcp_approx(1.0 + cute.math.exp2(u2 * -1.4426950408889634, fastmath=True))


@cute.kernel
def gemm_kernel(
    tma_A: cute.CopyAtom,
    mA: cute.Tensor,  # (M, K), coordinates for TMA
    tma_B: cute.CopyAtom,
    mB: cute.Tensor,  # (N, K), the same
    mBias: cute.Tensor,  # (N,)
    mR: cute.Tensor,  # (M, N), or None
    mC: cute.Tensor,  # (M, N)
    tiled_mma: cute.TiledMma,
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    m, n, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    dtype = mC.element_type
    if warp == LOAD_WARP:
        cpasync.prefetch_descriptor(tma_A)
        cpasync.prefetch_descriptor(tma_B)

    smem = SmemAllocator()
    sA = smem.allocate_tensor(dtype, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(dtype, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    one_thread = pipeline.CooperativeGroup(pipeline.Agent.Thread)
    ring = pipeline.PipelineTmaUmma.create(
        num_stages=STAGES,
        producer_group=one_thread,
        consumer_group=one_thread,  # tcgen05.commit arrives when the products have read the stage
        tx_count=(BM + BN) * BK * dtype.width // 8,
    )
    ready = pipeline.PipelineUmmaAsync.create(
        num_stages=1,
        producer_group=one_thread,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 32 * EPILOGUE_WARPS),
    )
    tmem = TmemAllocator(
        barrier_for_retrieve=pipeline.NamedBarrier(
            barrier_id=TMEM_BARRIER,
            num_threads=32 * (EPILOGUE_WARPS + 1),  # who needs the address: not the loading warp
        )
    )

    # What a block loads and computes. Operands are partitioned for the MMA first: TMA then copies what that wants.
    thr_mma = tiled_mma.get_slice(0)
    gA = thr_mma.partition_A(cute.local_tile(mA, (BM, BK), (m, None)))  # (MMA, 1, BK / 16, k_tiles)
    gB = thr_mma.partition_B(cute.local_tile(mB, (BN, BK), (n, None)))
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(tma_A, 0, one, cute.group_modes(sA, 0, 3), cute.group_modes(gA, 0, 3))
    tBsB, tBgB = cpasync.tma_partition(tma_B, 0, one, cute.group_modes(sB, 0, 3), cute.group_modes(gB, 0, 3))
    k_tiles = cute.size(gA, mode=[3])

    if warp == LOAD_WARP:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for k in cutlass.range(k_tiles, unroll=1):
            ring.producer_acquire(state)
            full = ring.producer_get_barrier(state)
            cute.copy(tma_A, tAgA[None, k], tAsA[None, state.index], tma_bar_ptr=full)
            cute.copy(tma_B, tBgB[None, k], tBsB[None, state.index], tma_bar_ptr=full)
            state.advance()
        ring.producer_tail(state)

    layout = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((BM, BN))).layout  # ((128, 256), 1, 1) of TMEM
    if warp == MMA_WARP:
        tmem.wait_for_alloc()
        tCtC = cute.make_tensor(tmem.retrieve_ptr(Float32), layout)
        tCrA, tCrB = tiled_mma.make_fragment_A(sA), tiled_mma.make_fragment_B(sB)
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
        ready.producer_acquire(done)
        tiled_mma.set(tcgen05.Field.ACCUMULATE, False)  # the first product overwrites what TMEM held
        for _k in cutlass.range(k_tiles, unroll=1):
            ring.consumer_wait(state)
            for block_k in range_constexpr(cute.size(tCrA, mode=[2])):
                at = (None, None, block_k, state.index)
                cute.gemm(tiled_mma, tCtC, tCrA[at], tCrB[at], tCtC)
                tiled_mma.set(tcgen05.Field.ACCUMULATE, True)
            ring.consumer_release(state)
            state.advance()
        ready.producer_commit(done)

    if warp < EPILOGUE_WARPS:
        tmem.allocate(TMEM_COLUMNS)  # by warp 0
        tmem.wait_for_alloc()
        address = tmem.retrieve_ptr(Float32)
        tmem.relinquish_alloc_permit()
        tCtC = cute.make_tensor(address, layout)
        cC = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(mC.shape), (BM, BN), (m, n)))
        # (BM, EPI_N, 1, BN / EPI_N): slices of the accumulators, and the coordinates of their elements
        slices, cSlices = (cute.flat_divide(t[(None, None), 0, 0], (BM, EPI_N)) for t in (tCtC, cC))
        load_atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(EPI_N)), Float32)
        copy_T = tcgen05.make_tmem_copy(load_atom, slices[None, None, 0, 0])
        thr_copy = copy_T.get_slice(thread)
        tTtC, tTcC = thr_copy.partition_S(slices), thr_copy.partition_D(cSlices)  # a thread has a row of each slice
        acc = cute.make_rmem_tensor(tTcC[None, None, None, 0, 0].shape, Float32)
        vectors = cute.make_tensor(acc.iterator, cute.make_layout((VECTOR, EPI_N // VECTOR)))
        rBias, rR, rD = (cute.make_rmem_tensor((VECTOR,), dtype) for _ in range(3))

        ready.consumer_wait(pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1))
        for j in cutlass.range(BN // EPI_N, unroll=1):
            cute.copy(copy_T, tTtC[None, None, None, 0, j], acc)
            cute.arch.fence_view_async_tmem_load()
            coordinates = tTcC[None, None, None, 0, j]
            for v in range_constexpr(EPI_N // VECTOR):
                row, column = coordinates[v * VECTOR]
                if cute.elem_less((row, column), mC.shape):  # N is a multiple of a vector: all of it, or nothing
                    at = column // VECTOR
                    cute.autovec_copy(cute.zipped_divide(mBias, (VECTOR,))[None, at], rBias)
                    for i in range_constexpr(VECTOR):
                        vectors[None, v][i] = gelu_tanh(vectors[None, v][i] + rBias[i].to(Float32))
                    y = vectors[None, v].load()
                    if const_expr(mR is not None):
                        cute.autovec_copy(cute.zipped_divide(mR[row, None], (VECTOR,))[None, at], rR)
                        y = y + rR.load().to(Float32)
                    rD.store(y.to(dtype))
                    cute.autovec_copy(rD, cute.zipped_divide(mC[row, None], (VECTOR,))[None, at])
        pipeline.NamedBarrier(barrier_id=TMEM_BARRIER + 1, num_threads=32 * EPILOGUE_WARPS).arrive_and_wait()
        tmem.free(address)  # after the last read of all four warps


@cute.jit
def gemm(mA: cute.Tensor, mB: cute.Tensor, mBias: cute.Tensor, mR: cute.Tensor, mC: cute.Tensor, stream):
    dtype, major = mA.element_type, OperandMajorMode.K
    op = tcgen05.MmaF16BF16Op(
        dtype, Float32, (BM, BN, 16), tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM, major, major
    )
    tiled_mma = cute.make_tiled_mma(op)
    sA_layout = sm100.make_smem_layout_a(tiled_mma, TILE, dtype, STAGES)
    sB_layout = sm100.make_smem_layout_b(tiled_mma, TILE, dtype, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    one = (None, None, None, 0)
    tma_A, tA = cute.nvgpu.make_tiled_tma_atom_A(load, mA, cute.slice_(sA_layout, one), TILE, tiled_mma)
    tma_B, tB = cute.nvgpu.make_tiled_tma_atom_B(load, mB, cute.slice_(sB_layout, one), TILE, tiled_mma)
    tiles_m, tiles_n = cute.ceil_div(mC.shape, (BM, BN))
    gemm_kernel(tma_A, tA, tma_B, tB, mBias, mR, mC, tiled_mma, sA_layout, sB_layout).launch(
        grid=(tiles_m, tiles_n, 1), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, has_residual: bool):
    """One kernel for all shapes: M is free, N and K are multiples of 8, as TMA wants strides of 16 bytes."""
    m, n, k = cute.sym_int(), cute.sym_int(divisibility=VECTOR), cute.sym_int(divisibility=VECTOR)

    def fake(*shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=order, assumed_align=16)

    residual = fake(m, n) if has_residual else None
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(gemm, fake(m, k), fake(n, k), fake(n), residual, fake(m, n), stream, options="--enable-tvm-ffi")


def kernel_fn(x, weight, bias, residual=None):
    out = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    if out.numel():
        compiled(x.dtype, residual is not None)(x, weight, bias, residual, out)
    return out


def reference_fn(x, weight, bias, residual=None):
    out = torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias), approximate="tanh")
    return out if residual is None else out + residual


def get_inputs(m=4096, n=8192, k=4096, dtype=torch.bfloat16, residual=True):
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    weight = torch.randn(n, k, device="cuda", dtype=dtype) * k**-0.5
    bias = torch.randn(n, device="cuda", dtype=dtype)
    return [x, weight, bias] + ([torch.randn(m, n, device="cuda", dtype=dtype)] if residual else [])


def get_input_sets():
    yield get_inputs(1000, 1096, 200, torch.float16)
    yield get_inputs(1, 8, 8, residual=False)
