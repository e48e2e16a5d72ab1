"""Hopper linear layer and cross entropy in one pass, the logits never stored: loss and log-sum-exp of x @ weight.T.

Shows a GEMM whose epilogue reduces. A row of a tile lies in four lanes: each takes the maximum and the sum of
exponentials of its 48 logits, two shuffles merge them, and one pair a row and tile is written, 1/96 of the logits in
float32. The lane that owns the target's column writes that logit. A second kernel merges the pairs of a row. Columns
behind the vocabulary arrive as zeros, and are masked in the last tile. The backward pass makes the same product again
with softmax = exp(logit - lse) as its epilogue. The rest is gemm_sm90_bias_gelu: ring, ping-pong, persistent clusters.
Prediction, not measured, for bf16 8192 tokens, 2048 features, 128256 classes on an H200: 4.3 TFLOP, 6.0 ms at 714
TFLOP/s; the pairs are 88 MB with both kernels, 21 us. Logits in bf16 would be 2.1 GB, written and read in 0.99 ms.

Arch: sm_90a
Operation: cross_entropy
Features: tma, tma_multicast, wgmma, warp_specialization, pingpong, persistent, cluster, epilogue_fusion, online_softmax
Start here when the result of a product is only reduced: a loss over logits, a maximum, a norm of its rows.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, Int16, Int32, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
BM, BN, BK = 128, 192, 64  # a tile: 192 accumulators a thread of its warpgroup, near the limit of 240 registers
STAGES = 5  # of 40 KB each
CLUSTER = 2  # blocks side by side in M: they need the same weights
MATH_WARPGROUPS = 2
THREADS = 128 * (1 + MATH_WARPGROUPS)
LOAD_REGISTERS, MATH_REGISTERS = 24, 240  # 128 * 24 + 256 * 240 of the 65536 of a multiprocessor
GROUP = 8  # cluster tiles down before one to the right: L2 serves more of a square
TURN_BARRIER = 1  # and 2: one a warpgroup; 0 is sync_threads
ROWS, PARTS = 32, 8  # of a block of the second kernel: a lane a row, each warp every 8th tile
UNROLL = 4  # pairs that a lane loads before it merges the first
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
LOWEST = -3.0e38  # stands for "nothing seen": -inf would give NaN in -inf - -inf
HIGHEST = 3.0e38  # for a maximum of inf: inf - inf would be NaN, and the log-sum-exp is inf


@cute.jit
def tile_of(index: Int32, tiles_m: Int32, tiles_n: Int32):
    """(m, n) of the cluster tile `index`: down GROUP tiles, one to the right, …, then the next group of rows."""
    group, within = index // (GROUP * tiles_n), index % (GROUP * tiles_n)
    height = cutlass.min(GROUP, tiles_m - group * GROUP)  # the last group may be lower
    return group * GROUP + within % height, within // height


def stage_of(count: Int32, flip: int):
    """Where the ring stands after `count` k-tiles; the producer starts with flip=1: all stages are empty."""
    return pipeline.PipelineState(STAGES, count, count % STAGES, ((count // STAGES) & 1) ^ flip)


@cute.jit
def power(x: Float32):
    """exp(x) by ex2.approx."""
    return cute.math.exp2(x * LOG2_E, fastmath=True)


@cute.jit
def merge(maximum: Float32, total: Float32, other_maximum: Float32, other_total: Float32):
    """(maximum, sum of exp(x - maximum)) of two sets of logits together."""
    highest = cute.arch.fmax(maximum, other_maximum)
    return highest, total * power(maximum - highest) + other_total * power(other_maximum - highest)


@cute.jit
def reduce_rows(acc, coordinates, mTarget, mPairs, mLogit, classes: Int32, tile_n: Int32):
    """The pair of each row of a tile to mPairs[tile_n], and the targets' logits that lie in it to mLogit."""
    lane = cute.arch.lane_idx()
    targets = cute.make_rmem_tensor((2, BM // 64), Int32)
    targets.fill(-1)
    for block_m in range_constexpr(BM // 64):
        for high in range_constexpr(2):
            row = coordinates[(0, high, 0), block_m, 0][0]
            if row < mPairs.shape[1]:
                targets[high, block_m] = Int32(mTarget[row])
    for block_m in range_constexpr(BM // 64):
        for high in range_constexpr(2):
            row, first = coordinates[(0, high, 0), block_m, 0]
            logits = acc[(None, high, None), block_m, 0]  # columns first, first + 1, first + 8, first + 9, …
            if (tile_n + 1) * BN > classes:
                for v in range_constexpr(BN // 8):
                    for odd in range_constexpr(2):
                        if first + 8 * v + odd >= classes:
                            logits[odd, v] = Float32(-math.inf)
            x = logits.load()
            maximum = x.reduce(cute.ReductionOp.MAX, Float32(LOWEST), 0)
            for step in range_constexpr(2):  # the four lanes of a row
                maximum = cute.arch.fmax(maximum, cute.arch.shuffle_sync_bfly(maximum, offset=1 << step))
            maximum = cute.arch.fmin(maximum, Float32(HIGHEST))
            powers = cute.math.exp2((x - maximum) * LOG2_E, fastmath=True)  # NaN and inf come through here
            total = powers.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
            for step in range_constexpr(2):
                total += cute.arch.shuffle_sync_bfly(total, offset=1 << step)
            if row < mPairs.shape[1]:
                if lane % 4 == 0:
                    mPairs[tile_n, row, 0], mPairs[tile_n, row, 1] = maximum, total
                place = targets[high, block_m] - first
                if place >= 0 and place < BN and place % 8 < 2:
                    logit = Float32(0.0)
                    for v in range_constexpr(BN // 8):
                        for odd in range_constexpr(2):
                            logit = logits[odd, v] if place == 8 * v + odd else logit
                    mLogit[row] = logit


@cute.kernel
def product_kernel(
    tma_A: cute.CopyAtom,
    mA: cute.Tensor,  # (tokens, features), coordinates for TMA
    tma_B: cute.CopyAtom,
    mB: cute.Tensor,  # (classes, features), the same
    mTarget: cute.Tensor,  # (tokens,)
    mPairs: cute.Tensor,  # (tiles in N, tokens, 2)
    mLogit: cute.Tensor,  # (tokens,): the logit of each target
    tiled_mma: cute.TiledMma,
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
    clusters: cutlass.Constexpr,
    dtype: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_index = cute.arch.make_warp_uniform(thread // 128)  # 0 loads, 1 and 2 do the arithmetic
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    if warp_index == 0:
        for atom in (tma_A, tma_B):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sA = smem.allocate_tensor(dtype, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(dtype, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        # A stage is read by the four warps of one warpgroup, here and in the other block: its weights come from both.
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * CLUSTER),
        tx_count=(BM + BN) * BK * dtype.width // 8,
        cta_layout_vmnk=cute.make_layout((1, CLUSTER, 1, 1)),
        defer_sync=True,
    )
    pipeline.pipeline_init_arrive(cluster_shape_mn=(CLUSTER, 1), is_relaxed=True)

    # Cluster tiles: CLUSTER tiles on top of each other. This cluster does first, first + clusters, …
    tokens, classes = mA.shape[0], mB.shape[0]
    tiles_m, tiles_n = cute.ceil_div(tokens, CLUSTER * BM), cute.ceil_div(classes, BN)
    first, tiles = block // CLUSTER, tiles_m * tiles_n
    mine = (tiles - first + clusters - 1) // clusters
    k_tiles = cute.ceil_div(mA.shape[1], BK)
    pipeline.pipeline_init_wait(cluster_shape_mn=(CLUSTER, 1))  # the peer's barriers are ready too

    if warpgroup_index == 0:
        cute.arch.setmaxregister_decrease(LOAD_REGISTERS)
        if warp_index == 0:
            gA = cute.local_tile(mA, (BM, BK), (None, None))  # (BM, BK, tiles in M, k_tiles)
            gB = cute.local_tile(mB, (BN, BK), (None, None))
            one, pair = cute.make_layout(1), cute.make_layout(CLUSTER)
            tAsA, tAgA = cpasync.tma_partition(tma_A, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
            # Each block of the cluster loads its part of B and sends it to both.
            tBsB, tBgB = cpasync.tma_partition(
                tma_B, rank, pair, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2)
            )
            state, both = stage_of(Int32(0), 1), Int16((1 << CLUSTER) - 1)
            for i in cutlass.range(mine, unroll=1):
                m, n = tile_of(first + i * clusters, tiles_m, tiles_n)
                m = m * CLUSTER + rank
                for k in cutlass.range(k_tiles, unroll=1):
                    ring.producer_acquire(state)  # waits until the stage is free, and announces its bytes
                    barrier = ring.producer_get_barrier(state)
                    cute.copy(tma_A, tAgA[None, m, k], tAsA[None, state.index], tma_bar_ptr=barrier)
                    cute.copy(tma_B, tBgB[None, n, k], tBsB[None, state.index], tma_bar_ptr=barrier, mcast_mask=both)
                    state.advance()
            ring.producer_tail(state)  # the peer's last releases must find this block's barriers alive

    if warpgroup_index > 0:
        cute.arch.setmaxregister_increase(MATH_REGISTERS)
        turn = warpgroup_index - 1
        thr_mma = tiled_mma.get_slice(0)  # operands belong to the warpgroup: only the accumulators differ by thread
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, BN)), Float32)  # ((2, 2, BN / 8), BM / 64, 1)
        cC = cute.make_identity_tensor((tokens, classes))
        # Turns are more than a matter of speed. A wait for a stage looks at one bit of its barrier's phase: a warpgroup
        # that came while the other still waits for the tile before would take an older phase for its own.
        my_turn = pipeline.NamedBarrier(barrier_id=TURN_BARRIER + turn, num_threads=256)
        their_turn = pipeline.NamedBarrier(barrier_id=TURN_BARRIER + 1 - turn, num_threads=256)
        if turn == 1:
            their_turn.arrive()  # the first warpgroup begins

        for i in cutlass.range(turn, mine, MATH_WARPGROUPS, unroll=1):
            m, n = tile_of(first + i * clusters, tiles_m, tiles_n)
            m = m * CLUSTER + rank
            read, released = stage_of(i * k_tiles, 0), stage_of(i * k_tiles, 0)  # past the other warpgroup's stages
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
            ring.consumer_release(released)
            coordinates = tiled_mma.get_slice(thread % 128).partition_C(cute.local_tile(cC, (BM, BN), (m, n)))
            reduce_rows(acc, coordinates, mTarget, mPairs, mLogit, classes, n)  # beside the other warpgroup's wgmma


@cute.kernel
def merge_kernel(mPairs, mLogit, mTarget, mLoss, mLse, classes: Int32, ignore: Int32):
    """A lane a row: each warp merges every PARTS-th pair of it, the first warp the warps' pairs."""
    block, _, _ = cute.arch.block_idx()
    lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
    sPairs = SmemAllocator().allocate_tensor(Float32, cute.make_layout((ROWS, PARTS, 2)), byte_alignment=16)
    row, tiles, tokens = block * ROWS + lane, mPairs.shape[0], mPairs.shape[1]
    maximum, total = Float32(LOWEST), Float32(0.0)
    r = cute.make_rmem_tensor((UNROLL, 2), Float32)
    for base in cutlass.range(warp, tiles, PARTS * UNROLL, unroll=1):
        r[None, 0].fill(LOWEST)
        r[None, 1].fill(0.0)
        for u in range_constexpr(UNROLL):
            if base + u * PARTS < tiles and row < tokens:
                r[u, 0], r[u, 1] = mPairs[base + u * PARTS, row, 0], mPairs[base + u * PARTS, row, 1]
        for u in range_constexpr(UNROLL):
            maximum, total = merge(maximum, total, r[u, 0], r[u, 1])
    sPairs[lane, warp, 0], sPairs[lane, warp, 1] = maximum, total
    cute.arch.sync_threads()
    if warp == 0 and row < tokens:
        for other in range_constexpr(1, PARTS):
            maximum, total = merge(maximum, total, sPairs[lane, other, 0], sPairs[lane, other, 1])
        log = cute.math.log2(total, fastmath=True) * LN_2
        target, loss = Int32(mTarget[row]), Float32(0.0)
        if target != ignore:
            loss = Float32(math.nan)  # a target that is not a class: PyTorch stops the program
            if target >= 0 and target < classes:
                loss = log + (maximum - mLogit[row])
                if total == Float32(math.inf):  # PyTorch's log-softmax subtracts inf from inf
                    loss = Float32(math.nan)
        mLoss[row], mLse[row] = loss, log + maximum


def row_major_smem(rows, columns, stages, dtype):
    """Tiles with the widest swizzle that the columns allow, as wgmma and TMA know it."""
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, dtype, columns)
    return cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, dtype), (rows, columns, stages), order=(0, 1, 2))


@cute.jit
def linear_cross_entropy(
    mA, mB, mTarget, mPairs, mLogit, mLoss, mLse, ignore: Int32, clusters: cutlass.Constexpr, stream
):
    dtype, major, one = mA.element_type, OperandMajorMode.K, (None, None, 0)
    sA_layout, sB_layout = row_major_smem(BM, BK, STAGES, dtype), row_major_smem(BN, BK, STAGES, dtype)
    tma_A, tA = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(), mA, cute.slice_(sA_layout, one), (BM, BK)
    )
    tma_B, tB = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SMulticastOp(), mB, cute.slice_(sB_layout, one), (BN, BK), num_multicast=CLUSTER
    )
    wgmma = sm90.make_trivial_tiled_mma(dtype, dtype, major, major, Float32, (1, 1, 1), tiler_mn=(64, BN))
    product_kernel(
        tma_A, tA, tma_B, tB, mTarget, mPairs, mLogit, wgmma, sA_layout, sB_layout, clusters, dtype
    ).launch(
        grid=(clusters * CLUSTER, 1, 1), block=(THREADS, 1, 1), cluster=(CLUSTER, 1, 1), stream=stream,
    )  # fmt: skip
    merge_kernel(mPairs, mLogit, mTarget, mLoss, mLse, mB.shape[0], ignore).launch(
        grid=(cute.ceil_div(mA.shape[0], ROWS), 1, 1), block=(32 * PARTS, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, clusters: int):
    """One kernel for all numbers of tokens and classes; features are a multiple of 8: TMA wants strides of 16 bytes."""
    tokens, classes, tiles = cute.sym_int(), cute.sym_int(), cute.sym_int()
    features = cute.sym_int(divisibility=8)

    def fake(element, *shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(element, shape, stride_order=order, assumed_align=16)

    target = make_fake_compact_tensor(cutlass.Int64, (tokens,))
    logit, loss, lse = (make_fake_compact_tensor(Float32, (tokens,)) for _ in range(3))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    x, weight = fake(DTYPES[dtype], tokens, features), fake(DTYPES[dtype], classes, features)
    tensors = (x, weight, target, fake(Float32, tiles, tokens, 2), logit, loss, lse)
    return cute.compile(linear_cross_entropy, *tensors, Int32(0), clusters, stream, options="--enable-tvm-ffi")


@functools.cache
def resident_clusters(device):
    return torch.cuda.get_device_properties(device).multi_processor_count // CLUSTER


def kernel_fn(x, weight, target, ignore):
    """Loss and log-sum-exp in float32 for x (…, features), weight (classes, features), target (…) int64."""
    classes, features = weight.shape
    if not classes or not features:
        raise ValueError(f"{classes} classes of {features} features: both must be at least 1")
    if features % 8:
        raise ValueError(
            f"{features} features: pad x and weight with zeros to a multiple of 8 (TMA strides of 16 bytes)"
        )
    loss, lse, logit = (torch.empty(target.shape, dtype=torch.float32, device=x.device) for _ in range(3))
    if target.numel():
        pairs = torch.empty(-(-classes // BN), target.numel(), 2, dtype=torch.float32, device=x.device)
        rows = (target, logit, loss, lse)
        target, logit, flat_loss, flat_lse = (t.view(-1) for t in rows)
        x = x.view(-1, features)
        kernel = compiled(x.dtype, resident_clusters(x.device))
        kernel(x, weight, target, pairs, logit, flat_loss, flat_lse, ignore)
    return loss, lse


def reference_fn(x, weight, target, ignore):
    logits = torch.nn.functional.linear(x.float(), weight.float())
    rows = logits.flatten(0, -2)
    loss = torch.nn.functional.cross_entropy(rows, target.flatten(), ignore_index=ignore, reduction="none")
    return loss.view(target.shape), logits.logsumexp(-1)


def get_inputs(tokens=8192, features=2048, classes=128256, dtype=torch.bfloat16):
    x = torch.randn(tokens, features, device="cuda", dtype=dtype)
    weight = torch.randn(classes, features, device="cuda", dtype=dtype) * features**-0.5
    target = torch.randint(classes, (tokens,), device="cuda")
    target[::5] = -100
    return [x, weight, target, -100]


def get_input_sets():
    yield get_inputs(300, 136, 500)
    yield get_inputs(140, 72, 1000, torch.float16)
    yield get_inputs(1, 8, 1)
