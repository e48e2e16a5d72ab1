"""Hopper product of few rows with a large weight, K split over a cluster: x @ weight.T + bias, as decoding wants it.

Shows split-K without a workspace. The weight is read once and decides the time, so every multiprocessor must read: the
blocks of a cluster take a part of K each, and at the end each sends its partial sums to the block that owns those rows,
through distributed shared memory. They are added in a fixed order: results are the same every time. The operands are
swapped: 64 outputs are the 64 rows of a wgmma and the few rows of x its columns, so that 16 rows waste nothing. One
warp loads by TMA into a ring of six stages; two blocks share a multiprocessor, and 60 KB of loads each are in flight.
Prediction, not measured, for bf16 16 x 14336 by 4096 x 14336 on an H200: 118 MB, 28 us at 4.26 TB/s; 64 tiles of
outputs alone would keep 64 of 132 multiprocessors busy.

Arch: sm_90a
Operation: gemm
Features: tma, wgmma, warp_specialization, split_k, cluster, dsmem, epilogue_fusion, bias
Start here when a product has few rows, or too few tiles for all multiprocessors, and a long K.
"""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, Int32, const_expr, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
OUTPUTS, BK = 64, 64  # of a tile: the rows of one wgmma, and a swizzled row of 128 bytes
ROWS = (16, 32)  # of x in a tile: the smaller that holds them all, else several of the larger
STAGES = 6  # of 10 or 12 KB
MATH_THREADS = 128
THREADS = MATH_THREADS + 32  # the last warp loads
SPLITS = (1, 2, 4, 8)  # blocks of a cluster
PAD = 4  # floats between the rows of x in the exchange: the lanes of a warp store to 32 banks


@cute.jit
def store_to_peer(pointer: cute.Pointer, value: Float32, peer: Int32):
    """Store to the same place in the shared memory of another block of the cluster."""
    there = cute.arch.map_dsmem_ptr(pointer, peer)
    cute.arch.inline_ptx("st.shared::cluster.f32 [{$r0}], {$r1};", read_only_args=[there, value])


@cute.kernel
def split_kernel(
    tma_W: cute.CopyAtom,
    mW: cute.Tensor,  # (N, K), coordinates for TMA
    tma_X: cute.CopyAtom,
    mX: cute.Tensor,  # (M, K), the same
    mBias: cute.Tensor,  # (N,)
    mY: cute.Tensor,  # (M, N)
    tiled_mma: cute.TiledMma,
    sW_layout: cute.ComposedLayout,
    sX_layout: cute.ComposedLayout,
    rows: cutlass.Constexpr,
    splits: cutlass.Constexpr,
):
    dtype = mY.element_type
    thread, _, _ = cute.arch.thread_idx()
    block, tile_m, _ = cute.arch.block_idx()
    rank, tile_n = block % splits, block // splits
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = SmemAllocator()
    sW = smem.allocate_tensor(dtype, sW_layout.outer, byte_alignment=1024, swizzle=sW_layout.inner)
    sX = smem.allocate_tensor(dtype, sX_layout.outer, byte_alignment=1024, swizzle=sX_layout.inner)
    # What the blocks of the cluster, this one included, have summed for the rows that this block writes.
    own_rows = const_expr(rows // splits)
    pitch = const_expr(OUTPUTS + PAD)
    parts = cute.make_layout((OUTPUTS, own_rows, splits), stride=(1, pitch, pitch * own_rows))
    sParts = smem.allocate_tensor(Float32, parts, byte_alignment=16)
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, MATH_THREADS // 32),
        tx_count=(OUTPUTS + rows) * BK * dtype.width // 8,
    )
    cute.arch.cluster_arrive_relaxed()  # waited for below: a peer's shared memory exists once the peer has started

    k_tiles = cute.ceil_div(mX.shape[1], BK)
    share = cute.ceil_div(k_tiles, splits)
    first = cutlass.min(rank * share, k_tiles)
    mine = cutlass.min(share, k_tiles - first)  # the last blocks may have fewer, or none
    acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((OUTPUTS, rows)), Float32)  # ((2, 2, rows / 8), 1, 1)
    acc.fill(0.0)
    if warp_index == MATH_THREADS // 32:
        gW = cute.local_tile(mW, (OUTPUTS, BK), (tile_n, None))
        gX = cute.local_tile(mX, (rows, BK), (tile_m, None))
        one = cute.make_layout(1)
        tWsW, tWgW = cpasync.tma_partition(tma_W, 0, one, cute.group_modes(sW, 0, 2), cute.group_modes(gW, 0, 2))
        tXsX, tXgX = cpasync.tma_partition(tma_X, 0, one, cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2))
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for k in cutlass.range(first, first + mine, unroll=1):
            ring.producer_acquire(state)  # waits until the stage is free, and announces its bytes
            barrier = ring.producer_get_barrier(state)
            cute.copy(tma_W, tWgW[None, k], tWsW[None, state.index], tma_bar_ptr=barrier)
            cute.copy(tma_X, tXgX[None, k], tXsX[None, state.index], tma_bar_ptr=barrier)
            state.advance()
        ring.producer_tail(state)
    else:
        thr_mma = tiled_mma.get_slice(0)
        tCrW = tiled_mma.make_fragment_A(thr_mma.partition_A(sW))
        tCrX = tiled_mma.make_fragment_B(thr_mma.partition_B(sX))
        read = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        released = read.clone()
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        for k in cutlass.range(mine, unroll=1):
            ring.consumer_wait(read)
            warpgroup.fence()
            for block_k in range_constexpr(cute.size(tCrW, mode=[2])):
                at = (None, None, block_k, read.index)
                cute.gemm(tiled_mma, acc, tCrW[at], tCrX[at], acc)
            warpgroup.commit_group()
            warpgroup.wait_group(1)  # one group stays in flight; the one before it has read its stage
            if k > 0:
                ring.consumer_release(released)
                released.advance()
            read.advance()
        warpgroup.wait_group(0)
        if mine > 0:
            ring.consumer_release(released)

    cute.arch.cluster_wait()
    if thread < MATH_THREADS:
        place = tiled_mma.get_slice(thread).partition_C(cute.make_identity_tensor((OUTPUTS, rows)))
        for i in range_constexpr(cute.size(acc)):
            output, row = place[i]
            here = cute.crd2idx((output, row % own_rows, rank), parts)
            store_to_peer(sParts.iterator + here, acc[i], row // own_rows)
    cute.arch.cluster_arrive()  # releases the stores …
    cute.arch.cluster_wait()  # … and acquires those of the peers. No one writes later to a block that may be gone

    output = tile_n * OUTPUTS + thread % OUTPUTS
    if thread < MATH_THREADS and output < mY.shape[1]:
        bias = mBias[output].to(Float32)
        for row in cutlass.range(thread // OUTPUTS, own_rows, MATH_THREADS // OUTPUTS, unroll=1):
            total = sParts[thread % OUTPUTS, row, 0]
            for part in range_constexpr(1, splits):
                total += sParts[thread % OUTPUTS, row, part]
            m = tile_m * rows + rank * own_rows + row
            if m < mY.shape[0]:
                mY[m, output] = (total + bias).to(dtype)


def row_major_smem(rows, stages, dtype):
    """Rows of BK elements, swizzled by 128 bytes, as wgmma and TMA know it."""
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, dtype, BK)
    return cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, dtype), (rows, BK, stages), order=(0, 1, 2))


