"""Rotary position embedding of queries or keys: halves of the head dimension rotated by position-dependent angles.

Shows indexing by several coordinates at once: a tensor (batch, sequence, heads, dim) of any strides, tables (sequence,
dim / 2) shared by batch and heads, and one thread that owns the vectors which are rotated into each other.

Arch: sm_80+
Operation: rope
Features: vectorized_copy, broadcast, strided
Start here when a kernel addresses tensors of three or four dimensions.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream, make_fake_tensor

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
THREADS = 256
VECTOR = 8  # 16-bit elements of a 16-byte access


@cute.kernel
def rope_kernel(mX: cute.Tensor, mCos: cute.Tensor, mSin: cute.Tensor, mY: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    batches, length, heads, dim = mX.shape
    half = dim // 2
    across = half // VECTOR  # vectors of half a head
    index = block * THREADS + thread
    # The last coordinate runs fastest: neighbouring threads touch neighbouring vectors.
    column, index = index % across, index // across
    head, index = index % heads, index // heads
    position, batch = index % length, index // length
    if batch < batches:
        gX, gY = (cute.zipped_divide(m[batch, position, head, None], (VECTOR,)) for m in (mX, mY))
        gCos, gSin = (cute.zipped_divide(m[position, None], (VECTOR,)) for m in (mCos, mSin))
        rLow, rHigh, rOut = (cute.make_rmem_tensor((VECTOR,), mX.element_type) for _ in range(3))
        rCos, rSin = (cute.make_rmem_tensor((VECTOR,), Float32) for _ in range(2))
        cute.autovec_copy(gX[None, column], rLow)
        cute.autovec_copy(gX[None, column + across], rHigh)
        cute.autovec_copy(gCos[None, column], rCos)
        cute.autovec_copy(gSin[None, column], rSin)
        low, high = rLow.load().to(Float32), rHigh.load().to(Float32)
        cos, sin = rCos.load(), rSin.load()
        rOut.store((low * cos - high * sin).to(mY.element_type))
        cute.autovec_copy(rOut, gY[None, column])
        rOut.store((high * cos + low * sin).to(mY.element_type))
        cute.autovec_copy(rOut, gY[None, column + across])


@cute.jit
def rope(mX: cute.Tensor, mCos: cute.Tensor, mSin: cute.Tensor, mY: cute.Tensor, stream):
    blocks = cute.ceil_div(cute.size(mX), 2 * VECTOR * THREADS)
    rope_kernel(mX, mCos, mSin, mY).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype, dim: int):
    """One kernel a head dimension, a multiple of 16; everything else is open."""
    if dim % (2 * VECTOR):
        raise ValueError(f"head dimension {dim} is not a multiple of {2 * VECTOR}")
    batch, length, heads = (cute.sym_int() for _ in range(3))

    def fake():
        strides = tuple(cute.sym_int64(divisibility=VECTOR) for _ in range(3))
        return make_fake_tensor(DTYPES[dtype], (batch, length, heads, dim), (*strides, 1), assumed_align=16)

    tables = [
        make_fake_compact_tensor(Float32, (length, dim // 2), stride_order=(1, 0), assumed_align=16) for _ in range(2)
    ]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(rope, fake(), *tables, fake(), stream, options="--enable-tvm-ffi")


def kernel_fn(x, cos, sin):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        compiled(x.dtype, x.shape[-1])(x, cos, sin, y)
    return y


def reference_fn(x, cos, sin):
    low, high = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1).to(x.dtype)


def get_inputs(batch=4, length=4096, heads=32, dim=128, dtype=torch.bfloat16):
    angles = torch.rand(length, dim // 2, device="cuda") * 6.283185307179586
    return [torch.randn(batch, length, heads, dim, device="cuda", dtype=dtype), angles.cos(), angles.sin()]


def get_input_sets():
    yield get_inputs(2, 5, 3, 64, torch.float16)
    x, cos, sin = get_inputs(1, 7, 6, 32)
    yield [x[:, :, ::2], cos, sin]  # every other head
