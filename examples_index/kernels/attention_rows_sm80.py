"""Attention as `cutesmith generate --arch sm_80` writes it: softmax(q @ k.mT / 8) @ v, online over tiles of keys.

Written from `scaled_dot_product_attention` of float16. A block has 128 queries, a warp 16 of them; keys and values come
by cp.async while the products before them run, scores and sums stay in registers. Any lengths, batches and strides: the
scale is a number of each call, and what lies past an edge is masked. On Hopper the generator writes another form by TMA
and wgmma. Verified on the emulated GPU; no GPU has timed this file.

Arch: sm_80+
Operation: attention
Features: cp_async, ldmatrix, mma_sync, swizzle, predication, online_softmax, strided
Start here when you want to see what the generator makes of an attention; masks and biases become part of `score`.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
import torch.nn.functional as F
from cutlass import Boolean, Float16, Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.memory import SmemAllocator

# ---- kernel: attention

QUERIES, KEYS = 128, 64  # rows of a tile of queries, and of keys and values
WARPS = 8  # one under another, 16 rows of queries each: a row's scores lie in four lanes of one warp
THREADS = 32 * WARPS
LOG2_E = 1.4426950408889634
LOWEST = -1e30  # a finite stand-in for the maximum of a row that has seen -inf alone


@cute.jit
def score(acc: Float32):
    return acc


@cute.jit
def scaled(acc: Float32, size_0: Float32):
    return acc * size_0


def padded(width: int) -> int:
    """The width in whole steps of the matrix instruction; the elements past the end are zeros."""
    return -(-width // 16) * 16


def tile_layout(rows: int, width: int):
    """A row-major tile in shared memory, swizzled so that eight rows of one column lie in different banks."""
    inner = next(w for w in (64, 32, 16) if width % w == 0)
    swizzle = cute.make_swizzle(inner.bit_length() - 4, 4, 3)  # of 16-byte units
    atom = cute.make_composed_layout(swizzle, 0, cute.make_layout((8, inner), stride=(inner, 1)))
    return cute.tile_to_shape(atom, (rows, width), order=(0, 1))


@cute.jit
def load_tile(mX: cute.Tensor, sX: cute.Tensor, tile: Int32, vector: cutlass.Constexpr):
    """cp.async of a tile of rows; what lies outside `mX` becomes zeros."""
    thread, _, _ = cute.arch.thread_idx()
    rows, chunks = const_expr(cute.size(sX, mode=[0])), const_expr(cute.size(sX, mode=[1]) // vector)
    cache = cute.nvgpu.LoadCacheMode.GLOBAL if const_expr(vector == 8) else cute.nvgpu.LoadCacheMode.ALWAYS
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(cache_mode=cache), mX.element_type, num_bits_per_copy=16 * vector)
    one_vector = cute.make_layout(((vector, 1),), stride=((1, 0),))
    for i in range_constexpr(-(-rows * chunks // THREADS)):
        place = thread + i * THREADS
        row, chunk = place // chunks, place % chunks
        inside = cute.make_rmem_tensor((1,), Boolean)
        inside[0] = (tile * rows + row < mX.shape[0]) & (chunk * vector < mX.shape[1])
        source = cute.local_tile(mX, (1, vector), (tile * rows + row, chunk))
        target = cute.local_tile(sX, (1, vector), (row, chunk))
        source, target = (cute.make_tensor(x.iterator, one_vector) for x in (source, target))
        if const_expr(rows * chunks % THREADS == 0) or place < rows * chunks:
            cute.copy(atom, source, target, pred=inside)
    cute.arch.cp_async_commit_group()


@cute.kernel
def attention_kernel(
    mQ: cute.Tensor,  # (queries, width, batch): the width is known when compiling
    mK: cute.Tensor,  # (keys, width, batch)
    mV: cute.Tensor,  # (keys, value width, batch)
    mO: cute.Tensor,  # (queries, value width, batch)
    size_0: Float32,
    tiled_mma: cute.TiledMma,
    vectors: cutlass.Constexpr,  # elements of an access: queries, keys, values
):
    thread, _, _ = cute.arch.thread_idx()
    block, batch, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    m = blocks - 1 - block  # where a mask is causal the last rows have the most keys: they start first
    mQ, mK, mV, mO = (x[None, None, batch] for x in (mQ, mK, mV, mO))
    dtype, queries, keys = mQ.element_type, mQ.shape[0], mK.shape[0]
    width, value_width = const_expr(padded(mQ.shape[1])), const_expr(padded(mV.shape[1]))

    smem = SmemAllocator()
    sQ, sK, sV = (
        smem.allocate_tensor(dtype, layout.outer, byte_alignment=1024, swizzle=layout.inner)
        for layout in (tile_layout(QUERIES, width), tile_layout(KEYS, width), tile_layout(KEYS, value_width))
    )
    sVt = cute.make_tensor(sV.iterator, cute.select(sV.layout, mode=[1, 0]))  # N x K of the second product
    first, end = Int32(0), keys
    step, steps = first // KEYS, cute.ceil_div(end, KEYS)
    load_tile(mQ, sQ, m, vectors[0])
    load_tile(mK, sK, step, vectors[1])

    thr_mma = tiled_mma.get_slice(thread)
    tSrQ = tiled_mma.make_fragment_A(thr_mma.partition_A(sQ))
    tSrK = tiled_mma.make_fragment_B(thr_mma.partition_B(sK))
    tOrV = tiled_mma.make_fragment_B(thr_mma.partition_B(sVt))
    tOrO = cute.make_rmem_tensor(tiled_mma.partition_shape_C((QUERIES, value_width)), Float32)
    tSrS = cute.make_rmem_tensor(tiled_mma.partition_shape_C((QUERIES, KEYS)), Float32)  # ((2, 2 rows), 1, KEYS / 8)
    tSrP = cute.make_rmem_tensor(tSrS.layout, dtype)
    # Two neighbouring 16x8 sums are, register for register, one 16x16 operand.
    tOrP = cute.make_tensor(tSrP.iterator, cute.make_layout(((2, 2, 2), 1, KEYS // 16)))
    tOrO.fill(0.0)
    row_max = cute.make_rmem_tensor((2,), Float32)
    row_sum = cute.make_rmem_tensor((2,), Float32)  # of this lane's columns: combined at the end
    scale_log2 = scaled(Float32(1.0), size_0) * LOG2_E
    row_max.fill(-Float32.inf)
    row_sum.fill(0.0)

    plain = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), dtype)
    transposing = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(True, 4), dtype)
    read_Q, read_K = cute.make_tiled_copy_A(plain, tiled_mma), cute.make_tiled_copy_B(plain, tiled_mma)
    read_V = cute.make_tiled_copy_B(transposing, tiled_mma)
    tXsQ, tXrQ = read_Q.get_slice(thread).partition_S(sQ), read_Q.get_slice(thread).retile(tSrQ)
    tXsK, tXrK = read_K.get_slice(thread).partition_S(sK), read_K.get_slice(thread).retile(tSrK)
    tXsV, tXrV = read_V.get_slice(thread).partition_S(sVt), read_V.get_slice(thread).retile(tOrV)

    cS = cute.make_identity_tensor((queries, keys))
    while step < steps:
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # the keys are here; all threads are done with the values before
        load_tile(mV, sV, step, vectors[2])

        tSrS.fill(0.0)
        for k in range_constexpr(cute.size(tSrQ, mode=[2])):
            cute.copy(read_Q, tXsQ[None, None, k], tXrQ[None, None, k])
            cute.copy(read_K, tXsK[None, None, k], tXrK[None, None, k])
            cute.gemm(tiled_mma, tSrS, tSrQ[None, None, k], tSrK[None, None, k], tSrS)

        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # the values are here; all threads are done with these keys
        if step + 1 < steps:
            load_tile(mK, sK, step + 1, vectors[1])

        tScS = thr_mma.partition_C(cute.local_tile(cS, (QUERIES, KEYS), (m, step)))
        whole = (step + 1) * KEYS <= keys
        if not whole:
            for i in range_constexpr(cute.size(tSrS)):
                row, column = tScS[i]
                tSrS[i] = score(tSrS[i]) if column < keys else -Float32.inf

        # A row that has seen -inf alone has the maximum LOWEST, so that its powers are zeros: -inf - -inf is NaN.
        for r in range_constexpr(2):
            scores = tSrS[(None, r), 0, None].load()
            highest = scores.reduce(cute.ReductionOp.MAX, row_max[r], 0)
            highest = cute.arch.fmax(cute.arch.warp_reduction_max(highest, threads_in_group=4), LOWEST)
            shrink = cute.math.exp2((row_max[r] - highest) * scale_log2, fastmath=True)
            powers = cute.math.exp2((scores - highest) * scale_log2, fastmath=True)
            row_sum[r] = powers.reduce(cute.ReductionOp.ADD, row_sum[r] * shrink, 0)
            row_max[r] = highest
            tSrP[(None, r), 0, None].store(powers.to(dtype))
            tOrO[(None, r), 0, None].store(tOrO[(None, r), 0, None].load() * shrink)

        for k in range_constexpr(KEYS // 16):
            cute.copy(read_V, tXsV[None, None, k], tXrV[None, None, k])
            cute.gemm(tiled_mma, tOrO, tOrP[None, None, k], tOrV[None, None, k], tOrO)
        step += 1

    cute.arch.cp_async_wait_group(0)
    tile = (QUERIES, value_width)
    tOcO = thr_mma.partition_C(cute.local_tile(cute.make_identity_tensor(mO.shape), tile, (m, 0)))
    for r in range_constexpr(2):
        total = cute.arch.warp_reduction_sum(row_sum[r], threads_in_group=4)
        inverse = 1.0 / total
        if total == 0.0:
            inverse = Float32(0.0)
        for n in range_constexpr(value_width // 8):
            row, column = tOcO[(0, r), 0, n]
            if (row < queries) & (column < mO.shape[1]):
                sums = tOrO[(None, r), 0, n].load() * inverse
                result = cute.make_rmem_tensor((2,), Float16)
                for v in range_constexpr(2):
                    result[v] = sums[v].to(Float16)
                cute.autovec_copy(result, cute.local_tile(mO, (1, 2), (row, column // 2))[0, None])


def matrices(tensor, result):
    """(…, rows, columns) as (rows, columns, batch) of the result; sizes of 1 are stretched to what is given."""
    missing = cute.rank(result) - cute.rank(tensor)
    sizes, strides = (1,) * missing + tensor.shape, (0,) * missing + tensor.stride
    strides = tuple(0 if isinstance(n, int) and n == 1 else s for n, s in zip(sizes, strides))
    shape = (sizes[-2], sizes[-1], result.shape[:-2] or 1)
    return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=(*strides[-2:], strides[:-2] or 0)))


@cute.jit
def launch_attention(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    out: cute.Tensor,
    size_0: Float32,
    vectors: cutlass.Constexpr,
    stream,
):
    tiled_mma = cute.make_tiled_mma(
        warp.MmaF16BF16Op(q.element_type, Float32, (16, 8, 16)),
        cute.make_layout((WARPS, 1, 1)),
        permutation_mnk=(WARPS * 16, 16, 16),  # 16 columns: what one ldmatrix.x4 brings
    )
    Q, K, V, mO = (matrices(x, out) for x in (q, k, v, out))
    K = cute.make_tensor(K.iterator, cute.select(K.layout, mode=[1, 0, 2]))
    attention_kernel(
        Q,
        K,
        V,
        mO,
        size_0,
        tiled_mma,
        vectors,
    ).launch(grid=[cute.ceil_div(Q.shape[0], QUERIES), cute.size(Q, mode=[2]), 1], block=[THREADS, 1, 1], stream=stream)


TYPES = {torch.float16: Float16}


def access(tensor, dim: int) -> int:
    """Elements that one access along `dim` takes: 16 bytes of 16-bit elements unless something is odd."""
    others = (s for d, (n, s) in enumerate(zip(tensor.shape, tensor.stride()), -tensor.dim()) if d != dim and n != 1)
    vector = math.gcd(8, tensor.shape[dim], tensor.data_ptr() // tensor.element_size(), *others)
    if vector == 1 or tensor.stride(dim) != 1:
        raise ValueError(f"rows of {tuple(tensor.shape)} with strides {tensor.stride()} are not aligned to 4 bytes")
    return vector


def description(tensor, fixed: int | None = None, vector: int = 1):
    """(dtype, shape, stride, alignment, whether offsets need 64 bits): what is known when compiling.

    Of sizes 1 and that of the dimension `fixed`, of strides 0, 1, or less what divides them.
    """
    ones = {d for d, n in enumerate(tensor.shape, -tensor.dim()) if n == 1}
    shape = tuple(n if d in ones or d == fixed else 0 for d, n in enumerate(tensor.shape, -tensor.dim()))
    stride = tuple(
        1 if d == fixed else 0 if d in ones or s == 0 else 1 if s == 1 else -vector
        for d, (n, s) in enumerate(zip(tensor.shape, tensor.stride()), -tensor.dim())
    )
    extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return tensor.dtype, shape, stride, vector * tensor.element_size(), extent >= 2**31


@functools.cache
def compile_attention(tensors: tuple, vectors: tuple):
    """Compile for tensors given as `description` does; sizes and strides other than 0 and 1 are free."""
    fakes = []
    for dtype, shape, stride, alignment, wide in tensors:
        sizes = tuple(n or cute.sym_int() for n in shape)
        steps = tuple(s if s in (0, 1) else cute.sym_int(64 if wide else 32, divisibility=-s) for s in stride)
        fakes.append(cute.runtime.make_fake_tensor(TYPES[dtype], sizes, steps, assumed_align=alignment))
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    compiled = cute.compile(launch_attention, *fakes, Float32(1), vectors, stream, options="--enable-tvm-ffi")
    return compiled.__tvm_ffi_object__() or compiled  # TVM-FFI's own function: the DSL's wrapper takes 0.3 us more


def specialise(q, k, v, out, *others):
    """The compiled kernel for tensors of these types, layouts and alignments."""
    if q.shape[-1] > 272 or v.shape[-1] > 272:
        raise ValueError(f"heads of {q.shape[-1]} and {v.shape[-1]} elements: pass at most 272 and 272")
    vectors = access(q, -1), access(k, -2), access(v, -1)
    tensors = (
        description(q, -1, vectors[0]),
        description(k, -2, vectors[1]),
        description(v, -1, vectors[2]),
        description(out, -1, 2),
        *map(description, others),
    )
    return compile_attention(tensors, vectors)


LAUNCHERS = {}


def kernel_fn(q, k, v_in):
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"this kernel takes equal sizes: {q.shape[3], k.shape[3] = }")
    if k.shape[2] != v_in.shape[2]:
        raise ValueError(f"this kernel takes equal sizes: {k.shape[2], v_in.shape[2] = }")
    if len({q.shape[0], k.shape[0], v_in.shape[0]} - {1}) > 1:
        raise ValueError(
            "this kernel takes equal sizes, or a 1 of q.shape[0], k.shape[0], v_in.shape[0]: "
            f"{q.shape[0], k.shape[0], v_in.shape[0] = }"
        )
    if len({q.shape[1], k.shape[1], v_in.shape[1]} - {1}) > 1:
        raise ValueError(
            "this kernel takes equal sizes, or a 1 of q.shape[1], k.shape[1], v_in.shape[1]: "
            f"{q.shape[1], k.shape[1], v_in.shape[1] = }"
        )
    k_view = k.permute(0, 1, 3, 2)
    size_0 = (q.shape[3] or math.nan) ** -0.5
    batch = torch.broadcast_shapes(q.shape[:-2], k_view.shape[:-2], v_in.shape[:-2])
    out = torch.empty((*batch, q.shape[-2], v_in.shape[-1]), dtype=torch.float16, device=q.device)
    if out.numel() == 0:
        return out
    key = (
        q.shape,
        q.stride(),
        q.dtype,
        k_view.shape,
        k_view.stride(),
        k_view.dtype,
        v_in.shape,
        v_in.stride(),
        v_in.dtype,
        (q.data_ptr() & 15, k_view.data_ptr() & 15, v_in.data_ptr() & 15),
    )
    launch = LAUNCHERS.get(key)
    if launch is None:
        if (q.dtype, k.dtype, v_in.dtype) != (torch.float16, torch.float16, torch.float16):
            raise ValueError("this kernel takes q of float16, k of float16, v_in of float16")
        launch = LAUNCHERS[key] = specialise(q, k_view, v_in, out)
    launch(q, k_view, v_in, out, size_0)
    return out


# ------------------------------------------------------------------------------
# The problem, as it was given: what to compute, and on which inputs.
# ------------------------------------------------------------------------------


def reference_fn(q, k, v):
    """q, k, v [batch, heads, tokens, 64]: softmax(q @ k.mT / 8) @ v."""
    return F.scaled_dot_product_attention(q, k, v)


def get_inputs(batch=2, heads=16, queries=2048, keys=2048):
    sizes = (queries, keys, keys)
    return [torch.randn(batch, heads, size, 64, dtype=torch.float16, device="cuda") for size in sizes]


def get_input_sets():
    for sizes in ((1, 2, 128, 128), (2, 1, 77, 130), (1, 3, 1, 200)):
        yield get_inputs(*sizes)
