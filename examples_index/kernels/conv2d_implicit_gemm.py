"""Convolution of images as an implicit GEMM, channels last, with bias and ReLU: relu(conv2d(x, weight) + bias).

Shows a matrix product whose left operand is nowhere in memory. Row p of it is an output pixel, and column k a tap of
the window and a channel; channels are innermost, so that 16 bytes of a row are 8 neighbouring channels of one input
pixel. Each thread of the copies keeps four pixels for the whole kernel: where their windows begin is computed once, and
a step adds the tap. cp.async fills with zeros what lies outside the image: padding costs no test in the arithmetic. Any
stride, padding and dilation; taps are compiled in. The rest is gemm_sm80_bias_gelu: ring, swizzle, ldmatrix, mma.sync.
Prediction, not measured, for bf16 32 x 56 x 56 x 256, 3 x 3 taps, 256 outputs on an H100: 118 GFLOP, 0.34 ms at the 350
TFLOP/s that mma.sync reaches there; its 104 MB would take 35 us, as an input pixel comes from L2 for 8 of its 9 taps.

Arch: sm_80+
Operation: convolution
Features: cp_async, ldmatrix, mma_sync, pipeline, swizzle, predication, gather, epilogue_fusion, bias, activation
Start here when a convolution has enough channels for tensor cores, or when rows of a product are gathered by a rule.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Boolean, Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
BM, BN, BK = 128, 128, 32  # pixels, outputs, and taps x channels of a step: 16 KB of operands a stage
STAGES = 4
WARPS_M, WARPS_N = 2, 2  # each warp owns 64 x 64 of the tile
THREADS = WARPS_M * WARPS_N * 32
VECTOR = 8  # 16-bit elements of one 16-byte access
ACROSS = BK // VECTOR  # threads side by side in a row of a tile
PIXELS = BM * ACROSS // THREADS  # of one thread
GROUP_M = 8  # blocks that run at the same time cover a square of the output: L2 serves more of their loads
OUTSIDE = -(1 << 30)  # the row of a pixel that does not exist: no tap brings it into the image


def swizzled_layout(*shape):
    """Row-major tiles in which the vectors of 8 rows at one column lie in different banks (swizzle in bytes)."""
    width = min(64, shape[1])
    swizzle = cute.make_swizzle({64: 3, 32: 2}[width], 4, 3)
    atom = cute.make_composed_layout(swizzle, 0, cute.make_layout((8, width), stride=(width, 1)))
    return cute.tile_to_shape(atom, shape, order=tuple(range(len(shape))))


def row_major_copy(atom, columns):
    """All threads of the block over a row-major tile, one vector each, neighbours side by side in a row."""
    across = columns // VECTOR
    threads = cute.make_layout((THREADS // across, across), stride=(across, 1))
    return cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, VECTOR)))


@cute.jit
def load_weights(tiled_copy: cute.TiledCopy, mB: cute.Tensor, sB: cute.Tensor, n: Int32, k_tile: Int32):
    """cp.async of rows n BN … of the weights; vectors beyond the edges become zeros."""
    thread, _, _ = cute.arch.thread_idx()
    thr_copy = tiled_copy.get_slice(thread)
    tBgB = thr_copy.partition_S(cute.local_tile(mB, (BN, BK), (n, k_tile)))
    tBcB = thr_copy.partition_S(cute.local_tile(cute.make_identity_tensor(mB.shape), (BN, BK), (n, k_tile)))
    tBsB = thr_copy.partition_D(sB)
    for m in range_constexpr(cute.size(tBgB, mode=[1])):
        pred = cute.make_rmem_tensor((1,), Boolean)
        pred[0] = cute.elem_less(tBcB[0, m, 0], mB.shape)
        cute.copy(tiled_copy, tBgB[None, m, 0], tBsB[None, m, 0], pred=pred)


@cute.jit
def windows_of(rows: cute.Tensor, tile: Int32, image, out_image, stride, padding):
    """Of this thread's pixels: rows[0, i] the image's first pixel, rows[1, i], rows[2, i] where the window begins."""
    thread, _, _ = cute.arch.thread_idx()
    batch, height, width = image
    out_height, out_width = out_image
    for i in range_constexpr(PIXELS):
        pixel = tile * BM + i * (THREADS // ACROSS) + thread // ACROSS
        line, column = pixel // out_width, pixel % out_width
        n, row = line // out_height, line % out_height
        rows[0, i] = n * height * width
        rows[1, i] = row * stride - padding if n < batch else Int32(OUTSIDE)
        rows[2, i] = column * stride - padding


@cute.jit
def load_pixels(
    atom: cute.CopyAtom,
    vectors: cute.Tensor,  # ((VECTOR, 1), vectors of x)
    tAsA: cute.Tensor,  # ((VECTOR, 1), PIXELS): this thread's places in the stage
    rows: cute.Tensor,
    k_tile: Int32,
    image,
    channels: Int32,
    taps: cutlass.Constexpr,
    dilation,
):
    """cp.async of a tap's channels at this thread's pixels; 0 outside the image and behind the last tap."""
    thread, _, _ = cute.arch.thread_idx()
    _, height, width = image
    k = k_tile * BK + thread % ACROSS * VECTOR  # channels are whole vectors: a vector has one tap
    tap, channel = k // channels, k % channels
    down, right = tap // taps[1] * dilation, tap % taps[1] * dilation
    for i in range_constexpr(PIXELS):
        row, column = rows[1, i] + down, rows[2, i] + right
        pred = cute.make_rmem_tensor((1,), Boolean)
        pred[0] = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (tap < taps[0] * taps[1])
        index = Int32(0)
        if pred[0]:
            index = ((rows[0, i] + row * width + column) * channels + channel) // VECTOR
        cute.copy(atom, vectors[None, index], tAsA[None, i], pred=pred)


def tile_of(block, tiles_m, tiles_n):
    """(m, n) of a block's tile: down GROUP_M tiles, then one to the right, then the next group of rows."""
    group, within = block // (GROUP_M * tiles_n), block % (GROUP_M * tiles_n)
    height = cutlass.min(GROUP_M, tiles_m - group * GROUP_M)  # the last group may be lower
    return group * GROUP_M + within % height, within // height


