"""A float32 linear layer with ReLU and a residual on tensor cores: three tf32 products, as exact as float32.

`cutesmith generate` wrote this file for sm_80; by hand are only these lines, the line breaks, and that types other than
float32 are left out. Each factor is split into two tf32 numbers, and the products of upper and lower halves are summed
beside those of the upper ones. The sums of one tile of k start at zero, because the tensor core cuts off bits where
float32 arithmetic rounds.
Any sizes, strides and alignments are taken; infinities and NaN come out as PyTorch's.

Arch: sm_80+
Operation: gemm
Features: cp_async, mma_sync, pipeline, predication, epilogue_fusion, bias, activation, residual
Start here when float32 must stay float32, and to see what the generator makes of a product with an epilogue.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
import torch.nn.functional as F
from cutlass import Boolean, Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp
from cutlass.memory import SmemAllocator

# ---- kernel: product of matrices + add + maximum

BM, BN, BK = 64, 64, 16  # a block's tile of the result, and how much of k a stage holds
STAGES = 4
WARPS_M, WARPS_N = 2, 2  # over the tile
THREADS = WARPS_M * WARPS_N * 32
GROUP_M = 8  # blocks that run at the same time cover a square of the result: L2 serves more of their loads
PAD = 16  # bytes after a line of a tile in shared memory: the lines that a warp reads at once start in other banks


@cute.jit
def epilogue(acc: Float32, bias_mn: Float32, residual_mn: Float32):
    return cute.arch.fmax(acc + bias_mn, Float32(0.0), nan=True) + residual_mn


@cute.jit
def split_float32(x: cute.Tensor, high: cute.Tensor, low: cute.Tensor):
    """x as a sum of two tf32 numbers, right to 2**-23 of it: rounded to 11 bits, and what is left rounded so."""
    x, high, low = (cute.recast_tensor(t, Int32) for t in (x, high, low))
    values, upper = cute.recast_tensor(x, Float32), cute.recast_tensor(high, Float32)
    left = cute.make_rmem_tensor(cute.size(x), Float32)
    for i in range_constexpr(cute.size(x)):
        size = x[i] & 0x7FFFFFFF
        high[i] = (x[i] + 0x1000 if size < 0x7F7FF000 else x[i]) & -0x2000  # the largest stay finite
        left[i] = values[i] - upper[i]
        low[i] = (cute.recast_tensor(left, Int32)[i] + 0x1000 & -0x2000) if size < 0x7F800000 else 0


@cute.jit
def plain_sum(mA: cute.Tensor, mB: cute.Tensor, row: Int32, column: Int32) -> Float32:
    """A sum that is not finite, again: halves are zero where numbers are not, and infinity times zero is NaN."""
    total, k = Float32(0.0), Int32(0)
    while k < mA.shape[1] and total == total:
        total += mA[row, k] * mB[column, k]
        k += 1
    return total


def tile_layout(lines: int, length: int, dtype, stages: int = 1):
    """(lines, length, stages) in shared memory, each line contiguous and padded."""
    line = length + PAD * 8 // dtype.width
    return cute.make_layout((lines, length, stages), stride=(line, 1, lines * line))


def transposed(layout):
    return cute.select(layout, mode=[1, 0, 2])


def operand_layout(contiguous_k: bool, dtype):
    """A stage's (tile, BK) of an operand, contiguous as the operand is in global memory."""
    return tile_layout(64, BK, dtype, STAGES) if contiguous_k else transposed(tile_layout(BK, 64, dtype, STAGES))


