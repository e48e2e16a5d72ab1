"""L2 normalisation of very long rows, each shared by a cluster of eight blocks: y = x / max(|x|, eps).

Shows distributed shared memory: every block sums its part of the row, writes the sum into the shared memory of all
eight blocks, and after one cluster barrier each block has the whole. A row of up to 512 K elements is read once from
global memory, as its parts stay in the registers of eight blocks.

Arch: sm_90a
Operation: normalize
Features: cluster, dsmem, cluster_reduction, vectorized_copy, warp_shuffle, inline_ptx
Start here when one block cannot hold a row, or blocks have to exchange small results.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
CLUSTER = 8  # blocks a row: the most that every GPU with clusters allows
VECTOR = 8
ELEMENTS_PER_THREAD = 64  # aimed at: two blocks share a multiprocessor, and one loads while the other waits for peers
MAX_ELEMENTS_PER_THREAD = 64


@cute.jit
def store_to_peer(pointer: cute.Pointer, value: Float32, peer: Int32):
    """Store to the same place in the shared memory of another block of the cluster."""
    there = cute.arch.map_dsmem_ptr(pointer, peer)
    cute.arch.inline_ptx("st.shared::cluster.f32 [{$r0}], {$r1};", read_only_args=[there, value])


@cute.kernel
def normalize_kernel(mX: cute.Tensor, mY: cute.Tensor, eps: Float32, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row, rank = block // CLUSTER, cute.arch.block_idx_in_cluster()
    lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
    warps = const_expr(threads // 32)
    # The sums of all warps of all blocks of the row: (warp, rank). Every block gets a copy of its own.
    sPartial = SmemAllocator().allocate_tensor(Float32, cute.make_layout((warps, CLUSTER)), byte_alignment=16)
    cute.arch.cluster_arrive_relaxed()  # waited for below: a peer's shared memory exists once the peer has started

    gX, gY = (cute.zipped_divide(m[row, None], (VECTOR,)) for m in (mX, mY))
    vectors = const_expr(cute.size(gX, mode=[1]))
    chunks = const_expr(-(-vectors // (threads * CLUSTER)))
    rX = cute.make_rmem_tensor((VECTOR, chunks), mX.element_type)
    rX.fill(0)
    for chunk in range_constexpr(chunks):
        index = (chunk * CLUSTER + rank) * threads + thread
        if index < vectors:
            cute.autovec_copy(gX[None, index], rX[None, chunk])
    total = Float32(0.0)
    for chunk in range_constexpr(chunks):
        x = rX[None, chunk].load().to(Float32)
        total = (x * x).reduce(cute.ReductionOp.ADD, total, 0)
    total = cute.arch.warp_reduction_sum(total)

    cute.arch.cluster_wait()
    if lane < CLUSTER:  # eight lanes, one peer each
        store_to_peer(sPartial.iterator + rank * warps + warp, total, lane)
    cute.arch.cluster_arrive()  # releases the stores …
    cute.arch.cluster_wait()  # … and acquires those of the peers. No one writes later to a block that may be gone

    total = Float32(0.0)
    for i in range_constexpr(-(-warps * CLUSTER // 32)):
        index = i * 32 + lane
        if index < warps * CLUSTER:
            total += sPartial[index]
    total = cute.arch.warp_reduction_sum(total)
    scale = 1.0 / cute.arch.fmax(cute.math.sqrt(total), eps, nan=True)
    for chunk in range_constexpr(chunks):  # converted again: kept in float32, the row would take twice the registers
        index = (chunk * CLUSTER + rank) * threads + thread
        if index < vectors:
            rX[None, chunk].store((rX[None, chunk].load().to(Float32) * scale).to(mY.element_type))
            cute.autovec_copy(rX[None, chunk], gY[None, index])


@cute.jit
def normalize(mX: cute.Tensor, mY: cute.Tensor, eps: Float32, threads: cutlass.Constexpr, stream):
    normalize_kernel(mX, mY, eps, threads).launch(
        grid=(mX.shape[0] * CLUSTER, 1, 1), block=(threads, 1, 1), cluster=(CLUSTER, 1, 1), stream=stream
    )


@functools.cache
def compiled(dtype: torch.dtype, columns: int):
    """The kernel for rows of `columns` elements; raises ValueError where no cluster can hold them."""
    part = -(-columns // CLUSTER)
    threads = min(1024, max(32, 1 << (part // ELEMENTS_PER_THREAD - 1).bit_length()))
    if columns % VECTOR or part > threads * MAX_ELEMENTS_PER_THREAD:
        raise ValueError(f"rows of {columns} elements: a multiple of {VECTOR} that the registers of a cluster hold")
    rows = cute.sym_int()
    x, y = (
        make_fake_compact_tensor(DTYPES[dtype], (rows, columns), stride_order=(1, 0), assumed_align=16)
        for _ in range(2)
    )
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(normalize, x, y, Float32(0.0), threads, stream, options="--enable-tvm-ffi")


def kernel_fn(x, eps):
    y = torch.empty_like(x)
    if x.numel():
        compiled(x.dtype, x.shape[1])(x, y, eps)
    return y


def reference_fn(x, eps):
    return torch.nn.functional.normalize(x.float(), dim=-1, eps=eps).to(x.dtype)


def get_inputs(rows=1024, columns=262144, dtype=torch.bfloat16):
    return [torch.randn(rows, columns, device="cuda", dtype=dtype), 1e-12]


def get_input_sets():
    yield get_inputs(3, 4104, torch.float16)
    yield get_inputs(2, 64)