@cute.kernel
def convolution_kernel(
    mX: cute.Tensor,  # (batch, height, width, channels)
    mB: cute.Tensor,  # (outputs, taps * channels)
    mBias: cute.Tensor,  # (outputs,)
    mC: cute.Tensor,  # (pixels, outputs)
    out_image: tuple[Int32, Int32],
    taps: cutlass.Constexpr,
    stride: Int32,
    padding: Int32,
    dilation: Int32,
    tiled_mma: cute.TiledMma,
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
    sC_layout: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    m, n = tile_of(block, *cute.ceil_div(mC.shape, (BM, BN)))
    dtype, image, channels = mX.element_type, mX.shape[:3], mX.shape[3]
    k_tiles = cute.ceil_div(mB.shape[1], BK)

    smem = SmemAllocator()
    sA = smem.allocate_tensor(dtype, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(dtype, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    # The output's tile takes the place of the operands once the mainloop is over.
    sC = cute.make_tensor(cute.recast_ptr(sA.iterator, sC_layout.inner, dtype), sC_layout.outer)

    async_atom = cute.make_copy_atom(
        cpasync.CopyG2SOp(cache_mode=cute.nvgpu.LoadCacheMode.GLOBAL), dtype, num_bits_per_copy=128
    )
    copy_AB = row_major_copy(async_atom, BK)
    tAsA = copy_AB.get_slice(thread).partition_D(sA)  # ((VECTOR, 1), PIXELS, 1, STAGES)
    layout = cute.make_layout(((VECTOR, 1), cute.size(mX) // VECTOR), stride=((1, 0), VECTOR))
    vectors = cute.make_tensor(mX.iterator, layout)
    rows = cute.make_rmem_tensor((3, PIXELS), Int32)
    windows_of(rows, m, image, out_image, stride, padding)

    # Prologue: all stages but one in flight. Groups are committed even when empty, so that their number tells the time.
    for stage in range_constexpr(STAGES - 1):
        if stage < k_tiles:
            at = tAsA[None, None, 0, stage]
            load_pixels(async_atom, vectors, at, rows, Int32(stage), image, channels, taps, dilation)
            load_weights(copy_AB, mB, sB[None, None, stage], n, Int32(stage))
        cute.arch.cp_async_commit_group()

    thr_mma = tiled_mma.get_slice(thread)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA[None, None, 0]))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB[None, None, 0]))
    tCrC = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, BN)), Float32)
    tCrC.fill(0.0)
    ldmatrix = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), dtype)
    copy_A, copy_B = cute.make_tiled_copy_A(ldmatrix, tiled_mma), cute.make_tiled_copy_B(ldmatrix, tiled_mma)
    tXsA, tXrA = copy_A.get_slice(thread).partition_S(sA), copy_A.get_slice(thread).retile(tCrA)
    tXsB, tXrB = copy_B.get_slice(thread).partition_S(sB), copy_B.get_slice(thread).retile(tCrB)

    for k_tile in cutlass.range(k_tiles, unroll=1):
        cute.arch.cp_async_wait_group(STAGES - 2)  # this thread's part of tile k_tile has arrived …
        cute.arch.sync_threads()  # … everybody's has, and everybody has left the stage that is filled next
        ahead = k_tile + STAGES - 1
        if ahead < k_tiles:
            at = tAsA[None, None, 0, ahead % STAGES]
            load_pixels(async_atom, vectors, at, rows, ahead, image, channels, taps, dilation)
            load_weights(copy_AB, mB, sB[None, None, ahead % STAGES], n, ahead)
        cute.arch.cp_async_commit_group()
        for k in range_constexpr(cute.size(tCrA, mode=[2])):
            cute.copy(copy_A, tXsA[None, None, k, k_tile % STAGES], tXrA[None, None, k])
            cute.copy(copy_B, tXsB[None, None, k, k_tile % STAGES], tXrB[None, None, k])
            cute.gemm(tiled_mma, tCrC, tCrA[None, None, k], tCrB[None, None, k], tCrC)
    cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()  # the operands' shared memory is free

    # Bias and activation. Stride 0 makes a matrix of the vector.
    cC = cute.local_tile(cute.make_identity_tensor(mC.shape), (BM, BN), (m, n))
    mBias_mn = cute.make_tensor(mBias.iterator, cute.make_layout(mC.shape, stride=(0, 1)))
    tCgBias = thr_mma.partition_C(cute.local_tile(mBias_mn, (BM, BN), (m, n)))
    tCcC, tCsC = thr_mma.partition_C(cC), thr_mma.partition_C(sC)
    tCrBias = cute.make_rmem_tensor(tCrC[None, 0, None].layout, Float32)  # rows of a thread share their columns
    tCrBias.fill(0.0)
    for i in range_constexpr(cute.size(tCrBias)):
        if tCcC[None, 0, None][i][1] < mC.shape[1]:
            tCrBias[i] = tCgBias[None, 0, None][i].to(Float32)
    for row in range_constexpr(cute.size(tCrC, mode=[1])):
        tCrD = cute.make_rmem_tensor(tCrC[None, row, None].layout, dtype)
        for i in range_constexpr(cute.size(tCrBias)):
            y = tCrC[None, row, None][i] + tCrBias[i]
            tCrD[i] = (Float32(0.0) if y < 0.0 else y).to(dtype)  # ReLU; NaN stays
        cute.autovec_copy(tCrD, tCsC[None, row, None])
    cute.arch.sync_threads()

    store_atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), dtype, num_bits_per_copy=128)
    thr_copy = row_major_copy(store_atom, BN).get_slice(thread)
    tDsC, tDgC = thr_copy.partition_S(sC), thr_copy.partition_D(cute.local_tile(mC, (BM, BN), (m, n)))
    tDcC = thr_copy.partition_S(cC)
    for i in range_constexpr(cute.size(tDgC, mode=[1])):
        for j in range_constexpr(cute.size(tDgC, mode=[2])):
            if cute.elem_less(tDcC[0, i, j], mC.shape):
                cute.autovec_copy(tDsC[None, i, j], tDgC[None, i, j])


