"""Softmax over segments of different length that lie one after the other: y[begin:end] = softmax(x[begin:end]).

Shows work whose size is data: `offsets` say where each segment begins, a warp takes a segment, and its lanes walk it in
strides. One pass keeps the largest value and the sum of exponentials of each lane, shuffles join the lanes, a second
pass writes; it reads from L1 or L2 what the first brought. Conditions that hold for a whole warp may stand around
shuffles, those of single lanes may not. The maximum is never -inf beneath an exponential: -inf - -inf would be NaN.
Not timed: of 64 Mi float32 in 262144 segments the bytes alone, 537 MB, take 180 us at an H100's 2.98 TB/s.

Arch: sm_80+
Operation: softmax
Features: varlen, online_softmax, warp_shuffle, predication, tvm_ffi
Start here when rows have different lengths: softmax, sums or extremes over segments, edges of a graph's nodes.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int64
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: cutlass.Float32}
WARPS = 8  # of a block, each with a segment
LOG2_E = 1.4426950408889634
LOWEST = -1e30  # a finite stand-in for the maximum of a lane that has seen -inf alone, or nothing
EMULATED_SIZES = {"segments": 60, "mean_length": 70}  # of get_inputs: `x` and `offsets` cannot shrink one by one


@cute.kernel
def segment_softmax_kernel(mX: cute.Tensor, mOffsets: cute.Tensor, mY: cute.Tensor):
    lane, warp = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx())
    block, _, _ = cute.arch.block_idx()
    segment = block * WARPS + warp
    if segment + 1 < mOffsets.shape[0]:  # the same for all lanes of the warp
        begin, end = mOffsets[segment], mOffsets[segment + 1]
        top, total = Float32(LOWEST), Float32(0.0)
        for i in cutlass.range(begin + lane, end, 32, unroll=4):
            value = mX[i].to(Float32) * LOG2_E
            before = top
            top = cute.arch.fmax(top, value, nan=True)
            total = total * cute.math.exp2(before - top, fastmath=True) + cute.math.exp2(value - top, fastmath=True)
        most = cute.arch.warp_reduction(top, larger)
        total = cute.arch.warp_reduction_sum(total * cute.math.exp2(top - most, fastmath=True))
        inverse = 1.0 / total
        for i in cutlass.range(begin + lane, end, 32, unroll=4):
            probability = cute.math.exp2(mX[i].to(Float32) * LOG2_E - most, fastmath=True) * inverse
            mY[i] = probability.to(mY.element_type)


def larger(a, b):
    return cute.arch.fmax(a, b, nan=True)


@cute.jit
def segment_softmax(mX: cute.Tensor, mOffsets: cute.Tensor, mY: cute.Tensor, stream):
    blocks = cute.ceil_div(mOffsets.shape[0] - 1, WARPS)
    segment_softmax_kernel(mX, mOffsets, mY).launch(grid=(blocks, 1, 1), block=(32 * WARPS, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype):
    """One kernel for all numbers and lengths of segments."""
    count = cute.sym_int()
    x, y = (make_fake_compact_tensor(DTYPES[dtype], (count,)) for _ in range(2))
    offsets = make_fake_compact_tensor(Int64, (cute.sym_int(),))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(segment_softmax, x, offsets, y, stream, options="--enable-tvm-ffi")


def kernel_fn(x, offsets):
    """x (elements,); offsets (segments + 1,) int64, from 0 to the number of elements, ascending."""
    y = torch.empty_like(x)
    if x.numel():
        compiled(x.dtype)(x, offsets, y)
    return y


def reference_fn(x, offsets):
    if int(offsets[0]) != 0 or int(offsets[-1]) != x.shape[0]:
        raise ValueError("offsets begin at 0 and end at the number of elements")
    segments = torch.arange(offsets.shape[0] - 1, device=x.device)
    segment = segments.repeat_interleave(offsets.diff())  # raises for lengths below 0
    top = torch.full(segments.shape, -torch.inf, device=x.device).scatter_reduce(0, segment, x.float(), "amax")
    power = (x.float() - top[segment]).exp()
    total = torch.zeros(segments.shape, device=x.device).index_add(0, segment, power)
    return (power / total[segment]).to(x.dtype)


def get_inputs(segments=262144, mean_length=256, dtype=torch.float32):
    lengths = torch.randint(0, 2 * mean_length + 1, (segments,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return [torch.randn(int(offsets[-1]), device="cuda", dtype=dtype), offsets.cuda()]


def get_input_sets():
    yield get_inputs(3, 400, torch.bfloat16)
    yield [torch.randn(700, device="cuda", dtype=torch.float16), torch.tensor([0, 0, 1, 33, 33, 700], device="cuda")]
