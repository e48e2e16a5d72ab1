"""Blackwell GEMM of nvfp4: 4-bit values with an e4m3 scale for 16 of them, which the tensor cores apply themselves.

Verified on the emulated GPU alone (`scripts/verify_kernel.py --arch sm_100a`): no Blackwell GPU has run it here.
Shows the way of the scales. They lie in memory as the hardware wants them: 512 bytes for 128 rows x 4 scales, the order
of cuBLAS and `torch._scaled_mm`. TMA brings them beside the operands, `tcgen05.cp` copies them to tensor memory (32
lanes, repeated for the four warps), and each product of 64 along K is told in which columns its scales are. Copies and
products go through one pipe in order: no barrier is between them. The tensor's own scale is left to the epilogue.
Values come as bytes of two (`float4_e2m1fn_x2.view(torch.uint8)`), recast where the tensor map is made.
Prediction, not measured, for 8192 x 8192 by 8192 x 8192 on a B200: 0.24 ms. Its 1100 GFLOP would take 0.12 ms at
9000 TFLOP/s, but a step loads 54 KB, which takes L2 0.46 us for an SM and the product 0.28 us: pairs of blocks
(gemm_sm100_persistent) would halve the loads of the weight.

Arch: sm_100a
Operation: blockscaled_gemm
Features: tma, tcgen05, tmem, block_scaled, pipeline, warp_specialization, mbarrier, dequantization
Start here when operands have block scales on Blackwell (SM100): nvfp4, and mxfp4 or mxfp8 with another operation.
"""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as sm100
import cutlass.utils.blockscaled_layout as blockscaled
import torch
from cutlass import Float32, pipeline, range_constexpr
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator, TmemAllocator

VALUE, SCALE, OUT = cutlass.Float4E2M1FN, cutlass.Float8E4M3FN, cutlass.BFloat16
SCALES = torch.float8_e4m3fn
BLOCK = 16  # values along K with one scale
ROWS, COLUMNS = 128, 4  # scales that lie together: 512 bytes
TILE = (128, 256, 256)  # M, N, K of a block; one tcgen05.mma covers 128 x 256 x 64
BM, BN, BK = TILE
MMA_K = 64
STAGES = 4  # of 48 KB of values and 6 KB of scales
EPILOGUE_WARPS = 4  # warp i reads the lanes 32 i … 32 i + 31 of TMEM: the hardware allows no others
LOAD_WARP, MMA_WARP = 4, 5
THREADS = 192
EPI_N = 32  # columns that a thread holds at once
VECTOR = 8
TMEM_COLUMNS = 512  # a power of two: 256 for the accumulators, 16 and 32 for the scales of a step
TMEM_BARRIER = 1  # 0 is sync_threads


def parts(atom: cute.CopyAtom, shared: cute.Tensor, tiles: cute.Tensor):
    """What TMA copies in a step: (stages in shared memory, steps along K); a scale once, not for each of its values."""
    shared, tiles = cute.group_modes(shared, 0, 3), cute.group_modes(tiles, 0, 3)
    return (cute.filter_zeros(part) for part in cpasync.tma_partition(atom, 0, cute.make_layout(1), shared, tiles))


def scale_copy(atom: cute.CopyAtom, shared: cute.Tensor, tensor_memory: cute.Tensor):
    """(copy, descriptors of the stages in shared memory, columns of TMEM) of one operand's scales."""
    source, target = cute.filter_zeros(shared), cute.filter_zeros(tensor_memory)
    copy = tcgen05.make_s2t_copy(atom, target)
    part = copy.get_slice(0)
    return copy, tcgen05.get_s2t_smem_desc_tensor(copy, part.partition_S(source)), part.partition_D(target)