@cute.jit
def split_k(
    mX: cute.Tensor,
    mW: cute.Tensor,
    mBias: cute.Tensor,
    mY: cute.Tensor,
    rows: cutlass.Constexpr,
    splits: cutlass.Constexpr,
    stream,
):
    dtype, major, one = mX.element_type, OperandMajorMode.K, (None, None, 0)
    sW_layout, sX_layout = row_major_smem(OUTPUTS, STAGES, dtype), row_major_smem(rows, STAGES, dtype)
    load = cpasync.CopyBulkTensorTileG2SOp()
    tma_W, tW = cpasync.make_tiled_tma_atom(load, mW, cute.slice_(sW_layout, one), (OUTPUTS, BK))
    tma_X, tX = cpasync.make_tiled_tma_atom(load, mX, cute.slice_(sX_layout, one), (rows, BK))
    wgmma = sm90.make_trivial_tiled_mma(dtype, dtype, major, major, Float32, (1, 1, 1), tiler_mn=(OUTPUTS, rows))
    split_kernel(tma_W, tW, tma_X, tX, mBias, mY, wgmma, sW_layout, sX_layout, rows, splits).launch(
        grid=(cute.ceil_div(mY.shape[1], OUTPUTS) * splits, cute.ceil_div(mY.shape[0], rows), 1),
        block=(THREADS, 1, 1),
        cluster=(splits, 1, 1),
        stream=stream,
    )


@functools.cache
def compiled(dtype: torch.dtype, rows: int, splits: int):
    """One kernel for all M and N; K is a multiple of 8, as TMA wants strides of 16 bytes."""
    m, n, k = cute.sym_int(), cute.sym_int(), cute.sym_int(divisibility=8)

    def fake(*shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=order, assumed_align=16)

    y = make_fake_compact_tensor(DTYPES[dtype], (m, n), stride_order=(1, 0))
    bias = make_fake_compact_tensor(DTYPES[dtype], (n,))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(split_k, fake(m, k), fake(n, k), bias, y, rows, splits, stream, options="--enable-tvm-ffi")


@functools.cache
def multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def splits_of(tiles: int, k_tiles: int, blocks: int) -> int:
    """The parts of K that leave the busiest of `blocks` multiprocessors least to read, the fewest of equals."""
    return min(SPLITS, key=lambda splits: (-(-tiles * splits // blocks) * -(-k_tiles // splits), splits))


def kernel_fn(x, weight, bias):
    (m, k), n = x.shape, weight.shape[0]
    if k % 8 or not k:
        raise ValueError(f"K = {k}: pad x and weight with zeros to a multiple of 8 (TMA wants strides of 16 bytes)")
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    if out.numel():
        rows = ROWS[0] if m <= ROWS[0] else ROWS[1]
        tiles = -(-n // OUTPUTS) * -(-m // rows)
        compiled(x.dtype, rows, splits_of(tiles, -(-k // BK), multiprocessors(x.device)))(x, weight, bias, out)
    return out


def reference_fn(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias)


def get_inputs(m=16, n=4096, k=14336, dtype=torch.bfloat16):
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    weight = torch.randn(n, k, device="cuda", dtype=dtype) * k**-0.5
    return [x, weight, torch.randn(n, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(9, 200, 128)  # two parts, as get_inputs() has
    yield get_inputs(3, 136, 1000)
    yield get_inputs(40, 70, 520, torch.float16)
    yield get_inputs(17, 3, 8)
