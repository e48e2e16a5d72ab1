"""Hopper grouped GEMM, as a mixture of experts wants it: rows sorted by expert, each group times its own weight.

Shows a scheduler over groups whose sizes only the device knows. Each block turns the offsets into prefix sums of tiles
in shared memory, and walks on in them as its tiles come: the host reads nothing and launches the same grid always. One
tensor map serves all experts: rows are shifted in its coordinates, and the weights' map has a third dimension. Tiles
within a group leave by TMA; the last of a group, which reaches into the rows of the next, by predicated stores. The two
blocks of a cluster take neighbouring columns of the same rows, which are loaded once for both (multicast): every group
has as many columns, so that no block idles. The rest is gemm_sm90_bias_gelu: ring, ping-pong, persistent blocks.
Rows behind the last group are zeros.
Prediction, not measured, for bf16 32768 rows in 64 groups, K 1536, N 4096, on an H200: 412 GFLOP, 478 in whole tiles
(half a tile is lost a group, and 3 % of the columns), 670 us at 714 TFLOP/s; its 1.17 GB would take 275 us.

Arch: sm_90a
Operation: grouped_gemm
Features: tma, tma_multicast, wgmma, warp_specialization, pingpong, persistent, cluster, tile_scheduler, moe
Start here when products of unequal sizes share a launch: mixture of experts, ragged batches, one weight a group.
"""

import functools
import itertools

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, Int16, Int32, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
BM, BN, BK = 128, 192, 64  # a tile: 192 accumulators a thread of its warpgroup, near the limit of 240 registers
STAGES = 5  # of 40 KB each: all of the shared memory but 27 KB
CLUSTER = 2  # blocks side by side in N: they need the same rows
EPI_N = 32  # columns of the tile that leave at once
MATH_WARPGROUPS = 2
THREADS = 128 * (1 + MATH_WARPGROUPS)
LOAD_REGISTERS, MATH_REGISTERS = 24, 240  # 128 * 24 + 256 * 240 of the 65536 of a multiprocessor
GROUP = 8  # tiles down before one to the right, within an expert
MOST_EXPERTS = 1024  # whose prefix sums fit beside the ring: 8 KB
EPILOGUE_BARRIER, TURN_BARRIER = 1, 3  # and 2, 4: one a warpgroup; 0 is sync_threads


@cute.jit
def scan(value: Int32, combine: cutlass.Constexpr):
    """`value` of this lane combined with those of the lanes before."""
    lane = cute.arch.lane_idx()
    for step in range_constexpr(5):
        other = cute.arch.shuffle_sync_up(value, 1 << step)
        if lane >= 1 << step:
            value = combine(value, other)
    return value


@cute.jit
def plan(mEnds: cute.Tensor, rows: Int32, sRows: cute.Tensor, sTiles: cute.Tensor):
    """One warp: before each expert, the rows and the tiles in M; the rows behind all ends are one expert more.

    Ends that are wrong reach no other memory: they are held within the rows, and none lies before an earlier one.
    """
    lane, experts = cute.arch.lane_idx(), cute.size(mEnds)
    start, tiles = Int32(0), Int32(0)  # of the next 32 experts
    for base in range(0, experts + 1, 32):
        expert = base + lane
        end = rows
        if expert < experts:
            end = cutlass.min(cutlass.max(mEnds[expert], start), rows)
        end = scan(end, cutlass.max)
        mine = cute.arch.shuffle_sync_up(end, 1)
        mine = mine if lane > 0 else start
        own = (end - mine + (BM - 1)) // BM
        after = tiles + scan(own, lambda a, b: a + b)
        if expert <= experts:
            sRows[expert], sTiles[expert] = mine, after - own
        if expert == experts:
            sRows[expert + 1], sTiles[expert + 1] = end, after
        start, tiles = cute.arch.shuffle_sync(end, 31), cute.arch.shuffle_sync(after, 31)


@cute.jit
def tile_of(index: Int32, expert: Int32, sTiles: cute.Tensor, tiles_n: Int32, rank: Int32):
    """(expert, m, n) of this block's part of the cluster tile `index`, from the expert of an earlier tile on.

    Within an expert: down GROUP tiles, one to the right, …, then the next rows.
    """
    while sTiles[expert + 1] * tiles_n <= index:
        expert += 1
    index, tiles_m = index - sTiles[expert] * tiles_n, sTiles[expert + 1] - sTiles[expert]
    group, within = index // (GROUP * tiles_n), index % (GROUP * tiles_n)
    height = cutlass.min(GROUP, tiles_m - group * GROUP)  # the last group may be lower
    return expert, group * GROUP + within % height, within // height * CLUSTER + rank