@cute.kernel
def gemm_kernel(
    tma_A: cute.CopyAtom,
    mA: cute.Tensor,  # (M, K), coordinates for TMA
    tma_B: cute.CopyAtom,
    mB: cute.Tensor,  # (N, K), the same
    tma_SA: cute.CopyAtom,
    mSA: cute.Tensor,  # (M, K) again: 16 neighbours along K share a scale
    tma_SB: cute.CopyAtom,
    mSB: cute.Tensor,  # (N, K)
    mTensorScale: cute.Tensor,  # (1,)
    mC: cute.Tensor,  # (M, N)
    tiled_mma: cute.TiledMma,
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
    sSA_layout: cute.Layout,
    sSB_layout: cute.Layout,
):
    thread, _, _ = cute.arch.thread_idx()
    m, n, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp == LOAD_WARP:
        for atom in (tma_A, tma_B, tma_SA, tma_SB):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sA = smem.allocate_tensor(VALUE, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(VALUE, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    sSA = smem.allocate_tensor(SCALE, sSA_layout, byte_alignment=128)
    sSB = smem.allocate_tensor(SCALE, sSB_layout, byte_alignment=128)
    one_thread = pipeline.CooperativeGroup(pipeline.Agent.Thread)
    ring = pipeline.PipelineTmaUmma.create(
        num_stages=STAGES,
        producer_group=one_thread,
        consumer_group=one_thread,  # tcgen05.commit arrives when copies and products have read the stage
        tx_count=(BM + BN) * (BK // 2 + BK // BLOCK),
    )
    ready = pipeline.PipelineUmmaAsync.create(
        num_stages=1,
        producer_group=one_thread,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 32 * EPILOGUE_WARPS),
    )
    # Who needs the address: not the loading warp.
    receivers = pipeline.NamedBarrier(barrier_id=TMEM_BARRIER, num_threads=32 * (EPILOGUE_WARPS + 1))
    tmem = TmemAllocator(barrier_for_retrieve=receivers)
    thr_mma = tiled_mma.get_slice(0)
    k_tiles = cute.ceil_div(mA.shape[1], BK)

    if warp == LOAD_WARP:
        tAsA, tAgA = parts(tma_A, sA, thr_mma.partition_A(cute.local_tile(mA, (BM, BK), (m, None))))
        tBsB, tBgB = parts(tma_B, sB, thr_mma.partition_B(cute.local_tile(mB, (BN, BK), (n, None))))
        tAsSA, tAgSA = parts(tma_SA, sSA, thr_mma.partition_A(cute.local_tile(mSA, (BM, BK), (m, None))))
        tBsSB, tBgSB = parts(tma_SB, sSB, thr_mma.partition_B(cute.local_tile(mSB, (BN, BK), (n, None))))
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for k in cutlass.range(k_tiles, unroll=1):
            ring.producer_acquire(state)
            full = ring.producer_get_barrier(state)
            cute.copy(tma_A, tAgA[None, k], tAsA[None, state.index], tma_bar_ptr=full)
            cute.copy(tma_B, tBgB[None, k], tBsB[None, state.index], tma_bar_ptr=full)
            cute.copy(tma_SA, tAgSA[None, k], tAsSA[None, state.index], tma_bar_ptr=full)
            cute.copy(tma_SB, tBgSB[None, k], tBsSB[None, state.index], tma_bar_ptr=full)
            state.advance()
        ring.producer_tail(state)

    layout = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((BM, BN))).layout  # ((128, 256), 1, 1) of TMEM
    if warp == MMA_WARP:
        tmem.wait_for_alloc()
        address = tmem.retrieve_ptr(Float32)
        tCtC = cute.make_tensor(address, layout)
        # The scales of one step lie behind the accumulators: 4 columns for 128 rows and 64 of K.
        one_stage = (None, None, None, 0)
        layout_SA = blockscaled.make_tmem_layout_sfa(tiled_mma, TILE, BLOCK, cute.slice_(sSA_layout, one_stage))
        layout_SB = blockscaled.make_tmem_layout_sfb(tiled_mma, TILE, BLOCK, cute.slice_(sSB_layout, one_stage))
        behind = address + tcgen05.find_tmem_tensor_col_offset(tCtC)
        tCtSA = cute.make_tensor(cute.recast_ptr(behind, dtype=SCALE), layout_SA)
        behind = behind + tcgen05.find_tmem_tensor_col_offset(tCtSA)
        tCtSB = cute.make_tensor(cute.recast_ptr(behind, dtype=SCALE), layout_SB)
        to_tmem = cute.make_copy_atom(tcgen05.Cp4x32x128bOp(tcgen05.CtaGroup.ONE), SCALE)
        copy_SA, from_SA, to_SA = scale_copy(to_tmem, sSA, tCtSA)
        copy_SB, from_SB, to_SB = scale_copy(to_tmem, sSB, tCtSB)

        tCrA, tCrB = tiled_mma.make_fragment_A(sA), tiled_mma.make_fragment_B(sB)
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
        ready.producer_acquire(done)
        tiled_mma.set(tcgen05.Field.ACCUMULATE, False)  # the first product overwrites what TMEM held
        for _k in cutlass.range(k_tiles, unroll=1):
            ring.consumer_wait(state)
            cute.copy(copy_SA, from_SA[None, None, None, None, state.index], to_SA)
            cute.copy(copy_SB, from_SB[None, None, None, None, state.index], to_SB)
            for block_k in range_constexpr(BK // MMA_K):
                tiled_mma.set(tcgen05.Field.SFA, tCtSA[None, None, block_k].iterator)
                tiled_mma.set(tcgen05.Field.SFB, tCtSB[None, None, block_k].iterator)
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
        rD = cute.make_rmem_tensor((VECTOR,), OUT)
        tensor_scale = mTensorScale[0]

        ready.consumer_wait(pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1))
        for j in cutlass.range(BN // EPI_N, unroll=1):
            cute.copy(copy_T, tTtC[None, None, None, 0, j], acc)
            cute.arch.fence_view_async_tmem_load()
            coordinates = tTcC[None, None, None, 0, j]
            for v in range_constexpr(EPI_N // VECTOR):
                row, column = coordinates[v * VECTOR]
                if cute.elem_less((row, column), mC.shape):  # N is a multiple of a vector: all of it, or nothing
                    rD.store((vectors[None, v].load() * tensor_scale).to(OUT))
                    cute.autovec_copy(rD, cute.zipped_divide(mC[row, None], (VECTOR,))[None, column // VECTOR])
        pipeline.NamedBarrier(barrier_id=TMEM_BARRIER + 1, num_threads=32 * EPILOGUE_WARPS).arrive_and_wait()
        tmem.free(address)  # after the last read of all four warps


@cute.jit
def gemm(
    mA: cute.Tensor,
    mB: cute.Tensor,
    mSA: cute.Tensor,
    mSB: cute.Tensor,
    mTensorScale: cute.Tensor,
    mC: cute.Tensor,
    stream,
):
    mA, mB = (cute.recast_tensor(x, VALUE) for x in (mA, mB))
    # (rows, K) of scales, as the hardware wants them: tiles of 512 bytes along K, then along rows
    chunk = blockscaled.BlockScaledBasicChunk(BLOCK).layout
    mSA, mSB = (
        cute.make_tensor(scales.iterator, cute.tile_to_shape(chunk, x.shape, (2, 1)))
        for scales, x in ((mSA, mA), (mSB, mB))
    )
    op = tcgen05.MmaMXF4NVF4Op(SCALE, (BM, BN, MMA_K), tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM)
    tiled_mma = cute.make_tiled_mma(op)
    blocks = cute.tiled_divide(cute.make_layout((1, 1, 1)), (tiled_mma.thr_id.shape,)).shape
    sA_layout = sm100.make_smem_layout_a(tiled_mma, TILE, VALUE, STAGES)
    sB_layout = sm100.make_smem_layout_b(tiled_mma, TILE, VALUE, STAGES)
    sSA_layout = blockscaled.make_smem_layout_sfa(tiled_mma, TILE, BLOCK, STAGES)
    sSB_layout = blockscaled.make_smem_layout_sfb(tiled_mma, TILE, BLOCK, STAGES)
    load, one = cpasync.CopyBulkTensorTileG2SOp(), (None, None, None, 0)
    atom_A, atom_B = cute.nvgpu.make_tiled_tma_atom_A, cute.nvgpu.make_tiled_tma_atom_B
    tma_A, tA = atom_A(load, mA, cute.slice_(sA_layout, one), TILE, tiled_mma, blocks)
    tma_B, tB = atom_B(load, mB, cute.slice_(sB_layout, one), TILE, tiled_mma, blocks)
    pairs = cutlass.Int16  # TMA moves scales two at a time: a box has at most 256 elements a dimension
    tma_SA, tSA = atom_A(load, mSA, cute.slice_(sSA_layout, one), TILE, tiled_mma, blocks, internal_type=pairs)
    tma_SB, tSB = atom_B(load, mSB, cute.slice_(sSB_layout, one), TILE, tiled_mma, blocks, internal_type=pairs)
    gemm_kernel(
        tma_A, tA, tma_B, tB, tma_SA, tSA, tma_SB, tSB, mTensorScale, mC, tiled_mma,
        sA_layout, sB_layout, sSA_layout, sSB_layout,
    ).launch(
        grid=(*cute.ceil_div(mC.shape, (BM, BN)), 1), block=(THREADS, 1, 1), stream=stream,
    )  # fmt: skip


@functools.cache
def compiled():
    """One kernel for all shapes: M is free, K a multiple of 32 (TMA wants strides of 16 bytes), N of 8."""
    m, n, k_bytes = cute.sym_int(), cute.sym_int(divisibility=8), cute.sym_int(divisibility=16)

    def fake(dtype, *shape, align=16):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(dtype, shape, stride_order=order, assumed_align=align)

    values = fake(cutlass.Uint8, m, k_bytes), fake(cutlass.Uint8, n, k_bytes)
    scales = (fake(SCALE, cute.sym_int(divisibility=ROWS), cute.sym_int(divisibility=COLUMNS)) for _ in range(2))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(
        gemm, *values, *scales, fake(Float32, 1, align=4), fake(OUT, m, n), stream, options="--enable-tvm-ffi"
    )


def shape_of_scales(rows, k):
    """Whole tiles of scales."""
    return (-(-rows // ROWS) * ROWS, -(-k // (BLOCK * COLUMNS)) * COLUMNS)


def kernel_fn(x, weight, x_scales, weight_scales, tensor_scale):
    """bf16 (M, N) of uint8 x (M, K / 2) and weight (N, K / 2), two values a byte, the lower four bits first.

    Scales: e4m3 (rows, K / 16), each rounded up to whole tiles, in the tiles' order; the fill is finite.
    `tensor_scale`: float32 (1,).
    """
    (m, k_bytes), n = x.shape, weight.shape[0]
    if k_bytes % 16 or n % VECTOR or not k_bytes:
        raise ValueError(f"K = {2 * k_bytes} must be a multiple of 32 and N = {n} of {VECTOR}: pad with zeros")
    for rows, scales in ((m, x_scales), (n, weight_scales)):
        if scales.shape != (whole := shape_of_scales(rows, 2 * k_bytes)):
            raise ValueError(f"scales of shape {tuple(scales.shape)}, not the {whole} of whole tiles")
    out = torch.empty(m, n, dtype=torch.bfloat16, device=x.device)
    if out.numel():
        compiled()(x, weight, x_scales, weight_scales, tensor_scale, out)
    return out


def numbers(packed, scales):
    """(rows, K) of float32: values times their scales; the instruction ignores the sign of a scale."""
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], device=packed.device).float()
    pairs = packed.long()
    codes = torch.stack([pairs & 15, pairs >> 4], dim=-1).flatten(1)
    values = table[codes & 7] * (1.0 - 2.0 * (codes >> 3))
    rows, k = values.shape
    assert scales.shape == shape_of_scales(rows, k), "scales come in whole tiles"
    tiles = scales.float().abs().reshape(-(-rows // ROWS), -1, 32, ROWS // 32, COLUMNS)
    matrix = tiles.permute(0, 3, 2, 1, 4).reshape(-(-rows // ROWS) * ROWS, -1)  # row = 32 * third + second
    return values * matrix[:rows].repeat_interleave(BLOCK, dim=1)[:, :k]


def reference_fn(x, weight, x_scales, weight_scales, tensor_scale):
    product = numbers(x, x_scales) @ numbers(weight, weight_scales).T
    return (product * tensor_scale.float()).to(torch.bfloat16)


def get_inputs(m=8192, n=8192, k=8192):
    values = [torch.randint(0, 256, (rows, k // 2), device="cuda", dtype=torch.uint8) for rows in (m, n)]
    scales = [(0.25 + torch.rand(shape_of_scales(rows, k), device="cuda")).to(SCALES) for rows in (m, n)]
    return [*values, *scales, torch.full((1,), 0.125 * k**-0.5, device="cuda")]


EMULATED_SIZES = {"m": 256, "n": 264, "k": 1536}  # M, N and K of the scales are those of the values, rounded up


def get_input_sets():
    yield get_inputs(300, 520, 1312)  # the last step of K has 32 values, half a tile of scales
    yield get_inputs(128, 256, 2048)
    yield get_inputs(1, 8, 32)
