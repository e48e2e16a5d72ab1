"""Cross entropy of logits over a large vocabulary, one pass: maximum and sum of exponentials are kept together.

Shows an online reduction of two values that depend on each other: each thread walks the row with a (maximum, sum) pair
and rescales the sum when the maximum grows; pairs are then merged over the warp and the block. The row is too long for
registers, and is read once. `target == ignore` gives a loss of 0.

Arch: sm_80+
Operation: cross_entropy
Features: vectorized_copy, online_softmax, warp_shuffle, block_reduction, smem, dynamic_layout
Start here when rows do not fit into registers, or a reduction carries more than one value.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
THREADS = 256
WARPS = THREADS // 32
UNROLL = 4  # vectors a thread loads before it uses the first
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
LOWEST = -3.0e38  # stands for "nothing seen": -inf would give NaN in -inf - -inf


@cute.jit
def merge(maximum: Float32, total: Float32, other_maximum: Float32, other_total: Float32):
    """(maximum, sum of exp(x - maximum)) of two sets of elements together."""
    highest = cute.arch.fmax(maximum, other_maximum)
    total = total * cute.math.exp2((maximum - highest) * LOG2_E, fastmath=True)
    other_total = other_total * cute.math.exp2((other_maximum - highest) * LOG2_E, fastmath=True)
    return highest, total + other_total


@cute.jit
def merge_lanes(maximum: Float32, total: Float32, lanes: cutlass.Constexpr):
    for step in range_constexpr(int(math.log2(lanes))):
        other_maximum = cute.arch.shuffle_sync_bfly(maximum, offset=1 << step)
        other_total = cute.arch.shuffle_sync_bfly(total, offset=1 << step)
        maximum, total = merge(maximum, total, other_maximum, other_total)
    return maximum, total


@cute.kernel
def cross_entropy_kernel(
    mX: cute.Tensor, mTarget: cute.Tensor, mLoss: cute.Tensor, ignore: Int32, vector: cutlass.Constexpr
):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    smem = SmemAllocator()
    sMax = smem.allocate_tensor(Float32, cute.make_layout(WARPS), byte_alignment=16)
    sSum = smem.allocate_tensor(Float32, cute.make_layout(WARPS), byte_alignment=16)
    gX = cute.zipped_divide(mX[row, None], (vector,))
    vectors = cute.size(gX, mode=[1])  # known at run time only: one kernel for every vocabulary
    rX = cute.make_rmem_tensor((vector, UNROLL), mX.element_type)

    maximum, total = Float32(LOWEST), Float32(0.0)
    for base in cutlass.range(thread, vectors, THREADS * UNROLL, unroll=1):
        for u in range_constexpr(UNROLL):
            rX[None, u].fill(-math.inf)
            index = base + u * THREADS
            if index < vectors:
                cute.autovec_copy(gX[None, index], rX[None, u])
        x = rX.load().to(Float32)
        highest = x.reduce(cute.ReductionOp.MAX, maximum, 0)
        total = total * cute.math.exp2((maximum - highest) * LOG2_E, fastmath=True)
        powers = cute.math.exp2((x - highest) * LOG2_E, fastmath=True)  # NaN and inf come through here
        total = powers.reduce(cute.ReductionOp.ADD, total, 0)
        maximum = highest

    maximum, total = merge_lanes(maximum, total, 32)
    lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
    if lane == 0:
        sMax[warp], sSum[warp] = maximum, total
    cute.arch.sync_threads()
    if warp == 0:
        maximum, total = Float32(LOWEST), Float32(0.0)
        if lane < WARPS:
            maximum, total = sMax[lane], sSum[lane]
        maximum, total = merge_lanes(maximum, total, const_expr(WARPS))
        if lane == 0:
            target, loss = Int32(mTarget[row]), Float32(0.0)
            if target != ignore:
                logit = mX[row, target].to(Float32)
                loss = cute.math.log2(total, fastmath=True) * LN_2 + (maximum - logit)
            mLoss[row] = loss


@cute.jit
def cross_entropy(
    mX: cute.Tensor, mTarget: cute.Tensor, mLoss: cute.Tensor, ignore: Int32, vector: cutlass.Constexpr, stream
):
    cross_entropy_kernel(mX, mTarget, mLoss, ignore, vector).launch(
        grid=(cute.size(mX, mode=[0]), 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, vector: int):
    """One kernel for all numbers of rows, and of classes that `vector` divides."""
    rows, classes = cute.sym_int(), cute.sym_int(divisibility=vector)
    align = min(16, vector * dtype.itemsize)
    x = make_fake_compact_tensor(DTYPES[dtype], (rows, classes), stride_order=(1, 0), assumed_align=align)
    target = make_fake_compact_tensor(cutlass.Int64, (rows,))
    loss = make_fake_compact_tensor(Float32, (rows,))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(cross_entropy, x, target, loss, Int32(0), vector, stream, options="--enable-tvm-ffi")


def kernel_fn(logits, target, ignore):
    loss = torch.empty(target.shape, dtype=torch.float32, device=logits.device)
    classes = logits.shape[-1]
    if classes == 0:
        raise ValueError("there are no classes")
    if loss.numel():
        vector = math.gcd(classes, 16 // logits.element_size())
        compiled(logits.dtype, vector)(logits.view(-1, classes), target.view(-1), loss.view(-1), ignore)
    return loss


def reference_fn(logits, target, ignore):
    rows = logits.float().flatten(0, -2)
    loss = torch.nn.functional.cross_entropy(rows, target.flatten(), ignore_index=ignore, reduction="none")
    return loss.view(target.shape)


def get_inputs(batch=128, tokens=64, classes=32768, dtype=torch.bfloat16):
    logits = torch.randn(batch, tokens, classes, device="cuda", dtype=dtype)
    target = torch.randint(classes, (batch, tokens), device="cuda")
    target[:, ::5] = -100
    return [logits, target, -100]


def get_input_sets():
    yield get_inputs(1, 6, 2000, torch.float16)
    yield get_inputs(1, 7, 129, torch.float32)
