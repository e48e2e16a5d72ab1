"""Hopper convolution of images, channels last, by TMA's im2col mode and wgmma: relu(conv2d(x, weight) + bias).

Shows a left operand that TMA gathers. A tensor map in im2col mode knows the window: a copy asks for 64 channels of 128
output pixels in a row and for one tap, and the copy engine walks over rows and images by itself, in steps of the
stride. What lies in the padding, behind the last channel or behind the last image arrives as zeros, so that the main
loop is that of a plain product over (channels, taps right, taps down): one warp loads, two warpgroups multiply 64
pixels each. The map wants small bounds (corners of -128 to 127), and one kernel is compiled for each window. The
arithmetic is gemm_sm90_bias_gelu; conv2d_implicit_gemm does the same with cp.async for any architecture.
bf16 32 x 56 x 56 x 256, 3 x 3 taps, 256 outputs on an H100: 177 us, torch.compile 191. Predicted were 118 GFLOP,
0.21 ms: six waves of blocks of 30 us each for their products at 655 TFLOP/s, and 4 us before and after, which
nothing hides.

Arch: sm_90a
Operation: convolution
Features: tma, tma_store, wgmma, warp_specialization, pipeline, stmatrix, epilogue_fusion, bias, activation
Start here when a convolution on Hopper has enough channels for tensor cores.
"""

import functools

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, pipeline, range_constexpr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
ROWS = 64  # pixels of a warpgroup
MATH_WARPGROUPS = 2
BM, BN, BK = ROWS * MATH_WARPGROUPS, 256, 64  # pixels, outputs, channels of a step
STAGES = 4  # of 48 KB
EPI_N = 64  # outputs that leave at once
THREADS = 128 * (1 + MATH_WARPGROUPS)
LOAD_REGISTERS, MATH_REGISTERS = 24, 240
EPILOGUE_BARRIER = 1  # and 2; 0 is sync_threads
VECTOR = 8


