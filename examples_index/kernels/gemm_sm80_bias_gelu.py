"""GEMM with mma.sync and a fused epilogue: gelu(x @ weight.T + bias) + residual, the residual optional.

Shows an Ampere mainloop whole: cp.async fills a ring of shared-memory stages ahead of the arithmetic, a swizzle keeps
`ldmatrix` free of bank conflicts, predicates zero-fill what lies beyond the edges. The epilogue works on float32
accumulators: the bias is read as a matrix whose rows are one row, the residual comes in through the shared memory that
the mainloop has left, and the output leaves by the same tile in 16-byte stores.

Arch: sm_80+
Operation: gemm
Features: cp_async, ldmatrix, mma_sync, pipeline, swizzle, predication, epilogue_fusion, bias, activation, residual
Start here when a matrix product needs an epilogue of its own and has to run on any GPU since Ampere.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Boolean, Float32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
BM, BN, BK = 128, 128, 32  # a block's tile: 128 accumulators a thread and 16 KB of operands a stage
STAGES = 4
WARPS_M, WARPS_N = 2, 2  # each warp owns 64 x 64 of the tile
THREADS = WARPS_M * WARPS_N * 32
VECTOR = 8  # 16-bit elements of one 16-byte access
GROUP_M = 8  # blocks that run at the same time cover a square of the output, not a strip: L2 serves more of their loads


@cute.jit
def gelu_tanh(x: Float32) -> Float32:
    """GELU in its tanh form, 0.5 x (1 + tanh u), written as x / (1 + exp(-2u)).

    ex2.approx and rcp.approx are accurate to float32's last bits; tanh.approx is one instruction, but its error of
    2**-11 shows in fp16 where 1 + tanh u nearly cancels.
    """
    u2 = x * (1.5957691216057308 + 0.07135481282553484 * x * x)  # 2 sqrt(2/pi) (x + 0.044715 x^3)
    return x * cute.arch.rcp_approx(1.0 + cute.math.exp2(u2 * -1.4426950408889634, fastmath=True))


def swizzled_layout(*shape):
    """Row-major tiles of 16-bit elements in which the vectors of 8 rows at one column lie in different banks.

    A swizzle that belongs to a pointer counts in bytes: bits 4 and up choose the 16-byte vector, and are xor-ed with
    the bits from 7 on, which count 128-byte lines.
    """
    width = min(64, shape[1])  # 128 bytes are all banks once
    swizzle = cute.make_swizzle({64: 3, 32: 2}[width], 4, 3)
    atom = cute.make_composed_layout(swizzle, 0, cute.make_layout((8, width), stride=(width, 1)))
    return cute.tile_to_shape(atom, shape, order=tuple(range(len(shape))))


def row_major_copy(atom, columns):
    """All threads of the block over a row-major tile, one vector each, neighbours side by side in a row."""
    across = columns // VECTOR
    threads = cute.make_layout((THREADS // across, across), stride=(across, 1))
    return cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, VECTOR)))


@cute.jit
def load_tile(tiled_copy: cute.TiledCopy, gX: cute.Tensor, sX: cute.Tensor, cX: cute.Tensor, shape):
    """cp.async of one tile; vectors whose coordinates in `cX` are not inside `shape` become zeros."""
    thread, _, _ = cute.arch.thread_idx()
    thr_copy = tiled_copy.get_slice(thread)
    tXgX, tXsX, tXcX = thr_copy.partition_S(gX), thr_copy.partition_D(sX), thr_copy.partition_S(cX)
    for m in range_constexpr(cute.size(tXgX, mode=[1])):
        for k in range_constexpr(cute.size(tXgX, mode=[2])):
            pred = cute.make_rmem_tensor((1,), Boolean)
            pred[0] = cute.elem_less(tXcX[0, m, k], shape)  # sizes are multiples of a vector: one test serves it
            cute.copy(tiled_copy, tXgX[None, m, k], tXsX[None, m, k], pred=pred)


def tile_of(block, tiles_m, tiles_n):
    """(m, n) of a block's tile: down GROUP_M tiles, then one to the right, then the next group of rows."""
    group, within = block // (GROUP_M * tiles_n), block % (GROUP_M * tiles_n)
    height = cutlass.min(GROUP_M, tiles_m - group * GROUP_M)  # the last group may be lower
    return group * GROUP_M + within % height, within // height


