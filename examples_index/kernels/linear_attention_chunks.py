"""Gated linear attention over whole sequences in chunks of 64 steps: outputs, and the last state of keys by values.

Shows a recurrence whose state is a matrix as four products a chunk on tensor cores, by mma.sync:
`S[t] = sigmoid(gate[t]) S[t-1] + k[t]^T v[t]`, `o[t] = q[t] S[t] / sqrt(dk)`. A block walks over the chunks of a head
for some columns of the values; the state stays an accumulator, in float32. Scores, with the decay between two steps,
become an operand in registers. A float32 number that has to be an operand (score, state, decayed key) is split into
two of bfloat16 that are multiplied in turn, so that nothing is rounded to 16 bits. Where Inf or NaN was met, the block
computes its columns again step by step, in the order of the recurrence.
Prediction, not measured, for bf16 4 x 16 x 2048 x 128 on an H100: 75 us. Its 134 MB would take 45 us at 3 TB/s, but 128
blocks are one an SM, and a warp issues some 1900 instructions a chunk, 224 of them mma, 32 times one after the other.

Arch: sm_80+
Operation: ssm
Features: cp_async, ldmatrix, mma_sync, swizzle, predication, pipeline, causal, recurrence, strided
Start here when a state is a matrix: retention, gated linear attention, state-space duality (Mamba-2), delta rules.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import BFloat16, Boolean, Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor
from cutlass.memory import SmemAllocator

C = 64  # steps of a chunk
THREADS = 128  # four warps one under another: each has 16 steps of a chunk, and a quarter of the state's rows
VECTOR = 8  # bfloat16 elements of one 16-byte access
LOG2_E = 1.4426950408889634
FORGOTTEN = -150.0  # 2 ** -150 is 0 in float32; sums of larger logarithms would lose the digits of other steps
EMULATED_SIZES = {"batch": 1, "heads": 2, "length": 150}  # three chunks: the state crosses two borders


def swizzled_layout(rows, dim, *stages):
    """A row-major tile in which the vectors of 8 rows at one column lie in different banks (swizzle in bytes)."""
    width = min(64, dim)
    atom = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_layout((8, width), stride=(width, 1)))
    return cute.tile_to_shape(atom, (rows, dim, *stages), order=tuple(range(2 + len(stages))))


def transposed(x):
    return cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 0, 2]))


@cute.jit
def load_tile(mX: cute.Tensor, sX: cute.Tensor, chunk: Int32, part: Int32):
    """cp.async of a chunk's rows; what lies outside of mX becomes zeros, so that steps past the end add nothing."""
    thread, _, _ = cute.arch.thread_idx()
    rows, columns = cute.size(sX, mode=[0]), cute.size(sX, mode=[1])
    across = columns // VECTOR
    atom = cute.make_copy_atom(
        cpasync.CopyG2SOp(cache_mode=cute.nvgpu.LoadCacheMode.GLOBAL), mX.element_type, num_bits_per_copy=128
    )
    threads = cute.make_layout((THREADS // across, across), stride=(across, 1))
    copy = cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, VECTOR)))
    thr_copy = copy.get_slice(thread)
    tXgX = thr_copy.partition_S(cute.local_tile(mX, (rows, columns), (chunk, part)))
    tXcX = thr_copy.partition_S(cute.local_tile(cute.make_identity_tensor(mX.shape), (rows, columns), (chunk, part)))
    tXsX = thr_copy.partition_D(sX)
    for m in range_constexpr(cute.size(tXgX, mode=[1])):
        pred = cute.make_rmem_tensor((1,), Boolean)
        pred[0] = cute.elem_less(tXcX[0, m, 0], mX.shape)
        cute.copy(copy, tXgX[None, m, 0], tXsX[None, m, 0], pred=pred)


@cute.jit
def load_chunk(mQ, mK, mV, sQ: cute.Tensor, sK: cute.Tensor, sV: cute.Tensor, chunk: Int32, part: Int32):
    for mX, sX, column in ((mQ, sQ, Int32(0)), (mK, sK, Int32(0)), (mV, sV, part)):
        load_tile(mX, sX[None, None, chunk % 2], chunk, column)
    cute.arch.cp_async_commit_group()


