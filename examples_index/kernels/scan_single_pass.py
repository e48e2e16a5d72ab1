"""Inclusive scan of few, very long rows in one pass over memory: decoupled look-back between the blocks.

Shows how blocks of one launch wait for each other without a hang and without reading the input twice. A block takes
its tile's number from an atomic counter: the tiles before it then belong to blocks that already run, however many the
GPU holds at once. It publishes its tile's total, adds up what the tiles before have published, and publishes the sum up
to its own end, as soon as it is known. Value and flag are one word of 64 bits, so that both become visible together and
no fence is needed. A warp looks at 32 tiles at once and stops at the nearest whole sum. Which sums it meets depends on
time: the last bits of results differ from run to run.
float32 4 x 16777216 on an H100: 220 us, torch.compile 190. Predicted were 537 MB, 0.18 ms at 3 TB/s; reading twice
costs 0.27 ms. Tiles in registers took 235 us, of 16 KB 258; looking at 64 tiles at once cost 15 to 30 us more.

Arch: sm_80+
Operation: scan
Features: vectorized_copy, warp_shuffle, warp_vote, smem, atomics, recurrence, dynamic_scheduler
Start here when a scan has too few rows to fill the GPU, or when blocks of one launch need results of earlier ones.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int32, Int64, Uint32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
THREADS = 256
WARPS = THREADS // 32
CHUNKS = 8  # vectors of a thread: a tile of 32 KB for each block, kept in shared memory
CLEAR_THREADS = 256
EMPTY, TOTAL, PREFIX = 0, 1, 2  # what a tile has published: nothing, its own sum, the sum of the row up to its end


@cute.jit
def scan_warp(value: Float32) -> Float32:
    """The sum of the lanes up to and with this one: after step k, of the 2**(k + 1) lanes that end here."""
    lane = cute.arch.lane_idx()
    for k in range_constexpr(5):
        before = cute.arch.shuffle_sync_up(value, offset=1 << k)  # lanes below 1 << k get their own value back
        value = before + value if lane >= 1 << k else value
    return value


@cute.jit
def publish(mStates: cute.Tensor, tile: Int32, value: Float32, flag: cutlass.Constexpr):
    """One store of 64 bits: a reader sees both halves or neither."""
    word = (Int64(flag) << 32) | Int64(value.bitcast(Uint32))
    cute.arch.store((mStates.iterator + tile).llvm_ptr, word, sem="relaxed", scope="gpu")


@cute.jit
def look_back(mStates: cute.Tensor, tile: Int32, place: Int32) -> Float32:
    """One warp: the sum before `tile`, which is number `place` of its row; waits for what is not there yet."""
    lane = cute.arch.lane_idx()
    before, found, nearest = Float32(0.0), Int32(0), Int32(1)  # lane 0 looks at the tile just before
    while found == 0:
        flag, value = Int32(PREFIX), Float32(0.0)  # before the row's first tile: a sum of nothing
        distance = nearest + lane
        if distance <= place:
            flag = Int32(EMPTY)
            while flag == EMPTY:
                pointer = (mStates.iterator + (tile - distance)).llvm_ptr
                word = cute.arch.load(pointer, Int64, sem="relaxed", scope="gpu")
                flag, value = Int32(word >> 32), Int32(word).bitcast(Float32)
        whole = cute.arch.vote_ballot_sync(flag == PREFIX)
        # Lanes up to the first whole sum count: those whose bit has no set bit beneath it.
        lower = whole & ((Int32(1) << lane) - 1)
        if lower != 0:
            value = Float32(0.0)
        before = cute.arch.warp_reduction_sum(value) + before
        found = whole
        nearest += 32
    return before


@cute.kernel
def clear_kernel(mStates: cute.Tensor, mCounter: cute.Tensor):
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    index = block * CLEAR_THREADS + thread
    if index < cute.size(mStates):
        mStates[index] = Int64(EMPTY)
    if index == 0:
        mCounter[0] = Int32(0)


@cute.kernel
def scan_kernel(
    mX: cute.Tensor,  # (rows, columns)
    mY: cute.Tensor,
    mStates: cute.Tensor,  # (tiles,): value and flag of each
    mCounter: cute.Tensor,  # (1,): the next tile
    vector: cutlass.Constexpr,
    tiles_per_row: Int32,
):
    thread, _, _ = cute.arch.thread_idx()
    lane, warp = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = SmemAllocator()
    sTotal = smem.allocate_tensor(Float32, cute.make_layout((WARPS, CHUNKS)), byte_alignment=16)
    sBefore = smem.allocate_tensor(Float32, cute.make_layout(1), byte_alignment=16)
    sTile = smem.allocate_tensor(Int32, cute.make_layout(1), byte_alignment=16)
    sX = smem.allocate_tensor(mX.element_type, cute.make_layout((vector, THREADS, CHUNKS)), byte_alignment=16)
    if thread == 0:
        sTile[0] = cute.arch.atomic_add(mCounter.iterator.llvm_ptr, Int32(1), sem="relaxed", scope="gpu")
    cute.arch.sync_threads()
    tile = sTile[0]
    row, place = tile // tiles_per_row, tile % tiles_per_row
    gX = cute.zipped_divide(mX[row, None], (vector,))  # (vector, vectors of the row)
    gY = cute.zipped_divide(mY[row, None], (vector,))
    first = place * (CHUNKS * THREADS) + thread

    # A thread reads only what it has loaded itself: no barrier is needed.
    bits = vector * mX.element_type.width
    for chunk in range_constexpr(CHUNKS):
        at, here = first + chunk * THREADS, sX[None, thread, chunk]
        if at >= cute.size(gX, mode=[1]):
            here.fill(0)  # what lies beyond the row adds nothing
        elif const_expr(bits >= 32):
            cute.copy(
                cute.make_copy_atom(cpasync.CopyG2SOp(), mX.element_type, num_bits_per_copy=bits), gX[None, at], here
            )
        else:
            cute.autovec_copy(gX[None, at], here)
    cute.arch.cp_async_commit_group()
    cute.arch.cp_async_wait_group(0)

    rX = cute.make_rmem_tensor((vector,), mX.element_type)
    rBefore = cute.make_rmem_tensor((CHUNKS,), Float32)  # the sum of this warp's lanes before this one
    for chunk in range_constexpr(CHUNKS):
        cute.autovec_copy(sX[None, thread, chunk], rX)
        total = rX[0].to(Float32)
        for i in range_constexpr(1, vector):
            total = total + rX[i].to(Float32)
        inclusive = scan_warp(total)
        # The lane before has what is wanted; inclusive - own total would be inf - inf = NaN after an infinity.
        exclusive = cute.arch.shuffle_sync_up(inclusive, offset=1)
        rBefore[chunk] = exclusive if lane > 0 else Float32(0.0)
        if lane == 31:
            sTotal[warp, chunk] = inclusive
    cute.arch.sync_threads()

    carry = Float32(0.0)  # the sum of the tile's chunks before
    for chunk in range_constexpr(CHUNKS):
        total = Float32(0.0)
        if lane < WARPS:
            total = sTotal[lane, chunk]
        total = scan_warp(total)  # every warp repeats it: lane w has the sum of warps 0 to w
        of_warps = cute.arch.shuffle_sync(total, offset=cutlass.max(warp - 1, 0))
        rBefore[chunk] = carry + (of_warps if warp > 0 else Float32(0.0)) + rBefore[chunk]
        carry = carry + cute.arch.shuffle_sync(total, offset=WARPS - 1)

    if warp == 0:
        before = Float32(0.0)
        if place > 0:
            if lane == 0:
                publish(mStates, tile, carry, TOTAL)
            before = look_back(mStates, tile, place)
        if lane == 0:
            publish(mStates, tile, before + carry, PREFIX)
            sBefore[0] = before
    cute.arch.sync_threads()

    rY = cute.make_rmem_tensor((vector,), mY.element_type)
    for chunk in range_constexpr(CHUNKS):
        cute.autovec_copy(sX[None, thread, chunk], rX)
        start, total = sBefore[0] + rBefore[chunk], Float32(0.0)
        for i in range_constexpr(vector):
            total = total + rX[i].to(Float32)
            rY[i] = (total + start).to(mY.element_type)
        if first + chunk * THREADS < cute.size(gY, mode=[1]):
            cute.autovec_copy(rY, gY[None, first + chunk * THREADS])


@cute.jit
def scan(
    mX: cute.Tensor, mY: cute.Tensor, mStates: cute.Tensor, mCounter: cute.Tensor, vector: cutlass.Constexpr, stream
):
    tiles = cute.size(mStates)
    clear_kernel(mStates, mCounter).launch(
        grid=(cute.ceil_div(tiles, CLEAR_THREADS), 1, 1), block=(CLEAR_THREADS, 1, 1), stream=stream
    )
    scan_kernel(mX, mY, mStates, mCounter, vector, tiles // mX.shape[0]).launch(
        grid=(tiles, 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, vector: int):
    """One kernel for all sizes whose rows are multiples of `vector` elements."""
    rows, columns, tiles = cute.sym_int(), cute.sym_int(divisibility=vector), cute.sym_int()
    x, y = (
        make_fake_compact_tensor(DTYPES[dtype], (rows, columns), stride_order=(1, 0), assumed_align=16)
        for _ in range(2)
    )
    states = make_fake_compact_tensor(Int64, (tiles,), assumed_align=16)
    counter = make_fake_compact_tensor(Int32, (1,), assumed_align=16)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(scan, x, y, states, counter, vector, stream, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1]
        vector = math.gcd(columns, 16 // x.dtype.itemsize)
        rows = x.numel() // columns
        tiles = rows * -(-columns // (vector * CHUNKS * THREADS))
        states = torch.empty(tiles, dtype=torch.int64, device=x.device)
        counter = torch.empty(1, dtype=torch.int32, device=x.device)
        compiled(x.dtype, vector)(x.view(rows, columns), y.view(rows, columns), states, counter)
    return y


def reference_fn(x):
    return torch.cumsum(x, dim=-1)


def get_inputs(rows=4, columns=1 << 24, dtype=torch.float32):
    return [torch.randn(rows, columns, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(2, 150_001)  # vectors of one element, more tiles than a warp looks at
    yield get_inputs(3, 40_000, torch.bfloat16)
    yield get_inputs(1, 262_144, torch.float16)
    yield get_inputs(5, 7)
