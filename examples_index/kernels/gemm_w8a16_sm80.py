"""W8A16 GEMM with mma.sync: (x @ weight.T) * scale + bias, x bfloat16, weight int8 with one float32 scale a column.

Shows how operands of different width meet: the weight stays int8 through global and shared memory, and each thread
converts its fragment to bfloat16 (exactly: 8 bits of significand hold every int8) just before the multiply. `ldmatrix`
cannot split 8-bit data over a 16-bit fragment. But a sum over k may take k in any order that both operands share: lane
t of four takes k = 16 t … 16 t + 15 of a tile of 64, so one 16-byte load of int8 and two of bfloat16 serve four steps
of k. The scale of a column commutes with the sum, and is applied to the float32 accumulators.

Arch: sm_80+
Operation: mixed_input_gemm
Features: dequantization, cp_async, mma_sync, pipeline, swizzle, predication, epilogue_fusion, bias, tvm_ffi
Start here when one operand of a matrix product is stored in fewer bits than the other, on any GPU since Ampere.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import BFloat16, Boolean, Float32, Int8, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

BM, BN, BK = 128, 128, 64  # a block's tile: 128 accumulators a thread and 16 + 8 KB of operands a stage
STAGES = 3  # 72 KB: fits the 99 KB of sm_86, sm_89 and sm_120
WARPS_M, WARPS_N = 2, 2  # each warp owns 64 x 64 of the tile
THREADS = WARPS_M * WARPS_N * 32
VECTOR, VECTOR_B = 8, 16  # bfloat16 and int8 elements of one 16-byte access
GROUP_M = 8  # blocks that run at the same time cover a square of the output, not a strip: L2 serves more of their loads


def swizzled_layout(dtype, *shape):
    """Row-major tiles in which the vectors of 8 rows at one column lie in different banks.

    A swizzle that belongs to a pointer counts in bytes: bits 4 and up choose the 16-byte vector, and are xor-ed with
    the bits from 7 on, which count 128-byte lines.
    """
    width = min(1024 // dtype.width, shape[1])  # 128 bytes are all banks once
    bits = {128: 3, 64: 2}[width * dtype.width // 8]
    atom = cute.make_composed_layout(cute.make_swizzle(bits, 4, 3), 0, cute.make_layout((8, width), stride=(width, 1)))
    return cute.tile_to_shape(atom, shape, order=tuple(range(len(shape))))


def row_major_copy(atom, columns, vector):
    """All threads of the block over a row-major tile, one vector each, neighbours side by side in a row."""
    across = columns // vector
    threads = cute.make_layout((THREADS // across, across), stride=(across, 1))
    return cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, vector)))


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
    mB: cute.Tensor,  # (N, K), int8
    mScale: cute.Tensor,  # (N,), float32
    mBias: cute.Tensor,  # (N,)
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
    sB = smem.allocate_tensor(Int8, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    # The output's tile takes the place of the operands once the mainloop is over.
    sC = cute.make_tensor(cute.recast_ptr(sA.iterator, sC_layout.inner, dtype), sC_layout.outer)

    cached = cpasync.CopyG2SOp(cache_mode=cute.nvgpu.LoadCacheMode.GLOBAL)
    copy_gA = row_major_copy(cute.make_copy_atom(cached, dtype, num_bits_per_copy=128), BK, VECTOR)
    copy_gB = row_major_copy(cute.make_copy_atom(cached, Int8, num_bits_per_copy=128), BK, VECTOR_B)

    # Prologue: all stages but one in flight. Groups are committed even when empty, so that their number tells the time.
    for stage in range_constexpr(STAGES - 1):
        if stage < k_tiles:
            load_tile(copy_gA, gA[None, None, stage], sA[None, None, stage], cA[None, None, stage], mA.shape)
            load_tile(copy_gB, gB[None, None, stage], sB[None, None, stage], cB[None, None, stage], mB.shape)
        cute.arch.cp_async_commit_group()

    thr_mma = tiled_mma.get_slice(thread)
    tCcA = thr_mma.partition_A(cute.make_identity_tensor((BM, BK)))  # ((k pair, row + 8, k + 8), m, k)
    tCcB = thr_mma.partition_B(cute.make_identity_tensor((BN, BK)))  # ((k pair, k + 8), n, k)
    atoms_m, atoms_n = const_expr(cute.size(tCcA, mode=[1])), const_expr(cute.size(tCcB, mode=[1]))
    lane = thread % 4  # of the four that share a row of A and a column of B
    # Fragments of two k-blocks, written as pairs of k in the order in which this lane's vectors hold them.
    rA = cute.make_rmem_tensor(((2, 2, 2), atoms_m, 2), dtype)
    rB = cute.make_rmem_tensor(((2, 2), atoms_n, 2), dtype)
    rA_pairs, rB_pairs = cute.recast_tensor(rA, Int32), cute.recast_tensor(rB, Int32)
    tCrC = tiled_mma.make_fragment_C(thr_mma.partition_C(gC))
    tCrC.fill(0.0)

    for k_tile in cutlass.range(k_tiles, unroll=1):
        cute.arch.cp_async_wait_group(STAGES - 2)  # this thread's part of tile k_tile has arrived …
        cute.arch.sync_threads()  # … everybody's has, and everybody has left the stage that is filled next
        ahead = k_tile + STAGES - 1
        if ahead < k_tiles:
            stage = ahead % STAGES
            load_tile(copy_gA, gA[None, None, ahead], sA[None, None, stage], cA[None, None, ahead], mA.shape)
            load_tile(copy_gB, gB[None, None, ahead], sB[None, None, stage], cB[None, None, ahead], mB.shape)
        cute.arch.cp_async_commit_group()
        vA = cute.zipped_divide(sA[None, None, k_tile % STAGES], (1, VECTOR))
        vB = cute.zipped_divide(sB[None, None, k_tile % STAGES], (1, VECTOR_B))
        r8 = cute.make_rmem_tensor(((VECTOR, 2), atoms_n), Int8)  # (k of a half, halves), n
        for j in range_constexpr(atoms_n):
            cute.autovec_copy(vB[None, (tCcB[(0, 0), j, 0][0], lane)], r8[None, j])
        for half in range_constexpr(2):  # of a lane's 16 k: two k-blocks of the tile's four
            for i in range_constexpr(atoms_m):
                for h in range_constexpr(2):
                    r16 = cute.make_rmem_tensor(VECTOR, dtype)
                    cute.autovec_copy(vA[None, (tCcA[(0, h, 0), i, 0][0], 2 * lane + half)], r16)
                    pairs = cute.recast_tensor(r16, Int32)
                    for p in range_constexpr(4):
                        rA_pairs[(0, h, p % 2), i, p // 2] = pairs[p]
            for j in range_constexpr(atoms_n):
                r16 = cute.make_rmem_tensor(VECTOR, dtype)
                r16.store(r8[(None, half), j].load().to(dtype))  # the DSL has a fast conversion of int8
                pairs = cute.recast_tensor(r16, Int32)
                for p in range_constexpr(4):
                    rB_pairs[(0, p % 2), j, p // 2] = pairs[p]
            for k in range_constexpr(2):
                cute.gemm(tiled_mma, tCrC, rA[None, None, k], rB[None, None, k], tCrC)

    cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()  # the operands' shared memory is free

    # Scale and bias of this thread's columns. Stride 0 makes a matrix of a vector.
    tCcC = thr_mma.partition_C(cC)
    tCrScale = cute.make_rmem_tensor(tCrC[None, 0, None].layout, Float32)  # rows of a thread share their columns
    tCrBias = cute.make_rmem_tensor(tCrC[None, 0, None].layout, Float32)
    for vector, fragment in ((mScale, tCrScale), (mBias, tCrBias)):
        matrix = cute.make_tensor(vector.iterator, cute.make_layout(mC.shape, stride=(0, 1)))
        tCgV = thr_mma.partition_C(cute.local_tile(matrix, (BM, BN), (m, n)))
        fragment.fill(0.0)
        for i in range_constexpr(cute.size(fragment)):
            if tCcC[None, 0, None][i][1] < mC.shape[1]:
                fragment[i] = tCgV[None, 0, None][i].to(Float32)

    tCsC = thr_mma.partition_C(sC)
    for row in range_constexpr(cute.size(tCrC, mode=[1])):  # a row of mma at a time: fewer registers live at once
        tCrD = cute.make_rmem_tensor(tCrC[None, row, None].layout, dtype)
        tCrD.store((tCrC[None, row, None].load() * tCrScale.load() + tCrBias.load()).to(dtype))
        cute.autovec_copy(tCrD, tCsC[None, row, None])
    cute.arch.sync_threads()

    store_atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype, num_bits_per_copy=128)
    copy_C = row_major_copy(store_atom, BN, VECTOR)
    thr_copy = copy_C.get_slice(thread)
    tDsC, tDgC, tDcC = thr_copy.partition_S(sC), thr_copy.partition_D(gC), thr_copy.partition_S(cC)
    for i in range_constexpr(cute.size(tDgC, mode=[1])):
        for j in range_constexpr(cute.size(tDgC, mode=[2])):
            if cute.elem_less(tDcC[0, i, j], mC.shape):
                cute.autovec_copy(tDsC[None, i, j], tDgC[None, i, j])


@cute.jit
def gemm(mA: cute.Tensor, mB: cute.Tensor, mScale: cute.Tensor, mBias: cute.Tensor, mC: cute.Tensor, stream):
    dtype = mA.element_type
    op = warp.MmaF16BF16Op(dtype, Float32, (16, 8, 16))
    tiled_mma = cute.make_tiled_mma(
        op, cute.make_layout((WARPS_M, WARPS_N, 1)), permutation_mnk=(WARPS_M * 16, WARPS_N * 16, 16)
    )
    sA_layout, sB_layout = swizzled_layout(dtype, BM, BK, STAGES), swizzled_layout(Int8, BN, BK, STAGES)
    tiles_m, tiles_n = cute.ceil_div(mC.shape, (BM, BN))
    gemm_kernel(mA, mB, mScale, mBias, mC, tiled_mma, sA_layout, sB_layout, swizzled_layout(dtype, BM, BN)).launch(
        grid=(tiles_m * tiles_n, 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled():
    """One kernel for all shapes: M is free, N is a multiple of 8, K of 16 (a 16-byte vector of the weight)."""
    m, n, k = cute.sym_int(), cute.sym_int(divisibility=VECTOR), cute.sym_int(divisibility=VECTOR_B)

    def fake(dtype, *shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(dtype, shape, stride_order=order, assumed_align=16)

    tensors = fake(BFloat16, m, k), fake(Int8, n, k), fake(Float32, n), fake(BFloat16, n), fake(BFloat16, m, n)
    return cute.compile(gemm, *tensors, make_fake_stream(use_tvm_ffi_env_stream=True), options="--enable-tvm-ffi")


def kernel_fn(x, weight, scale, bias):
    out = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    if out.numel():
        compiled()(x, weight, scale, bias, out)
    return out


def reference_fn(x, weight, scale, bias):
    return ((x.float() @ weight.float().T) * scale + bias.float()).to(x.dtype)


def get_inputs(m=4096, n=2048, k=1024):
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    weight = torch.randint(-128, 128, (n, k), device="cuda", dtype=torch.int8)
    scale = (0.5 + torch.rand(n, device="cuda")) * (k**-0.5 / 64)
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    return [x, weight, scale, bias]


def get_input_sets():
    yield get_inputs(131, 136, 208)
    yield get_inputs(1, 8, 16)