@cute.jit
def load_decay(mGate: cute.Tensor, step: Int32):
    """log2 of a step's decay, log2(1 / (1 + exp(-gate))); 0 past the end, which keeps the state as it is."""
    logarithm = Float32(0.0)
    if step < mGate.shape[0]:
        gate = mGate[step] * LOG2_E
        logarithm = -cute.arch.fmax(-gate, 0.0) - cute.math.log2(1.0 + cute.math.exp2(-cute.arch.fmax(gate, -gate)))
    return Float32(FORGOTTEN) if logarithm < FORGOTTEN else logarithm


@cute.jit
def split(x: cute.Tensor, high: cute.Tensor, low: cute.Tensor):
    """x as a sum of two numbers of 16 bits: 2 ** -17 of x is left, where one number would leave 2 ** -9."""
    for i in range_constexpr(cute.size(x)):
        high[i] = x[i].to(high.element_type)
        low[i] = (x[i] - high[i].to(Float32)).to(low.element_type)


@cute.jit
def store_tile(tiled_mma: cute.TiledMma, rX: cute.Tensor, mX: cute.Tensor, sizes: cutlass.Constexpr, place):
    """Accumulators to the tile at `place` of mX, in its type; nothing outside of mX."""
    thr_mma = tiled_mma.get_slice(cute.arch.thread_idx()[0])
    tXgX = thr_mma.partition_C(cute.local_tile(mX, sizes, place))
    tXcX = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(mX.shape), sizes, place))
    rD = cute.make_rmem_tensor(rX.layout, mX.element_type)
    rD.store(rX.load().to(mX.element_type))
    for m in range_constexpr(cute.size(rX, mode=[1])):
        for n in range_constexpr(cute.size(rX, mode=[2])):
            for row in range_constexpr(2):
                if cute.elem_less(tXcX[(0, row), m, n], mX.shape):
                    cute.autovec_copy(rD[(None, row), m, n], tXgX[(None, row), m, n])


@cute.jit
def step_by_step(mQ, mK, mV, mO, mGate, mState, sState: cute.Tensor, part: Int32, scale: Float32):
    """The recurrence as it is written: a thread has a column of the values, and of the state (D, NV) in float32."""
    thread, _, _ = cute.arch.thread_idx()
    columns = cute.size(sState, mode=[1])
    column = part * columns + thread
    if (thread < columns) & (column < mV.shape[1]):
        for d in cutlass.range(mK.shape[1], unroll=1):
            sState[d, thread] = Float32(0.0)
        for t in cutlass.range(mV.shape[0], unroll=1):
            factor = 1.0 / (1.0 + cute.math.exp(-mGate[t]))
            value, out = mV[t, column].to(Float32), Float32(0.0)
            for d in cutlass.range(mK.shape[1], unroll=1):
                state = sState[d, thread] * factor + mK[t, d].to(Float32) * value
                sState[d, thread] = state
                out = out + mQ[t, d].to(Float32) * state
            mO[t, column] = (out * scale).to(mO.element_type)
        for d in cutlass.range(mK.shape[1], unroll=1):
            mState[d, column] = sState[d, thread]


