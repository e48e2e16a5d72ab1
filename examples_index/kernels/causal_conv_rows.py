"""Causal depthwise convolution over time, channels last: each row is a weighted sum of itself and three rows before.

Shows a stencil over rows: a thread owns a vector of channels and walks down a strip of rows with the last rows in
registers, so that each element is loaded once. Only the halo of a strip, three rows above it, is loaded by two
blocks; what lies before the first row of a sequence is zero.
Prediction for bf16 8 x 4096 x 4096 on an H200: 537 MB and a halo of 3 rows for 64, 5 %: 129 us at 4.26 TB/s.

Arch: sm_80+
Operation: convolution
Features: vectorized_copy, stencil, predication
Start here when an element needs its neighbours in time or space and rows lie one after the other: causal
convolutions, finite differences, smoothing.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
THREADS = 128  # of a block, side by side along the channels
MOST_TAPS = 8  # rows and weights that a thread holds in registers
ROWS = 64  # of a strip: the more, the less of the halo is loaded twice; the fewer, the more blocks there are


@cute.kernel
def conv_kernel(
    mX: cute.Tensor,
    mW: cute.Tensor,
    mBias: cute.Tensor,
    mY: cute.Tensor,
    vector: cutlass.Constexpr,
):
    """One strip of ROWS rows of one sequence; mW is (taps, channels), so that a thread reads vectors of it."""
    thread, _, _ = cute.arch.thread_idx()
    block, strip, sequence = cute.arch.block_idx()
    taps, channels, dtype = const_expr(mW.shape[0]), const_expr(mX.shape[2]), mX.element_type
    index = block * THREADS + thread
    first, rows = strip * ROWS, cute.size(mX, mode=[1])
    if index * vector < channels:
        rW = cute.make_rmem_tensor((vector, taps), dtype)
        rBias = cute.make_rmem_tensor((vector,), dtype)
        for k in range_constexpr(taps):
            cute.autovec_copy(cute.zipped_divide(mW[k, None], (vector,))[None, index], rW[None, k])
        cute.autovec_copy(cute.zipped_divide(mBias, (vector,))[None, index], rBias)
        bias = rBias.load().to(Float32)

        # the window: tap k of the next row stands in column k, the newest row in the last
        window = cute.make_rmem_tensor((vector, taps), dtype)
        window.fill(0)
        for k in range_constexpr(taps - 1):
            above = first - (taps - 1) + k
            if above >= 0:
                gX = cute.zipped_divide(mX[sequence, above, None], (vector,))
                cute.autovec_copy(gX[None, index], window[None, k])
        rY = cute.make_rmem_tensor((vector,), dtype)
        for row in range(first, cutlass.min(first + ROWS, rows), unroll=4):
            gX = cute.zipped_divide(mX[sequence, row, None], (vector,))
            gY = cute.zipped_divide(mY[sequence, row, None], (vector,))
            cute.autovec_copy(gX[None, index], window[None, taps - 1])
            total = bias
            for k in range_constexpr(taps):
                total = total + window[None, k].load().to(Float32) * rW[None, k].load().to(Float32)
            rY.store((total / (1.0 + cute.math.exp(-total))).to(dtype))  # SiLU
            cute.autovec_copy(rY, gY[None, index])
            for k in range_constexpr(taps - 1):  # registers are renamed where the loop is unrolled: no move is left
                window[None, k].store(window[None, k + 1].load())


@cute.jit
def conv(mX: cute.Tensor, mW: cute.Tensor, mBias: cute.Tensor, mY: cute.Tensor, vector: cutlass.Constexpr, stream):
    strips = cute.ceil_div(cute.size(mX, mode=[1]), ROWS)
    blocks = const_expr(-(-mX.shape[2] // (vector * THREADS)))
    conv_kernel(mX, mW, mBias, mY, vector).launch(
        grid=(blocks, strips, cute.size(mX, mode=[0])), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, channels: int, taps: int):
    """The kernel for so many channels and taps; raises ValueError beyond what the registers hold."""
    if not 0 < taps <= MOST_TAPS:
        raise ValueError(f"{taps} taps: from 1 to {MOST_TAPS} rows stay in registers")
    vector = math.gcd(channels, 16 // dtype.itemsize)
    batch, rows = cute.sym_int(), cute.sym_int()

    def sequences():
        shape = (batch, rows, channels)
        return make_fake_compact_tensor(DTYPES[dtype], shape, stride_order=(2, 1, 0), assumed_align=16)

    weights = make_fake_compact_tensor(DTYPES[dtype], (taps, channels), stride_order=(1, 0), assumed_align=16)
    bias = make_fake_compact_tensor(DTYPES[dtype], (channels,), assumed_align=16)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(conv, sequences(), weights, bias, sequences(), vector, stream, options="--enable-tvm-ffi")


def kernel_fn(x, weight, bias):
    y = torch.empty_like(x)
    if x.numel():
        compiled(x.dtype, x.shape[2], weight.shape[0])(x, weight, bias, y)
    return y


def reference_fn(x, weight, bias):
    taps, channels = weight.shape
    padded = torch.nn.functional.pad(x.float(), (0, 0, taps - 1, 0))
    total = bias.float() + sum(padded[:, k : k + x.shape[1]] * weight[k].float() for k in range(taps))
    return torch.nn.functional.silu(total).to(x.dtype)


def get_inputs(batch=8, rows=4096, channels=4096, taps=4, dtype=torch.bfloat16):
    x = torch.randn(batch, rows, channels, device="cuda", dtype=dtype)
    weight = torch.randn(taps, channels, device="cuda", dtype=dtype)
    return [x, weight, torch.randn(channels, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(2, 131, 72, 4, torch.float16)
    yield get_inputs(1, 65, 5, 3, torch.float32)
