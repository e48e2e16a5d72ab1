"""Quantisation to int8 with one scale a row: q = round(x / scale), scale = max |x| / 127; two outputs of two dtypes.

Shows a row kernel whose outputs differ in type and shape, rounding to nearest even, saturation, and 8-byte stores that
pack eight results of a 16-byte load.

Arch: sm_80+
Operation: quantize
Features: vectorized_copy, warp_shuffle, block_reduction, smem, amax, multiple_outputs, int8
Start here when a kernel converts to a narrow type.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int8, Int32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
VECTOR = 8
ELEMENTS_PER_THREAD = 16  # aimed at: many loads in flight from many small threads saturate the memory
MAX_ELEMENTS_PER_THREAD = 64


@cute.jit
def max_over_block(value: Float32, sPartial: cute.Tensor):
    """The largest `value` (none is negative) of all threads of the block, for every thread; NaN if one is NaN."""
    value = cute.arch.warp_reduction(value, largest)
    warps = const_expr(cute.size(sPartial))
    if const_expr(warps > 1):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        if lane == 0:
            sPartial[warp] = value
        cute.arch.sync_threads()
        value = Float32(0.0)
        if lane < warps:
            value = sPartial[lane]
        value = cute.arch.warp_reduction(value, largest)
    return value


def largest(a, b):
    return cute.arch.fmax(a, b, nan=True)


@cute.kernel
def quantize_kernel(mX: cute.Tensor, mQ: cute.Tensor, mScale: cute.Tensor, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    sPartial = SmemAllocator().allocate_tensor(Float32, cute.make_layout(threads // 32), byte_alignment=16)
    gX, gQ = (cute.zipped_divide(m[row, None], (VECTOR,)) for m in (mX, mQ))
    vectors = const_expr(cute.size(gX, mode=[1]))
    chunks = const_expr(-(-vectors // threads))
    rX = cute.make_rmem_tensor((VECTOR, chunks), mX.element_type)
    rX.fill(0)
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread
        if index < vectors:
            cute.autovec_copy(gX[None, index], rX[None, chunk])

    x = rX.load().to(Float32)
    magnitude = Float32(0.0)
    for i in range_constexpr(VECTOR * chunks):
        magnitude = largest(magnitude, cute.math.absf(x[i]))
    magnitude = max_over_block(magnitude, sPartial)
    scale = magnitude / 127.0  # a true division: x * (1 / 127) differs in the last bit, and then q in some elements
    if thread == 0:
        mScale[row] = scale
    inverse = 1.0 / scale
    if not ((scale > 0.0) & (scale < Float32.inf)):  # a row of zeros, or one with a NaN or Inf: all 0
        inverse = Float32(0.0)
        rX.fill(0)

    # Adding 1.5 * 2**23 rounds to the nearest integer, ties to even, and leaves it in the low bits: |q| <= 127, so that
    # the last byte is q. An add costs an eighth of what the conversion instructions cost, and there would be three. Its
    # rounding mode keeps it apart from the product: fused into one fma, ties would fall otherwise than in PyTorch.
    product = rX.load().to(Float32) * inverse
    rShifted = cute.make_rmem_tensor((VECTOR, chunks), Float32)
    for i in range_constexpr(VECTOR * chunks):
        rShifted[i] = cute.math.add(product[i], Float32(12582912.0), rounding=cute.math.RoundingMode.NEAREST_EVEN)
    rQ = cute.make_rmem_tensor((VECTOR, chunks), Int8)
    rQ.store(cute.recast_tensor(rShifted, Int32).load().to(Int8))
    for chunk in range_constexpr(chunks):
        index = chunk * threads + thread
        if index < vectors:
            cute.autovec_copy(rQ[None, chunk], gQ[None, index])


@cute.jit
def quantize(mX: cute.Tensor, mQ: cute.Tensor, mScale: cute.Tensor, threads: cutlass.Constexpr, stream):
    quantize_kernel(mX, mQ, mScale, threads).launch(grid=(mX.shape[0], 1, 1), block=(threads, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype, columns: int):
    """The kernel for rows of `columns` elements; raises ValueError unless they are whole vectors that fit a block."""
    threads = min(1024, max(32, 1 << (columns // ELEMENTS_PER_THREAD - 1).bit_length()))
    if columns % VECTOR or columns > threads * MAX_ELEMENTS_PER_THREAD:
        raise ValueError(f"rows of {columns} elements: a multiple of {VECTOR} up to {1024 * MAX_ELEMENTS_PER_THREAD}")
    rows = cute.sym_int()
    x = make_fake_compact_tensor(DTYPES[dtype], (rows, columns), stride_order=(1, 0), assumed_align=16)
    q = make_fake_compact_tensor(Int8, (rows, columns), stride_order=(1, 0), assumed_align=VECTOR)
    scale = make_fake_compact_tensor(Float32, (rows,))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(quantize, x, q, scale, threads, stream, options="--enable-tvm-ffi")


def kernel_fn(x):
    q = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    if x.numel():
        compiled(x.dtype, x.shape[1])(x, q, scale)
    return q, scale


def reference_fn(x):
    scale = x.float().abs().amax(dim=-1) / 127.0
    inverse = torch.where(scale > 0, 1.0 / scale, 0.0)
    return torch.round(x.float() * inverse[:, None]).to(torch.int8), scale


def get_inputs(rows=16384, columns=8192, dtype=torch.bfloat16):
    return [torch.randn(rows, columns, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(5, 1000, torch.float16)
    x = get_inputs(4, 64)[0]
    x[1] = 0
    yield [x]