@cute.kernel
def linear_attention_kernel(
    mQ: cute.Tensor,  # (length, dk, heads, batch)
    mK: cute.Tensor,
    mV: cute.Tensor,  # (length, dv, heads, batch)
    mO: cute.Tensor,
    mGate: cute.Tensor,  # (length, heads, batch), float32
    mState: cute.Tensor,  # (dk, dv, heads, batch), float32
    scale: Float32,
    tiled_mma: cute.TiledMma,
    sK_layout: cute.ComposedLayout,  # (C, D, stages): D is dk, rounded up
    sV_layout: cute.ComposedLayout,  # (C, NV, stages)
    sS_layout: cute.ComposedLayout,  # (D, NV, high and low)
):
    thread, _, _ = cute.arch.thread_idx()
    part, head, batch = cute.arch.block_idx()
    gQ, gK, gV, gO, gState = [x[None, None, head, batch] for x in (mQ, mK, mV, mO, mState)]
    gGate, dtype = mGate[None, head, batch], mQ.element_type
    D, NV = const_expr(cute.size(sS_layout, mode=[0])), const_expr(cute.size(sS_layout, mode=[1]))
    chunks = cute.ceil_div(mV.shape[0], C)

    smem = SmemAllocator()
    sQ = smem.allocate_tensor(dtype, sK_layout.outer, byte_alignment=1024, swizzle=sK_layout.inner)
    sK = smem.allocate_tensor(dtype, sK_layout.outer, byte_alignment=1024, swizzle=sK_layout.inner)
    sV = smem.allocate_tensor(dtype, sV_layout.outer, byte_alignment=1024, swizzle=sV_layout.inner)
    sS = smem.allocate_tensor(dtype, sS_layout.outer, byte_alignment=1024, swizzle=sS_layout.inner)
    sLog = smem.allocate_tensor(Float32, cute.make_layout(C), byte_alignment=16)  # log2 of each step's decay
    sG = smem.allocate_tensor(Float32, cute.make_layout(C), byte_alignment=16)  # from the chunk's beginning to a step
    sW = smem.allocate_tensor(Float32, cute.make_layout(C), byte_alignment=16)  # what a step's k v has at the end
    sBad = smem.allocate_tensor(Int32, cute.make_layout(THREADS // 32), byte_alignment=16)

    thr_mma = tiled_mma.get_slice(thread)
    rScore = cute.make_rmem_tensor(tiled_mma.partition_shape_C((C, C)), Float32)  # ((2, 2 rows), 1, C / 8)
    rO = cute.make_rmem_tensor(tiled_mma.partition_shape_C((C, NV)), Float32)
    rState = cute.make_rmem_tensor(tiled_mma.partition_shape_C((D, NV)), Float32)
    rState.fill(0.0)
    # Two neighbouring 16x8 accumulators are, register for register, one 16x16 operand.
    rP = cute.make_tensor(rScore.iterator, cute.make_layout(((2, 2, 2), 1, C // 16)))
    rPs = [cute.make_rmem_tensor(rP[None, None, 0].layout, dtype) for _ in range(2)]
    cScore, cO = [thr_mma.partition_C(cute.make_identity_tensor((C, n))) for n in (C, NV)]
    cKt = thr_mma.partition_A(cute.make_identity_tensor((D, C)))

    plain = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), dtype)
    turned = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(True, 4), dtype)
    copy_Q, copy_Kt = [cute.make_tiled_copy_A(x, tiled_mma).get_slice(thread) for x in (plain, turned)]
    copy_K, copy_V = [cute.make_tiled_copy_B(x, tiled_mma).get_slice(thread) for x in (plain, turned)]
    sKt, sVt, sSt = transposed(sK), transposed(sV), transposed(sS)  # (D, C), (NV, C), (NV, D)
    rQ = tiled_mma.make_fragment_A(thr_mma.partition_A(sQ[None, None, 0]))
    rK = tiled_mma.make_fragment_B(thr_mma.partition_B(sK[None, None, 0]))
    rS = tiled_mma.make_fragment_B(thr_mma.partition_B(sSt[None, None, 0]))
    rV = tiled_mma.make_fragment_B(thr_mma.partition_B(sVt[None, None, 0]))
    rKt = tiled_mma.make_fragment_A(thr_mma.partition_A(sKt[None, None, 0]))
    rWeighted = cute.make_rmem_tensor(rKt[None, None, 0].layout, Float32)
    rKts = [cute.make_rmem_tensor(rWeighted.layout, dtype) for _ in range(2)]
    tCsS = thr_mma.partition_C(sS)

    load_chunk(gQ, gK, gV, sQ, sK, sV, Int32(0), part)
    logarithm = load_decay(gGate, thread)
    probe = Float32(0.0)  # NaN from the first number on that is not finite
    for chunk in cutlass.range(chunks, unroll=1):
        stage = chunk % 2
        if thread < C:
            sLog[thread] = logarithm
        for m in range_constexpr(cute.size(rState, mode=[1])):
            rHigh, rLow = [cute.make_rmem_tensor(rState[None, m, None].layout, dtype) for _ in range(2)]
            split(rState[None, m, None], rHigh, rLow)
            cute.autovec_copy(rHigh, tCsS[None, m, None, 0])
            cute.autovec_copy(rLow, tCsS[None, m, None, 1])
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # chunk and state are here, and everyone has left the chunk before
        if chunk + 1 < chunks:
            load_chunk(gQ, gK, gV, sQ, sK, sV, chunk + 1, part)
        if thread < C:
            before, after = Float32(0.0), Float32(0.0)
            for t in cutlass.range(C, unroll=8):  # two sums, no difference: it has the digits of the larger one
                before = before + (sLog[t] if t <= thread else Float32(0.0))
                after = after + (sLog[t] if t > thread else Float32(0.0))
            sG[thread], sW[thread] = before, cute.math.exp2(after, fastmath=True)
        logarithm = load_decay(gGate, (chunk + 1) * C + thread)  # it arrives beside the products

        rScore.fill(0.0)
        rO.fill(0.0)
        tXsQ, tXsK = copy_Q.partition_S(sQ[None, None, stage]), copy_K.partition_S(sK[None, None, stage])
        tXsS = copy_V.partition_S(sSt)
        for k in range_constexpr(D // 16):  # Q K^T, and Q S of the chunk's beginning
            cute.copy(plain, tXsQ[None, None, k], copy_Q.retile(rQ)[None, None, k])
            cute.copy(plain, tXsK[None, None, k], copy_K.retile(rK)[None, None, k])
            cute.gemm(tiled_mma, rScore, rQ[None, None, k], rK[None, None, k], rScore)
            for half in range_constexpr(2):
                cute.copy(turned, tXsS[None, None, k, half], copy_V.retile(rS)[None, None, k])
                cute.gemm(tiled_mma, rO, rQ[None, None, k], rS[None, None, k], rO)
        cute.arch.sync_threads()  # the logarithms are added, and everyone has read the state

        for i in range_constexpr(cute.size(rScore)):
            row, column = cScore[i]
            decay = cute.math.exp2(sG[row] - sG[column], fastmath=True)
            rScore[i] = rScore[i] * decay if column <= row else Float32(0.0)
        for i in range_constexpr(cute.size(rO)):
            rO[i] = rO[i] * cute.math.exp2(sG[cO[i][0]], fastmath=True)
        rState.store(rState.load() * cute.math.exp2(sG[C - 1], fastmath=True))
        tXsV, tXsKt = copy_V.partition_S(sVt[None, None, stage]), copy_Kt.partition_S(sKt[None, None, stage])
        for k in range_constexpr(C // 16):  # P V, and K^T V with what is left of each step at the chunk's end
            cute.copy(turned, tXsV[None, None, k], copy_V.retile(rV)[None, None, k])
            cute.copy(turned, tXsKt[None, None, k], copy_Kt.retile(rKt)[None, None, k])
            for i in range_constexpr(cute.size(rWeighted)):
                rWeighted[i] = rKt[None, None, k][i].to(Float32) * sW[cKt[None, None, k][i][1]]
            split(rWeighted, *rKts)
            split(rP[None, None, k], *rPs)
            for half in range_constexpr(2):
                cute.gemm(tiled_mma, rO, rPs[half], rV[None, None, k], rO)
                cute.gemm(tiled_mma, rState, rKts[half], rV[None, None, k], rState)
        rO.store(rO.load() * scale)
        store_tile(tiled_mma, rO, gO, (C, NV), (chunk, part))
        probe = (rO.load() * 0.0).reduce(cute.ReductionOp.ADD, probe, 0)
    store_tile(tiled_mma, rState, gState, (D, NV), (0, part))
    probe = (rState.load() * 0.0).reduce(cute.ReductionOp.ADD, probe, 0)

    bad = cute.arch.vote_any_sync(probe != 0.0)
    if thread % 32 == 0:
        sBad[thread // 32] = Int32(1) if bad else Int32(0)
    cute.arch.sync_threads()
    if (sBad[0] | sBad[1] | sBad[2] | sBad[3]) != 0:
        sState = cute.make_tensor(
            cute.recast_ptr(sS.iterator, dtype=Float32), cute.make_layout((D, NV), stride=(NV, 1))
        )
        step_by_step(gQ, gK, gV, gO, gGate, gState, sState, part, scale)


@cute.jit
def linear_attention(
    mQ: cute.Tensor,  # (batch, heads, length, dk)
    mK: cute.Tensor,
    mV: cute.Tensor,  # (batch, heads, length, dv)
    mO: cute.Tensor,
    mGate: cute.Tensor,  # (batch, heads, length)
    mState: cute.Tensor,  # (batch, heads, dk, dv)
    scale: Float32,
    D: cutlass.Constexpr,
    NV: cutlass.Constexpr,
    stream,
):
    tiled_mma = cute.make_tiled_mma(
        warp.MmaF16BF16Op(mQ.element_type, Float32, (16, 8, 16)),
        cute.make_layout((4, 1, 1)),
        permutation_mnk=(64, 16, 16),
    )
    batch, heads, _, columns = mV.shape
    # Another order in memory, such as (batch, length, heads, dk), changes these two lines alone.
    rows_first = [
        cute.make_tensor(x.iterator, cute.select(x.layout, mode=[2, 3, 1, 0])) for x in (mQ, mK, mV, mO, mState)
    ]
    gates = cute.make_tensor(mGate.iterator, cute.select(mGate.layout, mode=[2, 1, 0]))
    layouts = [swizzled_layout(*tile, 2) for tile in ((C, D), (C, NV), (D, NV))]
    linear_attention_kernel(*rows_first[:4], gates, rows_first[4], scale, tiled_mma, *layouts).launch(
        grid=(cute.ceil_div(columns, NV), heads, batch), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(D: int):
    """One kernel for all lengths, heads and strides, and for dk up to D; rows are contiguous and begin at 16 bytes."""
    batch, heads, length = (cute.sym_int() for _ in range(3))
    dk, dv = (cute.sym_int(divisibility=VECTOR) for _ in range(2))

    def fake(dtype, rows, columns):
        strides = tuple(cute.sym_int64(divisibility=VECTOR) for _ in range(3))
        return make_fake_tensor(dtype, (batch, heads, rows, columns), (*strides, 1), assumed_align=16)

    gate = make_fake_tensor(Float32, (batch, heads, length), tuple(cute.sym_int64() for _ in range(3)), assumed_align=4)
    rows = [fake(BFloat16, length, columns) for columns in (dk, dk, dv, dv)]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    columns = 64 if D <= 128 else 32  # of the state: 64 registers a thread at most
    return cute.compile(
        linear_attention,
        *rows,
        gate,
        fake(Float32, dk, dv),
        Float32(1.0),
        D,
        columns,
        stream,
        options="--enable-tvm-ffi",
    )


def kernel_fn(query, key, value, gate):
    dk = query.shape[-1]
    if not 0 < dk <= 256:
        raise ValueError(f"keys of {dk} numbers: the tiles are for 256 at most")
    out = value.new_empty(value.shape)
    state = torch.empty(*value.shape[:2], dk, value.shape[-1], device=value.device, dtype=torch.float32)
    if state.numel():
        compiled(64 if dk <= 64 else 128 if dk <= 128 else 256)(query, key, value, out, gate, state, dk**-0.5)
    return out, state


def reference_fn(query, key, value, gate):
    batch, heads, length, dk = query.shape
    state = torch.zeros(batch, heads, dk, value.shape[-1], device=gate.device, dtype=gate.dtype)
    decay = torch.sigmoid(gate)
    q, k, v = (x.to(gate.dtype) for x in (query, key, value))
    out = []
    for t in range(length):
        state = state * decay[:, :, t, None, None] + k[:, :, t, :, None] * v[:, :, t, None]
        out.append((q[:, :, t, None] @ state)[:, :, 0] * dk**-0.5)
    return torch.stack(out, dim=2).to(value.dtype), state


def get_inputs(batch=4, heads=16, length=2048, dk=128, dv=128):
    shapes = ((batch, heads, length, width) for width in (dk, dk, dv))
    tensors = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    return [*tensors, torch.randn(batch, heads, length, device="cuda") + 3.0]


def get_input_sets():
    yield get_inputs(1, 2, 150, 64, 40)
    yield get_inputs(2, 1, 64, 72, 128)
    yield get_inputs(1, 1, 1, 16, 8)