def copy_of_tile(contiguous_k: bool, dtype, vector: int):
    """All threads of the block over a (tile, BK): neighbours along the contiguous dimension, one vector each."""
    across = (BK if contiguous_k else 64) // vector
    bits = vector * dtype.width
    mode = cute.nvgpu.LoadCacheMode.GLOBAL if bits == 128 else cute.nvgpu.LoadCacheMode.ALWAYS
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(cache_mode=mode), dtype, num_bits_per_copy=bits)
    if contiguous_k:
        threads = cute.make_layout((THREADS // across, across), stride=(across, 1))
        return cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, vector)))
    threads = cute.make_layout((across, THREADS // across))
    return cute.make_tiled_copy_tv(atom, threads, cute.make_layout((vector, 1)))


@cute.jit
def load_tile(copy: cute.TiledCopy, gX: cute.Tensor, sX: cute.Tensor, cX: cute.Tensor, shape):
    """One tile to shared memory; what lies beyond `shape` becomes zeros."""
    thread, _, _ = cute.arch.thread_idx()
    part = copy.get_slice(thread)
    tXgX, tXsX, tXcX = part.partition_S(gX), part.partition_D(sX), part.partition_S(cX)
    for i in range_constexpr(cute.size(tXgX, mode=[1])):
        for j in range_constexpr(cute.size(tXgX, mode=[2])):
            pred = cute.make_rmem_tensor((1,), Boolean)
            pred[0] = cute.elem_less(tXcX[0, i, j], shape)  # sizes are multiples of a vector: one test serves it
            cute.copy(copy, tXgX[None, i, j], tXsX[None, i, j], pred=pred)


def tile_of(block, tiles_m, tiles_n):
    """(m, n) of a block's tile: down GROUP_M tiles, then one to the right, then the next group of rows."""
    group, within = block // (GROUP_M * tiles_n), block % (GROUP_M * tiles_n)
    height = cutlass.min(GROUP_M, tiles_m - group * GROUP_M)  # the last group may be lower
    return group * GROUP_M + within % height, within // height


@cute.kernel
def contraction_kernel(
    mA: cute.Tensor,  # (m, k, batch)
    mB: cute.Tensor,  # (n, k, batch)
    m_bias_mn: cute.Tensor,  # (m, n, batch)
    m_residual_mn: cute.Tensor,  # (m, n, batch)
    m_out: cute.Tensor,  # (m, n, batch)
    tiled_mma: cute.TiledMma,
    contiguous_k: cutlass.Constexpr,  # of A and B
    vectors: cutlass.Constexpr,  # elements of an access: A, B, the result and what the epilogue reads
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    rows, columns, _ = m_out.shape
    tiles_m, tiles_n = cute.ceil_div(rows, BM), cute.ceil_div(columns, BN)
    batch, tile = block // (tiles_m * tiles_n), block % (tiles_m * tiles_n)
    m, n = tile_of(tile, tiles_m, tiles_n)

    # Global tiles, and beside each the coordinates of its elements: predicates compare those with the shapes.
    mA, mB = mA[None, None, batch], mB[None, None, batch]
    gA = cute.local_tile(mA, (BM, BK), (m, None))  # (BM, BK, k_tiles)
    gB = cute.local_tile(mB, (BN, BK), (n, None))
    cA = cute.local_tile(cute.make_identity_tensor(mA.shape), (BM, BK), (m, None))
    cB = cute.local_tile(cute.make_identity_tensor(mB.shape), (BN, BK), (n, None))
    k_tiles = cute.size(gA, mode=[2])

    # The operands' stages; when all is summed up, the sums take their place.
    layout_A = operand_layout(contiguous_k[0], mA.element_type)
    layout_B = operand_layout(contiguous_k[1], mB.element_type)
    layout_C = cute.select(tile_layout(BM, BN, Float32), mode=[0, 1])
    bytes_A, bytes_B = cute.size_in_bytes(mA.element_type, layout_A), cute.size_in_bytes(mB.element_type, layout_B)
    memory = SmemAllocator().allocate(max(bytes_A + bytes_B, cute.size_in_bytes(Float32, layout_C)), 16)
    sA = cute.make_tensor(cute.recast_ptr(memory, dtype=mA.element_type), layout_A)
    sB = cute.make_tensor(cute.recast_ptr(memory + bytes_A, dtype=mB.element_type), layout_B)
    sC = cute.make_tensor(cute.recast_ptr(memory, dtype=Float32), layout_C)
    copy_A = copy_of_tile(contiguous_k[0], mA.element_type, vectors[0])
    copy_B = copy_of_tile(contiguous_k[1], mB.element_type, vectors[1])

    # Prologue: all stages but one in flight. Groups are committed even when empty, so that their number tells the time.
    for stage in range_constexpr(STAGES - 1):
        if stage < k_tiles:
            load_tile(copy_A, gA[None, None, stage], sA[None, None, stage], cA[None, None, stage], mA.shape)
            load_tile(copy_B, gB[None, None, stage], sB[None, None, stage], cB[None, None, stage], mB.shape)
        cute.arch.cp_async_commit_group()

    thr_mma = tiled_mma.get_slice(thread)
    sums = cute.make_rmem_tensor(tiled_mma.partition_shape_C((BM, BN)), Float32)
    sums.fill(Float32(0))
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA[None, None, 0]))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB[None, None, 0]))
    load_A = load_B = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), Float32)
    part_A = cute.make_tiled_copy_A(load_A, tiled_mma).get_slice(thread)
    part_B = cute.make_tiled_copy_B(load_B, tiled_mma).get_slice(thread)
    tXsA, tXrA = part_A.partition_S(sA), part_A.retile(tCrA)
    tXsB, tXrB = part_B.partition_S(sB), part_B.retile(tCrB)

    for k_tile in cutlass.range(k_tiles, unroll=1):
        cute.arch.cp_async_wait_group(STAGES - 2)  # this thread's part of tile k_tile has arrived …
        cute.arch.sync_threads()  # … everybody's has, and everybody has left the stage that is filled next
        ahead, stage = k_tile + STAGES - 1, k_tile % STAGES
        if ahead < k_tiles:
            free = ahead % STAGES
            load_tile(copy_A, gA[None, None, ahead], sA[None, None, free], cA[None, None, ahead], mA.shape)
            load_tile(copy_B, gB[None, None, ahead], sB[None, None, free], cB[None, None, ahead], mB.shape)
        cute.arch.cp_async_commit_group()
        # The tensor core cuts off bits of its sums: those of one tile start at zero, and join the others rounded.
        part = cute.make_fragment_like(sums)
        part.fill(0.0)
        for k in range_constexpr(cute.size(tCrA, mode=[2])):
            cute.copy(load_A, tXsA[None, None, k, stage], tXrA[None, None, k])
            cute.copy(load_B, tXsB[None, None, k, stage], tXrB[None, None, k])
            highA, lowA = cute.make_fragment_like(tCrA[None, None, k]), cute.make_fragment_like(tCrA[None, None, k])
            highB, lowB = cute.make_fragment_like(tCrB[None, None, k]), cute.make_fragment_like(tCrB[None, None, k])
            split_float32(tCrA[None, None, k], highA, lowA)
            split_float32(tCrB[None, None, k], highB, lowB)
            cute.gemm(tiled_mma, part, lowA, highB, part)
            cute.gemm(tiled_mma, part, highA, lowB, part)
            cute.gemm(tiled_mma, part, highA, highB, part)
        sums.store(sums.load() + part.load())

    # Through shared memory each thread gets neighbours of one row.
    cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()
    cute.autovec_copy(sums, thr_mma.partition_C(sC))
    cute.arch.sync_threads()
    across = BN // vectors[2]
    column = thread % across * vectors[2]
    r_acc = cute.make_rmem_tensor((vectors[2],), Float32)
    g_bias_mn = cute.local_tile(m_bias_mn[None, None, batch], (BM, BN), (m, n))
    r_bias_mn = cute.make_rmem_tensor((vectors[2],), Float32)
    g_residual_mn = cute.local_tile(m_residual_mn[None, None, batch], (BM, BN), (m, n))
    r_residual_mn = cute.make_rmem_tensor((vectors[2],), Float32)
    g_out = cute.local_tile(m_out[None, None, batch], (BM, BN), (m, n))
    r_out = cute.make_rmem_tensor((vectors[2],), Float32)
    for row in cutlass.range(thread // across, BM, THREADS // across, unroll=2):
        if cute.elem_less((m * BM + row, n * BN + column), (rows, columns)):
            cute.autovec_copy(vector_at(sC, row, column, vectors[2]), r_acc)
            cute.autovec_copy(vector_at(g_bias_mn, row, column, vectors[2]), r_bias_mn)
            cute.autovec_copy(vector_at(g_residual_mn, row, column, vectors[2]), r_residual_mn)
            for v in range_constexpr(vectors[2]):
                if r_acc[v] * 0.0 != 0.0:
                    r_acc[v] = plain_sum(mA, mB, m * BM + row, n * BN + column + v)
                out = epilogue(r_acc[v], r_bias_mn[v], r_residual_mn[v])
                r_out[v] = out
            cute.autovec_copy(r_out, vector_at(g_out, row, column, vectors[2]))


@cute.jit
def vector_at(tile: cute.Tensor, row: Int32, column: Int32, vector: cutlass.Constexpr):
    """`vector` elements of a row, from a column that is a multiple of it."""
    return cute.local_tile(tile, (1, vector), (row, column // vector))[0, None]


def matrices(tensor, result, rows=None, columns=None):
    """(…, rows, columns) as (rows, columns, batch) of the result; sizes of 1 are stretched to what is given."""
    missing = cute.rank(result) - cute.rank(tensor)
    sizes, strides = (1,) * missing + tensor.shape, (0,) * missing + tensor.stride
    strides = tuple(0 if isinstance(n, int) and n == 1 else s for n, s in zip(sizes, strides))
    shape = (sizes[-2] if rows is None else rows, sizes[-1] if columns is None else columns, result.shape[:-2] or 1)
    return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=(*strides[-2:], strides[:-2] or 0)))


@cute.jit
def launch_contraction(
    A, B, bias_mn, residual_mn, out, contiguous_k: cutlass.Constexpr, vectors: cutlass.Constexpr, stream
):
    tiled_mma = cute.make_tiled_mma(warp.MmaTF32Op((16, 8, 8)), (WARPS_M, WARPS_N, 1))
    A = matrices(A, out)
    B = matrices(B, out)
    B = cute.make_tensor(B.iterator, cute.select(B.layout, mode=[1, 0, 2]))
    rows, columns, batch = matrices(out, out).shape
    blocks = cute.ceil_div(rows, BM) * cute.ceil_div(columns, BN) * cute.size(batch)
    bias_mn, residual_mn, out = (matrices(t, out, rows, columns) for t in (bias_mn, residual_mn, out))
    contraction_kernel(A, B, bias_mn, residual_mn, out, tiled_mma, contiguous_k, vectors).launch(
        grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream
    )


@functools.cache
def compile_contraction(tensors: tuple, contiguous_k: tuple, vectors: tuple):
    """Compile for tensors given as `description` does; sizes and strides other than 0 and 1 are free."""
    fakes = []
    for shape, stride, alignment, wide in tensors:
        sizes = tuple(1 if n == 1 else cute.sym_int(divisibility=n or 1) for n in shape)
        steps = tuple(s if s in (0, 1) else cute.sym_int(64 if wide else 32, divisibility=-s) for s in stride)
        fakes.append(cute.runtime.make_fake_tensor(Float32, sizes, steps, assumed_align=alignment))
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    compiled = cute.compile(launch_contraction, *fakes, contiguous_k, vectors, stream, options="--enable-tvm-ffi")
    return compiled.__tvm_ffi_object__() or compiled  # TVM-FFI's own function: the DSL's wrapper costs 0.3 us


def access(tensor, most: int, dims: tuple = (-1, -2)):
    """(the dimension along which vectors are loaded, elements of one): at most `most`, fewer where something is odd."""
    best = dims[0], 1
    for dim in dims:
        if tensor.stride(dim) == 1:
            places = range(-tensor.dim(), 0)
            steps = (s for d, n, s in zip(places, tensor.shape, tensor.stride()) if d != dim and n != 1)
            vector = math.gcd(most, tensor.shape[dim], tensor.data_ptr() // tensor.element_size(), *steps)
            best = max(best, (dim, vector), key=lambda found: found[1])
    return best


def description(tensor, dim: int, vector: int):
    """(shape, stride, alignment, whether offsets need 64 bits): what is known when compiling.

    Of sizes 1 or what divides them, of strides 0, 1, or less what divides them.
    """
    at, known = tensor.dim() + dim, vector > 1
    shape = tuple(1 if n == 1 else vector if known and d == at else 0 for d, n in enumerate(tensor.shape))
    steps = zip(tensor.shape, tensor.stride())
    stride = tuple(
        -1 if n == 1 else 0 if s == 0 else -vector if d != at else 1 if known else -1 for d, (n, s) in enumerate(steps)
    )
    extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return shape, stride, vector * tensor.element_size(), extent >= 2**31


def specialise(a, b, *results):
    """The compiled kernel for tensors of these types, layouts and alignments."""
    dim_a, vector_a = access(a, min(16 // a.element_size(), BM * BK // THREADS))
    dim_b, vector_b = access(b, min(16 // b.element_size(), BN * BK // THREADS))
    most = 16 // max(t.element_size() for t in results)
    vector = min(access(t, most, (-1,))[1] for t in results if t.shape[-1] != 1 or t is results[-1])
    tensors = (
        description(a, dim_a, vector_a),
        description(b, dim_b, vector_b),
        *(description(t, -1, 1 if t.shape[-1] == 1 else vector) for t in results),
    )
    return compile_contraction(tensors, (dim_a == -1, dim_b == -2), (vector_a, vector_b, vector))


LAUNCHERS = {}


def kernel_fn(x_in, weight, bias, residual):
    widths = (weight.shape[0], bias.shape[0], residual.shape[1])
    if 1 in widths and len(set(widths)) > 1:
        raise ValueError("this kernel does not broadcast one of weight.shape[0], bias.shape[0], residual.shape[1]")
    weight_view = weight.t()
    out = torch.empty((x_in.shape[0], weight_view.shape[-1]), dtype=torch.float32, device=x_in.device)
    if out.numel() == 0:
        return out
    tensors = (x_in, weight_view, bias, residual)
    odd = (x_in.data_ptr() & 15, weight_view.data_ptr() & 15, bias.data_ptr() & 15, residual.data_ptr() & 15)
    key = (*((t.shape, t.stride(), t.dtype) for t in tensors), odd)
    launch = LAUNCHERS.get(key)
    if launch is None:
        if any(t.dtype != torch.float32 for t in (x_in, weight, bias, residual)):
            raise ValueError(
                "this kernel takes x_in of float32, weight of float32, bias of float32, residual of float32"
            )
        launch = LAUNCHERS[key] = specialise(x_in, weight_view, bias, residual, out)
    launch(x_in, weight_view, bias, residual, out)
    return out


def reference_fn(x, weight, bias, residual):
    return F.relu(F.linear(x, weight, bias)) + residual


def get_inputs(rows=1024, features=2048, width=1024):
    x = torch.randn(rows, features, device="cuda")
    weight = torch.randn(width, features, device="cuda") * features**-0.5
    return [x, weight, torch.randn(width, device="cuda"), torch.randn(rows, width, device="cuda")]


def get_input_sets():
    yield get_inputs(70, 36, 44)
    yield get_inputs(1, 5, 3)
