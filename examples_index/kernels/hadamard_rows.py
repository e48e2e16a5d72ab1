"""Hadamard transform of rows whose length is a power of two: butterflies in registers, over lanes, between warps.

Shows how a network of fixed partners (Hadamard, FFT, bitonic sort) is spread over a block. The bits of an element's
place in its row are dealt out: the low ones lie within a thread's 16-byte vector, the next five are the lane, then the
warp, and the highest are the vectors of a thread. Partners in one thread meet in registers, those of two lanes by
shuffles. Bits of the warp change places with bits of the vector in one exchange through shared memory, and are
register work from then on. A row is read once and written once; rows shorter than a warp's vectors share it.
bf16 16384 x 4096: 268 MB, predicted 0.09 ms at 3 TB/s. The shuffles, 160 a thread, take half of that beside it.

Arch: sm_80+
Operation: hadamard
Features: vectorized_copy, warp_shuffle, smem, predication
Start here when partners in a row are 2**k apart: Hadamard, Walsh, FFT and other butterflies.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
LANES = 32
MOST_VECTORS = 8  # of a thread: 64 numbers in registers


@cute.jit
def meet_in_thread(held: cute.Tensor, distance: cutlass.Constexpr):
    """Numbers `distance` apart in this thread become their sum and their difference."""
    for pair in range_constexpr(cute.size(held) // 2):
        e = const_expr(pair + pair // distance * distance)  # the lower one: its bit is 0
        low, high = held[e], held[e + distance]
        held[e], held[e + distance] = low + high, low - high


@cute.jit
def meet_across_lanes(held: cute.Tensor, distance: cutlass.Constexpr):
    """The same with the lane `distance` away: the lower lane keeps the sum, the upper one the difference."""
    sign = Float32(1.0) if cute.arch.lane_idx() & distance == 0 else Float32(-1.0)
    for v in range_constexpr(cute.size(held, mode=[1])):
        for e in range_constexpr(cute.size(held, mode=[0])):
            held[e, v] = cute.arch.shuffle_sync_bfly(held[e, v], distance) + sign * held[e, v]


@cute.jit
def exchange_warps_and_vectors(
    held: cute.Tensor, vector: cutlass.Constexpr, vectors: cutlass.Constexpr, warps: cutlass.Constexpr
):
    """Afterwards vector `w * runs + r` of warp `v` is what vector `v * runs + r` of warp `w` was."""
    runs = const_expr(vectors // warps)
    lane, warp = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx())
    wide = const_expr(min(vector, 4))  # 16 bytes of float32: lanes are neighbours, so that no two meet in a bank
    layout = cute.make_layout(
        (wide, vector // wide, LANES, vectors, warps),
        stride=(1, wide * LANES, wide, vector * LANES, vector * LANES * vectors),
    )
    shared = SmemAllocator().allocate_tensor(Float32, layout, byte_alignment=16)
    parts = cute.make_tensor(held.iterator, cute.make_layout((wide, vector // wide, vectors)))
    for v in range_constexpr(vectors):
        for part in range_constexpr(vector // wide):
            cute.autovec_copy(parts[None, part, v], shared[None, part, lane, v, warp])
    cute.arch.sync_threads()
    for w in range_constexpr(warps):
        for r in range_constexpr(runs):
            for part in range_constexpr(vector // wide):
                cute.autovec_copy(shared[None, part, lane, warp * runs + r, w], parts[None, part, w * runs + r])


@cute.kernel
def hadamard_kernel(
    mX: cute.Tensor,  # (rows, columns)
    mY: cute.Tensor,
    columns: cutlass.Constexpr,
    vector: cutlass.Constexpr,
    vectors: cutlass.Constexpr,
    warps: cutlass.Constexpr,
):
    lane, warp = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx())
    block, _, _ = cute.arch.block_idx()
    rows_of_block = const_expr(vector * LANES * warps * vectors // columns)
    rX = cute.make_rmem_tensor((vector, vectors), mX.element_type)
    rX.fill(0)
    for v in range_constexpr(vectors):
        place = vector * (lane + LANES * (warp + warps * v))
        row = block * rows_of_block + place // columns
        if row < mX.shape[0]:
            gX = cute.zipped_divide(mX[row, None], (vector,))
            cute.autovec_copy(gX[None, place % columns // vector], rX[None, v])
    held = cute.make_rmem_tensor((vector, vectors), Float32)
    held.store(rX.load().to(Float32))

    for bit in range_constexpr((columns - 1).bit_length()):
        distance = const_expr(1 << bit)
        if const_expr(distance < vector):
            meet_in_thread(held, distance)
        elif const_expr(distance < vector * LANES):
            meet_across_lanes(held, distance // vector)
        elif const_expr(distance >= vector * LANES * warps):
            meet_in_thread(held, distance // (LANES * warps))
    if const_expr(warps > 1):
        exchange_warps_and_vectors(held, vector, vectors, warps)
        for bit in range_constexpr((warps - 1).bit_length()):
            meet_in_thread(held, (vector * vectors // warps) << bit)

    rY = cute.make_rmem_tensor((vector, vectors), mY.element_type)
    rY.store((held.load() * columns**-0.5).to(mY.element_type))
    runs = const_expr(vectors // warps)
    for v in range_constexpr(vectors):
        place = vector * (lane + LANES * (v // runs + warps * (warp * runs + v % runs)))
        row = block * rows_of_block + place // columns
        if row < mY.shape[0]:
            gY = cute.zipped_divide(mY[row, None], (vector,))
            cute.autovec_copy(rY[None, v], gY[None, place % columns // vector])


@cute.jit
def hadamard(
    mX: cute.Tensor,
    mY: cute.Tensor,
    columns: cutlass.Constexpr,
    vector: cutlass.Constexpr,
    vectors: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    stream,
):
    rows_of_block = const_expr(vector * LANES * warps * vectors // columns)
    hadamard_kernel(mX, mY, columns, vector, vectors, warps).launch(
        grid=(cute.ceil_div(mX.shape[0], rows_of_block), 1, 1), block=(LANES * warps, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, columns: int, vector: int):
    """The kernel for any number of rows of `columns` numbers, wherever each row begins."""
    shares = max(1, columns // (vector * LANES))  # of a warp's vectors in a row: dealt out to vectors and warps
    warps = 1 << (shares.bit_length() - 1) // 2
    vectors = shares // warps
    if vectors > MOST_VECTORS:
        raise ValueError(f"rows of {columns} numbers do not fit the registers of a block")
    rows = cute.sym_int()
    fakes = [
        make_fake_tensor(
            DTYPES[dtype],
            (rows, columns),
            (cute.sym_int64(divisibility=vector), 1),
            assumed_align=vector * dtype.itemsize,
        )
        for _ in range(2)
    ]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(hadamard, *fakes, columns, vector, vectors, warps, stream, options="--enable-tvm-ffi")


def kernel_fn(x):
    columns = x.shape[1]
    if columns & (columns - 1):
        raise ValueError(f"{columns} columns are not a power of two")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        compiled(x.dtype, columns, min(columns, 16 // x.dtype.itemsize))(x, y)
    return y


def reference_fn(x):
    rows, columns = x.shape
    value, width = x.float(), 1
    while width < columns:
        left, right = value.view(rows, columns // (2 * width), 2, width).unbind(dim=2)
        value = torch.stack((left + right, left - right), dim=2).view(rows, columns)
        width *= 2
    return (value * columns**-0.5).to(x.dtype)


def get_inputs(rows=16384, columns=4096, dtype=torch.bfloat16):
    return [torch.randn(rows, columns, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(3, 16384)
    yield get_inputs(5, 2048, torch.float32)
    yield get_inputs(33, 512, torch.float16)
    yield get_inputs(70, 8)
    yield get_inputs(3, 2, torch.float32)
    yield get_inputs(5, 1)