@cute.jit
def convolution(
    mX: cute.Tensor,
    mW: cute.Tensor,  # (outputs, taps down, taps right, channels)
    mBias: cute.Tensor,
    mY: cute.Tensor,  # (batch, height, width, outputs)
    stride: Int32,
    padding: Int32,
    dilation: Int32,
    stream,
):
    dtype = mX.element_type
    op = warp.MmaF16BF16Op(dtype, Float32, (16, 8, 16))
    # Each warp takes 16 columns at once, the two mma that one ldmatrix.x4 of B serves.
    tiled_mma = cute.make_tiled_mma(
        op, cute.make_layout((WARPS_M, WARPS_N, 1)), permutation_mnk=(WARPS_M * 16, WARPS_N * 16, 16)
    )
    taps, (outputs, down, right, channels) = (mW.shape[1], mW.shape[2]), mW.shape
    columns = down * right * channels
    mB = cute.make_tensor(mW.iterator, cute.make_layout((outputs, columns), stride=(columns, 1)))
    pixels = mY.shape[0] * mY.shape[1] * mY.shape[2]
    mC = cute.make_tensor(mY.iterator, cute.make_layout((pixels, outputs), stride=(outputs, 1)))
    sA_layout, sB_layout = swizzled_layout(BM, BK, STAGES), swizzled_layout(BN, BK, STAGES)
    tiles_m, tiles_n = cute.ceil_div(mC.shape, (BM, BN))
    convolution_kernel(
        mX, mB, mBias, mC, (mY.shape[1], mY.shape[2]), taps, stride, padding, dilation,
        tiled_mma, sA_layout, sB_layout, swizzled_layout(BM, BN),
    ).launch(grid=(tiles_m * tiles_n, 1, 1), block=(THREADS, 1, 1), stream=stream)  # fmt: skip


