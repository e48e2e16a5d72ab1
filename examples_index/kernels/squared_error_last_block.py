"""Mean squared error of two tensors in one launch: every block adds up a share, the last one to end adds up the shares.

Shows how a total over the whole grid needs no second launch. A block stores its partial sum and adds 1 to a counter
with release and acquire at the scope of the GPU: who finds that all others were there before may read what they stored.
It adds the partial sums in a fixed order, so that results have the same bits each time, and sets the counter back to 0
for the next launch. The counter is made once for each stream, as launches of one stream follow each other.
float32 2 x 64M: 537 MB, predicted 0.18 ms at 3 TB/s; what the second launch would cost is about 3 us.

Arch: sm_80+
Operation: reduction
Features: vectorized_copy, warp_shuffle, block_reduction, smem, atomics
Start here when one number comes from the whole of large tensors, or the last block has to end the work of all.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int32, Int64, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
THREADS = 256
WARPS = THREADS // 32
UNROLL = 4  # vectors of each tensor that a thread has in flight
MOST_BLOCKS = 1024  # about eight for each multiprocessor; also the partial sums that the last block reads


@cute.jit
def reduce_block(value: Float32, shared: cute.Tensor) -> Float32:
    """The sum of `value` over the block, in every thread."""
    value = cute.arch.warp_reduction_sum(value)
    lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()  # outside of the branch: warp_idx shuffles
    if lane == 0:
        shared[warp] = value
    cute.arch.sync_threads()
    total = Float32(0.0)
    for w in range_constexpr(WARPS):
        total = total + shared[w]
    return total


@cute.kernel
def squared_error_kernel(
    mX: cute.Tensor,  # (elements,)
    mY: cute.Tensor,
    mPartial: cute.Tensor,  # (blocks,)
    mArrived: cute.Tensor,  # (1,): blocks that have stored their partial sum; 0 before and after each launch
    mTotal: cute.Tensor,  # (1,)
    vector: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    smem = SmemAllocator()
    sPartial = smem.allocate_tensor(Float32, cute.make_layout(WARPS), byte_alignment=16)
    sTotal = smem.allocate_tensor(Float32, cute.make_layout(WARPS), byte_alignment=16)
    sLast = smem.allocate_tensor(Int32, cute.make_layout(1), byte_alignment=16)

    gX, gY = cute.zipped_divide(mX, (vector,)), cute.zipped_divide(mY, (vector,))
    vectors = Int64(cute.size(gX, mode=[1]))
    rX = cute.make_rmem_tensor((vector, UNROLL), mX.element_type)
    rY = cute.make_rmem_tensor((vector, UNROLL), mY.element_type)
    total = Float32(0.0)
    step = Int64(blocks) * THREADS
    for turn in cutlass.range((vectors + UNROLL * step - 1) // (UNROLL * step)):
        first = turn * UNROLL * step + Int64(block) * THREADS + thread
        rX.fill(0)
        rY.fill(0)
        for u in range_constexpr(UNROLL):
            if first + u * step < vectors:
                cute.autovec_copy(gX[None, first + u * step], rX[None, u])
                cute.autovec_copy(gY[None, first + u * step], rY[None, u])
        difference = rX.load().to(Float32) - rY.load().to(Float32)
        total = total + (difference * difference).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
    total = reduce_block(total, sPartial)

    if thread == 0:
        mPartial[block] = total
        # Release: a block that sees this addition sees the store above. Acquire: this one sees those of earlier blocks.
        before = cute.arch.atomic_add(mArrived.iterator.llvm_ptr, Int32(1), sem="acq_rel", scope="gpu")
        sLast[0] = Int32(before == blocks - 1)
    cute.arch.sync_threads()  # what thread 0 has acquired holds for the whole block from here on
    if sLast[0] == 1:
        whole = Float32(0.0)
        for other in cutlass.range(thread, blocks, THREADS):
            whole = whole + cute.arch.load((mPartial.iterator + other).llvm_ptr, Float32, sem="relaxed", scope="gpu")
        whole = reduce_block(whole, sTotal)
        if thread == 0:
            mTotal[0] = whole / Float32(cute.size(mX))
            mArrived[0] = Int32(0)


@cute.jit
def squared_error(
    mX: cute.Tensor,
    mY: cute.Tensor,
    mPartial: cute.Tensor,
    mArrived: cute.Tensor,
    mTotal: cute.Tensor,
    vector: cutlass.Constexpr,
    stream,
):
    squared_error_kernel(mX, mY, mPartial, mArrived, mTotal, vector).launch(
        grid=(cute.size(mPartial), 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, vector: int):
    """The kernel for any number of elements that is a multiple of `vector`."""
    elements = cute.sym_int64(divisibility=vector)
    inputs = [
        make_fake_compact_tensor(DTYPES[dtype], (elements,), assumed_align=vector * dtype.itemsize) for _ in range(2)
    ]
    partial, total = (make_fake_compact_tensor(Float32, (size,), assumed_align=4) for size in (cute.sym_int(), 1))
    arrived = make_fake_compact_tensor(Int32, (1,), assumed_align=4)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(squared_error, *inputs, partial, arrived, total, vector, stream, options="--enable-tvm-ffi")


@functools.cache
def counter(device: torch.device, stream: int):
    """Blocks that have arrived: 0 between two launches of this stream."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def kernel_fn(x, y):
    if x.shape != y.shape or not x.numel():
        raise ValueError(f"two tensors of one shape with elements, not {tuple(x.shape)} and {tuple(y.shape)}")
    vector = math.gcd(x.numel(), 16 // x.dtype.itemsize)
    blocks = min(MOST_BLOCKS, -(-x.numel() // (vector * THREADS)))
    partial = torch.empty(blocks, dtype=torch.float32, device=x.device)
    total = torch.empty(1, dtype=torch.float32, device=x.device)
    arrived = counter(x.device, torch.cuda.current_stream(x.device).cuda_stream)
    compiled(x.dtype, vector)(x.view(-1), y.view(-1), partial, arrived, total)
    return total.view(())


def reference_fn(x, y):
    return (x.float() - y.float()).square().mean()


def get_inputs(rows=16384, columns=4096, dtype=torch.float32):
    return [torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(2)]


def get_input_sets():
    yield get_inputs(1031, 513, torch.bfloat16)  # vectors of one element, several turns of the loop
    yield get_inputs(2, 1000, torch.float16)
    yield get_inputs(1, 1)