@cute.kernel
def gemm_kernel(
    mA: cute.Tensor,  # (M, K)
    mB: cute.Tensor,  # (N, K)
    mBias: cute.Tensor,  # (N,)
    mR: cute.Tensor,  # (M, N), or None
    mC: cute.Tensor,  # (M, N)
    tiled_mma: cute.TiledMma,
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
    sC_layout: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tiles_m, tiles_n = cute.ceil_div(mC.shape, (BM, BN))
    m, n = tile_of(block, tiles_m, tiles_n)
    dtype = mA.element_type

    # Global tiles, and beside each the coordinates of its elements: predicates compare those with the shapes.
    gA = cute.local_tile(mA, (BM, BK), (m, None))  # (BM, BK, k_tiles)
    gB = cute.local_tile(mB, (BN, BK), (n, None))
    gC = cute.local_tile(mC, (BM, BN), (m, n))
    cA = cute.local_tile(cute.make_identity_tensor(mA.shape), (BM, BK), (m, None))
    cB = cute.local_tile(cute.make_identity_tensor(mB.shape), (BN, BK), (n, None))
    cC = cute.local_tile(cute.make_identity_tensor(mC.shape), (BM, BN), (m, n))
    k_tiles = cute.size(gA, mode=[2])

    smem = SmemAllocator()
    sA = smem.allocate_tensor(dtype, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(dtype, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    # The output's tile takes the place of the operands once the mainloop is over.
    sC = cute.make_tensor(cute.recast_ptr(sA.iterator, sC_layout.inner, dtype), sC_layout.outer)

    async_atom = cute.make_copy_atom(
        cpasync.CopyG2SOp(cache_mode=cute.nvgpu.LoadCacheMode.GLOBAL), dtype, num_bits_per_copy=128
    )
    copy_AB, copy_R = row_major_copy(async_atom, BK), row_major_copy(async_atom, BN)

    # Prologue: all stages but one in flight. Groups are committed even when empty, so that their number tells the time.
    for stage in range_constexpr(STAGES - 1):
        if stage < k_tiles:
            load_tile(copy_AB, gA[None, None, stage], sA[None, None, stage], cA[None, None, stage], mA.shape)
            load_tile(copy_AB, gB[None, None, stage], sB[None, None, stage], cB[None, None, stage], mB.shape)
        cute.arch.cp_async_commit_group()

    thr_mma = tiled_mma.get_slice(thread)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA[None, None, 0]))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB[None, None, 0]))
    tCrC = tiled_mma.make_fragment_C(thr_mma.partition_C(gC))
    tCrC.fill(0.0)

    # ldmatrix: a warp fetches four 8x8 matrices, already in the register layout that mma.sync wants.
    ldmatrix = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), dtype)
    copy_A, copy_B = cute.make_tiled_copy_A(ldmatrix, tiled_mma), cute.make_tiled_copy_B(ldmatrix, tiled_mma)
    tXsA, tXrA = copy_A.get_slice(thread).partition_S(sA), copy_A.get_slice(thread).retile(tCrA)
    tXsB, tXrB = copy_B.get_slice(thread).partition_S(sB), copy_B.get_slice(thread).retile(tCrB)

    for k_tile in cutlass.range(k_tiles, unroll=1):
        cute.arch.cp_async_wait_group(STAGES - 2)  # this thread's part of tile k_tile has arrived …
        cute.arch.sync_threads()  # … everybody's has, and everybody has left the stage that is filled next
        ahead = k_tile + STAGES - 1
        if ahead < k_tiles:
            stage = ahead % STAGES
            load_tile(copy_AB, gA[None, None, ahead], sA[None, None, stage], cA[None, None, ahead], mA.shape)
            load_tile(copy_AB, gB[None, None, ahead], sB[None, None, stage], cB[None, None, ahead], mB.shape)
        cute.arch.cp_async_commit_group()
        for k in range_constexpr(cute.size(tCrA, mode=[2])):
            cute.copy(copy_A, tXsA[None, None, k, k_tile % STAGES], tXrA[None, None, k])
            cute.copy(copy_B, tXsB[None, None, k, k_tile % STAGES], tXrB[None, None, k])
            cute.gemm(tiled_mma, tCrC, tCrA[None, None, k], tCrB[None, None, k], tCrC)

    cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()  # the operands' shared memory is free
    if const_expr(mR is not None):
        load_tile(copy_R, cute.local_tile(mR, (BM, BN), (m, n)), sC, cC, mC.shape)
        cute.arch.cp_async_commit_group()

    # Bias and activation while the residual is on its way. Stride 0 makes a matrix of the vector.
    mBias_mn = cute.make_tensor(mBias.iterator, cute.make_layout(mC.shape, stride=(0, 1)))
    tCgBias = thr_mma.partition_C(cute.local_tile(mBias_mn, (BM, BN), (m, n)))
    tCcC = thr_mma.partition_C(cC)
    tCrBias = cute.make_rmem_tensor(tCrC[None, 0, None].layout, Float32)  # rows of a thread share their columns
    tCrBias.fill(0.0)
    for i in range_constexpr(cute.size(tCrBias)):
        if tCcC[None, 0, None][i][1] < mC.shape[1]:
            tCrBias[i] = tCgBias[None, 0, None][i].to(Float32)
    for row in range_constexpr(cute.size(tCrC, mode=[1])):
        for i in range_constexpr(cute.size(tCrBias)):
            tCrC[None, row, None][i] = gelu_tanh(tCrC[None, row, None][i] + tCrBias[i])

    tCsC = thr_mma.partition_C(sC)
    if const_expr(mR is not None):
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
    for row in range_constexpr(cute.size(tCrC, mode=[1])):  # a row of mma at a time: fewer registers live at once
        tCrD = cute.make_rmem_tensor(tCrC[None, row, None].layout, dtype)
        value = tCrC[None, row, None].load()
        if const_expr(mR is not None):
            cute.autovec_copy(tCsC[None, row, None], tCrD)
            value = value + tCrD.load().to(Float32)
        tCrD.store(value.to(dtype))
        cute.autovec_copy(tCrD, tCsC[None, row, None])  # each thread overwrites just what it read
    cute.arch.sync_threads()

    store_atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype, num_bits_per_copy=128)
    copy_C = row_major_copy(store_atom, BN)
    thr_copy = copy_C.get_slice(thread)
    tDsC, tDgC, tDcC = thr_copy.partition_S(sC), thr_copy.partition_D(gC), thr_copy.partition_S(cC)
    for i in range_constexpr(cute.size(tDgC, mode=[1])):
        for j in range_constexpr(cute.size(tDgC, mode=[2])):
            if cute.elem_less(tDcC[0, i, j], mC.shape):
                cute.autovec_copy(tDsC[None, i, j], tDgC[None, i, j])