@functools.cache
def compiled(dtype: torch.dtype, taps: tuple[int, int]):
    """One kernel for all images, strides, paddings and dilations; channels and outputs are multiples of a vector."""
    batch, height, width, out_height, out_width = (cute.sym_int() for _ in range(5))
    channels, outputs = cute.sym_int(divisibility=VECTOR), cute.sym_int(divisibility=VECTOR)

    def fake(*shape):
        order = tuple(reversed(range(len(shape))))
        return make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=order, assumed_align=16)

    x, weight = fake(batch, height, width, channels), fake(outputs, *taps, channels)
    y, one = fake(batch, out_height, out_width, outputs), Int32(1)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(convolution, x, weight, fake(outputs), y, one, one, one, stream, options="--enable-tvm-ffi")


def kernel_fn(x, weight, bias, stride=1, padding=0, dilation=1):
    """(batch, height, width, outputs) of x (batch, height, width, channels), weight (outputs, taps, taps, channels)."""
    batch, *image, channels = x.shape
    outputs, *taps, _ = weight.shape
    if channels % VECTOR or outputs % VECTOR:
        raise ValueError(f"{channels} channels, {outputs} outputs: both must be multiples of {VECTOR}: pad with zeros")
    sizes = ((size + 2 * padding - dilation * (tap - 1) - 1) // stride + 1 for size, tap in zip(image, taps))
    y = torch.empty(batch, *sizes, outputs, dtype=x.dtype, device=x.device)
    if not (x.is_contiguous() and weight.is_contiguous()):
        raise ValueError("x and weight must be contiguous: their elements are counted, strides are not asked for")
    if max(x.numel(), y.numel()) >= 1 << 31:
        raise ValueError("more than 2**31 elements: launch parts of the batch")
    if y.numel():
        compiled(x.dtype, tuple(taps))(x, weight, bias, y, stride, padding, dilation)
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


def get_input_sets():
    yield get_inputs(5, (16, 16), 64, 256)  # whole tiles
    yield get_inputs(2, (15, 13), 40, 136, stride=2, dtype=torch.float16)
    yield get_inputs(1, (20, 9), 16, 72, (5, 1), padding=2, dilation=2)
    yield get_inputs(3, (12, 12), 64, 64, (1, 1), padding=0)