def stage_of(count: Int32, flip: int):
    """Where the ring stands after `count` k-tiles; the producer starts with flip=1: all stages are empty."""
    return pipeline.PipelineState(STAGES, count, count % STAGES, ((count // STAGES) & 1) ^ flip)


@cute.kernel
def grouped_kernel(
    tma_A: cute.CopyAtom,
    mA: cute.Tensor,  # (T, K), coordinates for TMA
    tma_B: cute.CopyAtom,
    mB: cute.Tensor,  # (N, K, experts), the same
    tma_C: cute.CopyAtom,
    mC_tma: cute.Tensor,  # (T, N), the same
    mC: cute.Tensor,  # (T, N)
    mEnds: cute.Tensor,  # (experts,): the first row behind each
    tiled_mma: cute.TiledMma,
    epi_mma: cute.TiledMma,
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
    sC_layout: cute.ComposedLayout,
    clusters: cutlass.Constexpr,
):
    dtype = mC.element_type
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_index = cute.arch.make_warp_uniform(thread // 128)  # 0 loads, 1 and 2 do the arithmetic
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    if warp_index == 0:
        for atom in (tma_A, tma_B, tma_C):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sA = smem.allocate_tensor(dtype, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(dtype, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    sC = smem.allocate_tensor(dtype, sC_layout.outer, byte_alignment=1024, swizzle=sC_layout.inner)
    sRows, sTiles = (smem.allocate_tensor(Int32, cute.make_layout(MOST_EXPERTS + 2), byte_alignment=16) for _ in "rt")
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        # A stage is read by the four warps of one warpgroup, here and in the other block: its rows come from both.
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * CLUSTER),
        tx_count=(BM + BN) * BK * dtype.width // 8,
        cta_layout_vmnk=cute.make_layout((1, 1, CLUSTER, 1)),
        defer_sync=True,
    )
    pipeline.pipeline_init_arrive(cluster_shape_mn=(1, CLUSTER), is_relaxed=True)
    if warp_index == 0:
        plan(mEnds, cute.size(mC, mode=[0]), sRows, sTiles)
    cute.arch.sync_threads()

    # Cluster tiles: CLUSTER tiles side by side. This cluster does first, first + clusters, …
    tiles_n, experts = cute.ceil_div(mC.shape[1], CLUSTER * BN), cute.size(mEnds)
    first, tiles = block // CLUSTER, sTiles[experts + 1] * tiles_n
    mine = (tiles - first + clusters - 1) // clusters
    steps = cute.ceil_div(mA.shape[1], BK)
    pipeline.pipeline_init_wait(cluster_shape_mn=(1, CLUSTER))  # the peer's barriers are ready too

    if warpgroup_index == 0:
        cute.arch.setmaxregister_decrease(LOAD_REGISTERS)
        if warp_index == 0:
            one, pair = cute.make_layout(1), cute.make_layout(CLUSTER)
            gB = cute.local_tile(mB, (BN, BK), (None, None, None))  # (BN, BK, tiles in N, k_tiles, experts)
            tBsB, tBgB = cpasync.tma_partition(tma_B, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
            state, expert, both = stage_of(Int32(0), 1), Int32(0), Int16((1 << CLUSTER) - 1)
            for i in cutlass.range(mine, unroll=1):
                expert, m, n = tile_of(first + i * clusters, expert, sTiles, tiles_n, rank)
                # Tiles of an expert begin at its first row. Each block of the cluster loads half of A for both.
                gA = cute.local_tile(cute.domain_offset((sRows[expert] + m * BM, 0), mA), (BM, BK), (0, None))
                tAsA, tAgA = cpasync.tma_partition(
                    tma_A, rank, pair, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2)
                )
                k_tiles = steps if expert < experts else 0  # rows behind all ends are zeros, and the last
                for k in cutlass.range(k_tiles, unroll=1):
                    ring.producer_acquire(state)  # waits until the stage is free, and announces its bytes
                    barrier = ring.producer_get_barrier(state)
                    cute.copy(tma_A, tAgA[None, k], tAsA[None, state.index], tma_bar_ptr=barrier, mcast_mask=both)
                    cute.copy(tma_B, tBgB[None, n, k, expert], tBsB[None, state.index], tma_bar_ptr=barrier)
                    state.advance()
            ring.producer_tail(state)  # the peer's last releases must find this block's barriers alive

    if warpgroup_index > 0:
        cute.arch.setmaxregister_increase(MATH_REGISTERS)
        turn = warpgroup_index - 1
        lane = thread % 128
        thr_mma = tiled_mma.get_slice(0)  # operands belong to the warpgroup: only the accumulators differ by thread
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, BN)), Float32)  # ((2, 2, BN / 8), BM / 64, 1)
        # The accumulators of a 64 x BN wgmma are those of 64 x EPI_N ones side by side.
        shape, stride = ((2, 2, EPI_N // 8), BM // 64, 1, BN // EPI_N), ((1, 2, 4), BN // 2, 0, EPI_N // 2)
        slices = cute.make_tensor(acc.iterator, cute.make_layout(shape, stride=stride))
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
        copy_C = cute.make_tiled_copy_C(stmatrix, epi_mma).get_slice(lane)
        sC_mine = sC[None, None, turn]  # a buffer for each warpgroup
        tDsC = copy_C.partition_D(sC_mine)
        # Rows out of the buffer where a tile is cut off: 16 bytes a thread, EPI_N columns by neighbouring threads.
        wide = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype, num_bits_per_copy=128)
        thread_layout = cute.make_ordered_layout((128 * 8 // EPI_N, EPI_N // 8), order=(1, 0))
        copy_out = cute.make_tiled_copy_tv(wide, thread_layout, cute.make_layout((1, 8))).get_slice(lane)
        tOsC = copy_out.partition_S(sC_mine)
        tOcC = copy_out.partition_S(cute.make_identity_tensor((BM, EPI_N)))
        barrier = pipeline.NamedBarrier(barrier_id=EPILOGUE_BARRIER + turn, num_threads=128)
        # Turns are more than a matter of speed. A wait for a stage looks at one bit of its barrier's phase: a warpgroup
        # that came while the other still waits for the tile before would take an older phase for its own.
        my_turn = pipeline.NamedBarrier(barrier_id=TURN_BARRIER + turn, num_threads=256)
        their_turn = pipeline.NamedBarrier(barrier_id=TURN_BARRIER + 1 - turn, num_threads=256)
        if turn == 1:
            their_turn.arrive()  # the first warpgroup begins

        expert = Int32(0)
        for i in cutlass.range(turn, mine, MATH_WARPGROUPS, unroll=1):
            expert, m, n = tile_of(first + i * clusters, expert, sTiles, tiles_n, rank)
            k_tiles = steps if expert < experts else 0
            read, released = stage_of(i * steps, 0), stage_of(i * steps, 0)  # past the other warpgroup's stages
            acc.fill(0.0)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            my_turn.arrive_and_wait()
            for k in cutlass.range(k_tiles, unroll=1):
                ring.consumer_wait(read)
                warpgroup.fence()
                for block_k in range_constexpr(cute.size(tCrA, mode=[2])):
                    at = (None, None, block_k, read.index)
                    cute.gemm(tiled_mma, acc, tCrA[at], tCrB[at], acc)
                warpgroup.commit_group()
                warpgroup.wait_group(1)  # one group stays in flight; the one before it has read its stage
                if k > 0:
                    ring.consumer_release(released)
                    released.advance()
                read.advance()
            their_turn.arrive()
            warpgroup.wait_group(0)
            if k_tiles > 0:
                ring.consumer_release(released)

            # Epilogue, EPI_N columns at a time. The other warpgroup's wgmma run meanwhile: latencies here cost little.
            row = sRows[expert] + m * BM
            rows = sRows[expert + 1] - row  # of the expert, from the tile's first on
            gC_tma = cute.local_tile(cute.domain_offset((row, 0), mC_tma), (BM, EPI_N), (0, None))
            tSsC, tSgC = cpasync.tma_partition(
                tma_C, 0, cute.make_layout(1), cute.group_modes(sC_mine, 0, 2), cute.group_modes(gC_tma, 0, 2)
            )
            mC_rows = cute.domain_offset((row, 0), mC)
            for j in range_constexpr(BN // EPI_N):
                column = n * (BN // EPI_N) + j
                rD = cute.make_rmem_tensor(slices[None, None, None, j].shape, dtype)
                rD.store(slices[None, None, None, j].load().to(dtype))
                if lane < 32:
                    cute.arch.cp_async_bulk_wait_group(0, read=True)  # the store before has read the buffer
                barrier.arrive_and_wait()
                cute.copy(copy_C, copy_C.retile(rD), tDsC)
                cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by the TMA unit next
                barrier.arrive_and_wait()
                if rows >= BM:
                    if lane < 32:
                        cute.copy(tma_C, tSsC, tSgC[None, column])  # one store a warp, without elect_one
                        cute.arch.cp_async_bulk_commit_group()
                else:
                    tOgC = copy_out.partition_D(cute.local_tile(mC_rows, (BM, EPI_N), (0, column)))
                    for v in range_constexpr(cute.size(tOcC, mode=[1])):
                        at = tOcC[0, v, 0]
                        if at[0] < rows and column * EPI_N + at[1] < mC.shape[1]:  # N is a multiple of 8
                            cute.copy(wide, tOsC[None, v, 0], tOgC[None, v, 0])
        if lane < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader


def row_major_smem(rows, columns, stages, dtype):
    """Tiles with the widest swizzle that the columns allow, as wgmma and TMA know it."""
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, dtype, columns)
    return cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, dtype), (rows, columns, stages), order=(0, 1, 2))


@cute.jit
def grouped(mA: cute.Tensor, mB: cute.Tensor, mEnds: cute.Tensor, mC: cute.Tensor, clusters: cutlass.Constexpr, stream):
    dtype, major, one = mA.element_type, OperandMajorMode.K, (None, None, 0)
    mB = cute.make_tensor(mB.iterator, cute.select(mB.layout, mode=[1, 2, 0]))  # (N, K, experts)
    sA_layout, sB_layout = row_major_smem(BM, BK, STAGES, dtype), row_major_smem(BN, BK, STAGES, dtype)
    sC_layout = row_major_smem(BM, EPI_N, MATH_WARPGROUPS, dtype)
    tma_A, tA = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SMulticastOp(), mA, cute.slice_(sA_layout, one), (BM, BK), num_multicast=CLUSTER
    )
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    tma_B, tB = cpasync.make_tiled_tma_atom(load, mB, cute.slice_(sB_layout, one), (BN, BK))
    tma_C, tC = cpasync.make_tiled_tma_atom(store, mC, cute.slice_(sC_layout, one), (BM, EPI_N))
    mma, epi_mma = (  # of one warpgroup: 64 x n an instruction, both operands K-major in shared memory
        sm90.make_trivial_tiled_mma(dtype, dtype, major, major, Float32, (1, 1, 1), tiler_mn=(64, n))
        for n in (BN, EPI_N)
    )
    grouped_kernel(
        tma_A, tA, tma_B, tB, tma_C, tC, mC, mEnds, mma, epi_mma, sA_layout, sB_layout, sC_layout, clusters
    ).launch(
        grid=(clusters * CLUSTER, 1, 1), block=(THREADS, 1, 1), cluster=(CLUSTER, 1, 1), stream=stream,
    )  # fmt: skip


@functools.cache
def compiled(dtype: torch.dtype, clusters: int):
    """One kernel for all shapes: T is free, N and K are multiples of 8, as TMA wants strides of 16 bytes."""
    t, experts, n, k = (cute.sym_int(divisibility=d) for d in (1, 1, 8, 8))

    def fake(*shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=order, assumed_align=16)

    ends = make_fake_compact_tensor(Int32, (experts,))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    tensors = fake(t, k), fake(experts, n, k), ends, fake(t, n)
    return cute.compile(grouped, *tensors, clusters, stream, options="--enable-tvm-ffi")


@functools.cache
def resident_clusters(device):
    return torch.cuda.get_device_properties(device).multi_processor_count // CLUSTER


def kernel_fn(x, weight, ends):
    """x (T, K) sorted by expert, weight (experts, N, K), ends (experts,) int32 on the device; later rows give zeros."""
    experts, n, k = weight.shape
    if ends.dtype != torch.int32:
        raise TypeError(f"ends must be int32, as torch._grouped_mm wants its offs, not {ends.dtype}: pass ends.int()")
    if experts > MOST_EXPERTS:
        raise ValueError(f"{experts} experts: launch {MOST_EXPERTS} at a time, or raise MOST_EXPERTS")
    if n % 8 or k % 8:
        raise ValueError(f"N = {n} and K = {k} must be multiples of 8 (TMA strides of 16 bytes): pad the weights")
    if not weight.numel():
        return torch.zeros(x.shape[0], n, dtype=x.dtype, device=x.device)
    out = torch.empty(x.shape[0], n, dtype=x.dtype, device=x.device)
    if out.numel():
        compiled(x.dtype, resident_clusters(x.device))(x, weight, ends, out)
    return out


def reference_fn(x, weight, ends):
    starts = [0, *ends.clamp(0, x.shape[0]).cummax(0).values.tolist()]
    out = x.new_zeros(x.shape[0], weight.shape[1])
    for start, end, w in zip(starts, starts[1:], weight):
        out[start:end] = x[start:end] @ w.T
    return out


def get_inputs(sizes=None, n=4096, k=1536, dtype=torch.bfloat16, rows=32768, experts=64, spare=0):
    if sizes is None:
        shares = torch.rand(experts).cumsum(0)  # some experts have many times the rows of others
        ends = (shares * (rows / shares[-1])).round().int().tolist()
    else:
        ends = list(itertools.accumulate(sizes))
    x = torch.randn(ends[-1] + spare, k, device="cuda", dtype=dtype)
    weight = torch.randn(len(ends), n, k, device="cuda", dtype=dtype) * k**-0.5
    return [x, weight, torch.tensor(ends, device="cuda", dtype=torch.int32)]


def get_input_sets():
    yield get_inputs([130, 0, 256, 1, 300, 0], 136, 72, spare=77)
    yield get_inputs([70, 30], 392, 136, torch.float16)
    yield get_inputs([5, 0, 128, 9] * 10, 8, 24)