@cute.jit
def gemm(mA: cute.Tensor, mB: cute.Tensor, mBias: cute.Tensor, mR: cute.Tensor, mC: cute.Tensor, stream):
    dtype = mA.element_type
    op = warp.MmaF16BF16Op(dtype, Float32, (16, 8, 16))
    # Each warp takes 16 columns at once, the two mma that one ldmatrix.x4 of B serves.
    tiled_mma = cute.make_tiled_mma(
        op, cute.make_layout((WARPS_M, WARPS_N, 1)), permutation_mnk=(WARPS_M * 16, WARPS_N * 16, 16)
    )
    sA_layout, sB_layout = swizzled_layout(BM, BK, STAGES), swizzled_layout(BN, BK, STAGES)
    tiles_m, tiles_n = cute.ceil_div(mC.shape, (BM, BN))
    gemm_kernel(mA, mB, mBias, mR, mC, tiled_mma, sA_layout, sB_layout, swizzled_layout(BM, BN)).launch(
        grid=(tiles_m * tiles_n, 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, has_residual: bool):
    """One kernel for all shapes: M is free, N and K are multiples of a 16-byte vector."""
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


def get_inputs(m=4096, n=2048, k=1024, dtype=torch.bfloat16, residual=True):
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    weight = torch.randn(n, k, device="cuda", dtype=dtype) * k**-0.5
    bias = torch.randn(n, device="cuda", dtype=dtype)
    return [x, weight, bias] + ([torch.randn(m, n, device="cuda", dtype=dtype)] if residual else [])


def get_input_sets():
    yield get_inputs(131, 136, 72, torch.float16)
    yield get_inputs(1, 8, 8, residual=False)