@cute.kernel
def convolution_kernel(
    tma_X: cute.CopyAtom,
    mX: cute.Tensor,  # (output pixels, (channels, taps right, taps down)), coordinates for TMA
    tma_W: cute.CopyAtom,
    mW: cute.Tensor,  # (outputs, (channels, taps right, taps down)), the same
    tma_Y: cute.CopyAtom,
    mY: cute.Tensor,  # (output pixels, outputs), the same
    mBias: cute.Tensor,  # (outputs,)
    tiled_mma: cute.TiledMma,
    epi_mma: cute.TiledMma,
    sX_layout: cute.ComposedLayout,
    sW_layout: cute.ComposedLayout,
    sY_layout: cute.ComposedLayout,
):
    dtype = mBias.element_type
    thread, _, _ = cute.arch.thread_idx()
    n, m, _ = cute.arch.block_idx()  # blocks of the same pixels run at the same time
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_index = cute.arch.make_warp_uniform(thread // 128)  # 0 loads, 1 and 2 do the arithmetic
    if warp_index == 0:
        for atom in (tma_X, tma_W, tma_Y):
            cpasync.prefetch_descriptor(atom)

    smem = SmemAllocator()
    sX = smem.allocate_tensor(dtype, sX_layout.outer, byte_alignment=1024, swizzle=sX_layout.inner)
    sW = smem.allocate_tensor(dtype, sW_layout.outer, byte_alignment=1024, swizzle=sW_layout.inner)
    sY = smem.allocate_tensor(dtype, sY_layout.outer, byte_alignment=1024, swizzle=sY_layout.inner)
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * MATH_WARPGROUPS),
        tx_count=(BM + BN) * BK * dtype.width // 8,  # zeros of the padding count as well
    )
    gX = cute.local_tile(mX, (BM, (BK,)), (m, None))  # (BM, BK, (channels / BK, taps right, taps down))
    gW = cute.local_tile(mW, (BN, (BK,)), (n, None))
    k_tiles = cute.size(gX, mode=[2])

    if warpgroup_index == 0:
        cute.arch.setmaxregister_decrease(LOAD_REGISTERS)
        if warp_index == 0:
            one = cute.make_layout(1)
            tXsX, tXgX = cpasync.tma_partition(tma_X, 0, one, cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2))
            tWsW, tWgW = cpasync.tma_partition(tma_W, 0, one, cute.group_modes(sW, 0, 2), cute.group_modes(gW, 0, 2))
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for k in cutlass.range(k_tiles, unroll=1):
                ring.producer_acquire(state)
                full = ring.producer_get_barrier(state)
                cute.copy(tma_X, tXgX[None, k], tXsX[None, state.index], tma_bar_ptr=full)
                cute.copy(tma_W, tWgW[None, k], tWsW[None, state.index], tma_bar_ptr=full)
                state.advance()

    if warpgroup_index > 0:
        cute.arch.setmaxregister_increase(MATH_REGISTERS)
        mine, lane = warpgroup_index - 1, thread % 128
        thr_mma = tiled_mma.get_slice(mine * 128)
        tCrX = tiled_mma.make_fragment_A(thr_mma.partition_A(sX))
        tCrW = tiled_mma.make_fragment_B(thr_mma.partition_B(sW))
        acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, BN)), Float32)  # ((2, 2, BN / 8), 1, 1)
        acc.fill(0.0)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        read = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        released = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        for k in cutlass.range(k_tiles, unroll=1):
            ring.consumer_wait(read)
            warpgroup.fence()
            for block_k in range_constexpr(cute.size(tCrX, mode=[2])):
                at = (None, None, block_k, read.index)
                cute.gemm(tiled_mma, acc, tCrX[at], tCrW[at], acc)
            warpgroup.commit_group()
            warpgroup.wait_group(1)  # one group stays in flight; the one before it has read its stage
            if k > 0:
                ring.consumer_release(released)
                released.advance()
            read.advance()
        warpgroup.wait_group(0)

        # Epilogue, EPI_N outputs at a time: the accumulators of 64 x EPI_N products lie side by side.
        layout = cute.make_layout(((2, 2, EPI_N // 8), 1, 1, BN // EPI_N), stride=((1, 2, 4), 0, 0, EPI_N // 2))
        slices = cute.make_tensor(acc.iterator, layout)
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), dtype)
        copy_Y, thr_epi = cute.make_tiled_copy_C(stmatrix, epi_mma).get_slice(lane), epi_mma.get_slice(lane)
        sY_mine, row_tile = sY[None, None, mine], m * MATH_WARPGROUPS + mine
        gY = cute.local_tile(mY, (ROWS, EPI_N), (row_tile, None))
        tYsY, tYgY = cpasync.tma_partition(
            tma_Y, 0, cute.make_layout(1), cute.group_modes(sY_mine, 0, 2), cute.group_modes(gY, 0, 2)
        )
        mBias_mn = cute.make_tensor(
            mBias.iterator, cute.make_layout(mY.shape, stride=(0, 1))
        )  # the vector as every row
        cY = cute.make_identity_tensor(mY.shape)
        barrier = pipeline.NamedBarrier(barrier_id=EPILOGUE_BARRIER + mine, num_threads=128)
        for j in range_constexpr(BN // EPI_N):
            tile = (row_tile, n * (BN // EPI_N) + j)
            tCgBias = thr_epi.partition_C(cute.local_tile(mBias_mn, (ROWS, EPI_N), tile))
            tCcY = thr_epi.partition_C(cute.local_tile(cY, (ROWS, EPI_N), tile))
            rBias = cute.make_rmem_tensor((2, EPI_N // 8), dtype)  # a thread's outputs: pairs, 8 apart
            rBias.fill(0)
            for v in range_constexpr(EPI_N // 8):
                if tCcY[(0, 0, v), 0, 0][1] < mY.shape[1]:  # outputs are a multiple of 8: both of a pair, or neither
                    cute.autovec_copy(tCgBias[(None, 0, v), 0, 0], rBias[None, v])
            rD = cute.make_rmem_tensor(slices[None, None, None, 0].shape, dtype)
            for high in range_constexpr(2):
                row = slices[(None, high, None), 0, 0, j]
                for v in range_constexpr(cute.size(row)):
                    y = row[v] + rBias[v].to(Float32)
                    row[v] = Float32(0.0) if y < 0.0 else y  # ReLU; NaN stays
                rD[(None, high, None), 0, 0].store(row.load().to(dtype))
            if lane < 32:
                cute.arch.cp_async_bulk_wait_group(0, read=True)  # the store before has read the buffer
            barrier.arrive_and_wait()
            cute.copy(copy_Y, copy_Y.retile(rD), copy_Y.partition_D(sY_mine))
            cute.arch.fence_proxy("async.shared", space="cta")  # ordinary stores, read by the TMA unit next
            barrier.arrive_and_wait()
            if lane < 32:
                cute.copy(tma_Y, tYsY, tYgY[None, n * (BN // EPI_N) + j])  # what lies outside is not stored
                cute.arch.cp_async_bulk_commit_group()
        if lane < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory outlives its last reader


def row_major_smem(rows, columns, stages, dtype):
    """Tiles with the widest swizzle that the columns allow, as wgmma and TMA know it."""
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, dtype, columns)
    return cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, dtype), (rows, columns, stages), order=(0, 1, 2))


def wgmma(dtype, warpgroups, columns):
    """A tiled MMA: 64 x columns an instruction for each warpgroup, both operands K-major in shared memory."""
    major = OperandMajorMode.K
    return sm90.make_trivial_tiled_mma(
        dtype, dtype, major, major, Float32, (warpgroups, 1, 1), tiler_mn=(ROWS, columns)
    )


@cute.jit
def convolution(
    mX: cute.Tensor,  # (batch, height, width, channels)
    mW: cute.Tensor,  # (outputs, taps down, taps right, channels)
    mBias: cute.Tensor,
    mY: cute.Tensor,  # (batch, height, width, outputs)
    stride: cutlass.Constexpr,
    padding: cutlass.Constexpr,
    dilation: cutlass.Constexpr,
    stream,
):
    dtype = mX.element_type
    batch, height, width, channels = mX.shape
    outputs, down, right, _ = mW.shape
    pixels = mY.shape[0] * mY.shape[1] * mY.shape[2]
    mX = cute.make_tensor(
        mX.iterator,
        cute.make_layout(
            ((width, height, batch), channels), stride=((channels, width * channels, height * width * channels), 1)
        ),
    )
    columns = cute.make_layout((channels, right, down), stride=(1, channels, right * channels))
    mW = cute.make_tensor(
        mW.iterator,
        cute.make_layout((outputs, columns.shape), stride=(down * right * channels, columns.stride)),
    )
    mY = cute.make_tensor(mY.iterator, cute.make_layout((pixels, outputs), stride=(outputs, 1)))
    sX_layout, sW_layout = row_major_smem(BM, BK, STAGES, dtype), row_major_smem(BN, BK, STAGES, dtype)
    sY_layout, one = row_major_smem(ROWS, EPI_N, MATH_WARPGROUPS, dtype), (None, None, 0)
    # The first and the last pixel under the window's first tap, from the image's corners: width, then height.
    tma_X, tX = cpasync.make_im2col_tma_atom(
        cpasync.CopyBulkTensorIm2ColG2SOp(), mX, cute.slice_(sX_layout, one), (BM, BK),
        lower_corner_whd=(-padding, -padding),
        upper_corner_whd=(padding - (right - 1) * dilation, padding - (down - 1) * dilation),
        lower_padding_whd=(padding, padding), upper_padding_whd=(padding, padding), stride_whd=(stride, stride),
        lower_srt=(0, 0), stride_srt=(dilation, dilation),
    )  # fmt: skip
    load = cpasync.CopyBulkTensorTileG2SOp()
    tma_W, tW = cpasync.make_tiled_tma_atom(load, mW, cute.slice_(sW_layout, one), (BN, (BK,)))
    store = cpasync.CopyBulkTensorTileS2GOp()
    tma_Y, tY = cpasync.make_tiled_tma_atom(store, mY, cute.slice_(sY_layout, one), (ROWS, EPI_N))
    tiles_m, tiles_n = cute.ceil_div(mY.shape, (BM, BN))
    convolution_kernel(
        tma_X, tX, tma_W, tW, tma_Y, tY, mBias, wgmma(dtype, MATH_WARPGROUPS, BN), wgmma(dtype, 1, EPI_N),
        sX_layout, sW_layout, sY_layout,
    ).launch(grid=(tiles_n, tiles_m, 1), block=(THREADS, 1, 1), stream=stream)  # fmt: skip


@functools.cache
def compiled(dtype: torch.dtype, taps: tuple[int, int], stride: int, padding: int, dilation: int):
    """One kernel for all images of a window; channels and outputs are multiples of a vector."""
    batch, height, width, out_height, out_width = (cute.sym_int() for _ in range(5))
    channels, outputs = cute.sym_int(divisibility=VECTOR), cute.sym_int(divisibility=VECTOR)

    def fake(*shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=order, assumed_align=16)

    x, weight = fake(batch, height, width, channels), fake(outputs, *taps, channels)
    y, stream = fake(batch, out_height, out_width, outputs), make_fake_stream(use_tvm_ffi_env_stream=True)
    tensors = x, weight, fake(outputs), y
    return cute.compile(convolution, *tensors, stride, padding, dilation, stream, options="--enable-tvm-ffi")


def kernel_fn(x, weight, bias, stride=1, padding=0, dilation=1):
    """(batch, height, width, outputs) of x (batch, height, width, channels), weight (outputs, taps, taps, channels)."""
    batch, *image, channels = x.shape
    outputs, *taps, _ = weight.shape
    if channels % VECTOR or outputs % VECTOR or not channels:
        raise ValueError(f"{channels} channels, {outputs} outputs: both must be multiples of {VECTOR}: pad with zeros")
    if not (x.is_contiguous() and weight.is_contiguous() and bias.is_contiguous()):
        raise ValueError("x, weight and bias must be contiguous: strides are not asked for")
    reach = max(dilation * (tap - 1) for tap in taps)
    if stride > 8 or padding > 127 or reach - padding > 128:
        raise ValueError(f"stride {stride}, padding {padding}, window {reach + 1}: a tensor map takes 8, 127 and 129")
    sizes = ((size + 2 * padding - dilation * (tap - 1) - 1) // stride + 1 for size, tap in zip(image, taps))
    y = torch.empty(batch, *sizes, outputs, dtype=x.dtype, device=x.device)
    if y.numel():
        compiled(x.dtype, tuple(taps), stride, padding, dilation)(x, weight, bias, y)
    return y


def reference_fn(x, weight, bias, stride=1, padding=0, dilation=1):
    images, kernels = x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2)
    y = torch.nn.functional.conv2d(images, kernels, bias, stride, padding, dilation)
    return torch.relu(y).permute(0, 2, 3, 1).contiguous()


def get_inputs(
    batch=32,
    size=(56, 56),
    channels=256,
    outputs=256,
    taps=(3, 3),
    stride=1,
    padding=1,
    dilation=1,
    dtype=torch.bfloat16,
):
    x = torch.randn(batch, *size, channels, device="cuda", dtype=dtype)
    weight = torch.randn(outputs, *taps, channels, device="cuda", dtype=dtype) * (taps[0] * taps[1] * channels) ** -0.5
    return [x, weight, torch.randn(outputs, device="cuda", dtype=dtype), stride, padding, dilation]


EMULATED_SIZES = {"batch": 2, "size": (9, 10), "channels": 128, "outputs": 72}


def get_input_sets():
    yield get_inputs(5, (16, 16), 64, 264)
    yield get_inputs(2, (15, 13), 72, 136, stride=2, dtype=torch.float16)
    yield get_inputs(1, (20, 9), 16, 72, (5, 1), padding=2, dilation=2)
