"""A linear layer for few tokens whose weights have four bits, with a scale and a zero point for each group along k.

`cutesmith generate` wrote this file for sm_90a; by hand are only these lines, the line breaks, and that other types are
left out. The weights go from memory to registers and nowhere else: a lane loads 16 bytes of a line, 32 weights, and has
in them its part of eight mma, which take k in any order that both factors share. Bytes become floats four at once. The
scale multiplies the sums of its group, not the weights.
Any tokens, lines and alignments are taken; groups are whole 128 of k. Infinities and NaN come out as PyTorch's.

Arch: sm_80+
Operation: mixed_input_gemm
Features: dequantization, mma_sync, vectorized_copy, predication, smem, epilogue_fusion, bias, tvm_ffi
Start here when few tokens meet quantised weights, so that the bytes of the weights are the floor; edit `elements`.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
import torch.nn.functional as F
from cutlass import BFloat16, Float32, Int32, Uint8, Uint32, const_expr, range_constexpr
from cutlass.cute.nvgpu import warp
from cutlass.memory import SmemAllocator

# ---- kernel: product of matrices (the right one computed from uint8) + add

TOKENS = 8  # rows of a block's tile
LINES = 16  # of the weights, that a warp multiplies with them
WARPS_N, WARPS_K = 1, 4  # that have lines of their own, and shares of k
THREADS = WARPS_N * WARPS_K * 32
RUN = 32  # neighbours along k that a lane loads of a line at once, 16 bytes; four lanes share a line
PACKED = 2  # elements of the weights in a number in memory
DEPTH = 4  # pieces of k that are loaded before the first is used


@cute.jit
def elements(byte_0: Float32, byte_1: Float32, zeros_nk: Float32):
    return byte_0 - zeros_nk, byte_1 - zeros_nk


@cute.jit
def epilogue(acc: Float32, bias_mn: Float32):
    return acc + bias_mn


@cute.jit
def load_run(line: cute.Tensor, run: Int32, target: cute.Tensor, vector: cutlass.Constexpr, once: cutlass.Constexpr):
    """Neighbours of a line, of its last ones where they lie behind its end; past L1 what is read `once`."""
    bits, count = vector * line.element_type.width, cute.size(target) // vector
    for i in range_constexpr(count):
        at = cutlass.min(run * count + i, cute.size(line) // vector - 1)
        source, own = cute.local_tile(line, (vector,), (at,)), cute.local_tile(target, (vector,), (i,))
        if const_expr(once and bits >= 32):
            past_l1 = {"l1c_evict_priority": cute.nvgpu.CacheEvictionPriority.NO_ALLOCATE}
            cute.copy(
                cute.make_copy_atom(cute.nvgpu.CopyG2ROp(), line.element_type, num_bits_per_copy=bits, **past_l1),
                source,
                own,
            )
        else:
            cute.autovec_copy(source, own)


@cute.kernel
def contraction_kernel(
    mA: cute.Tensor,  # (m, k)
    mB: cute.Tensor,  # (n, k // PACKED)
    m_zeros_nk: cute.Tensor,
    m_scales_in_nk: cute.Tensor,
    m_bias_mn: cute.Tensor,  # (m, n, 1)
    m_out: cute.Tensor,  # (m, n, 1)
    tiled_mma: cute.TiledMma,
    vectors: cutlass.Constexpr,  # elements of an access: A, B
    groups: cutlass.Constexpr,  # neighbours along k for which each tensor beside the weights has one number
    ragged: cutlass.Constexpr,  # whether loads go beyond k
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tokens, lines, _ = m_out.shape
    tiles_m = cute.ceil_div(tokens, TOKENS)
    m, n = block % tiles_m, block // tiles_m  # neighbouring blocks read the same weights
    lane, warp_n, warp_k = thread % 32, thread // 32 % WARPS_N, thread // 32 // WARPS_N
    quad, of_quad = lane // 4, lane % 4
    k = mA.shape[1]
    pieces = cute.ceil_div(k, 4 * RUN)
    depth = const_expr(DEPTH if vectors[1] * mB.element_type.width >= 32 else 1)  # single bytes need more registers

    sums = cute.make_rmem_tensor(tiled_mma.partition_shape_C((LINES, TOKENS)), Float32)
    sums.fill(0.0)
    part = cute.make_fragment_like(sums)  # of a piece of k
    numbers = cute.make_rmem_tensor((RUN // PACKED, LINES // 8, depth), mB.element_type)
    now = cute.make_fragment_like(numbers)
    r_zeros_nk = cute.make_rmem_tensor((RUN // math.gcd(groups[0], RUN), LINES // 8, depth), m_zeros_nk.element_type)
    now_zeros_nk = cute.make_fragment_like(r_zeros_nk)
    r_scales_in_nk = cute.make_rmem_tensor((1, LINES // 8, depth), m_scales_in_nk.element_type)
    now_scales_in_nk = cute.make_fragment_like(r_scales_in_nk)
    r_w = cute.make_rmem_tensor((RUN, LINES // 8), mA.element_type)
    r_x = cute.make_rmem_tensor((RUN, TOKENS // 8), mA.element_type)
    r_A = cute.make_rmem_tensor(((2, 2, 2), LINES // 16), mA.element_type)
    r_B = cute.make_rmem_tensor(((2, 2), TOKENS // 8), mA.element_type)
    pairs_w, pairs_x, pairs_A, pairs_B = (cute.recast_tensor(t, Int32) for t in (r_w, r_x, r_A, r_B))
    line = (n * WARPS_N + warp_n) * LINES + quad
    load_pieces(
        mB,
        m_zeros_nk,
        m_scales_in_nk,
        line,
        warp_k * depth * 4 + of_quad,
        k,
        numbers,
        r_zeros_nk,
        r_scales_in_nk,
        vectors[1],
        groups,
    )
    for piece in cutlass.range(warp_k * depth, pieces, WARPS_K * depth, unroll=1):
        now.store(numbers.load())
        now_zeros_nk.store(r_zeros_nk.load())
        now_scales_in_nk.store(r_scales_in_nk.load())
        ahead = piece + WARPS_K * depth
        if ahead < pieces:  # on their way while these are used
            load_pieces(
                mB,
                m_zeros_nk,
                m_scales_in_nk,
                line,
                ahead * 4 + of_quad,
                k,
                numbers,
                r_zeros_nk,
                r_scales_in_nk,
                vectors[1],
                groups,
            )
        for d in range_constexpr(depth):
            if piece + d < pieces:
                run = (piece + d) * 4 + of_quad
                for i in range_constexpr(LINES // 8):
                    weights_of(now[None, i, d], now_zeros_nk[None, i, d], r_w[None, i], k - run * RUN, ragged)
                for j in range_constexpr(TOKENS // 8):
                    token = cutlass.min(m * TOKENS + 8 * j + quad, tokens - 1)
                    load_run(mA[token, None], run, r_x[None, j], vectors[0], False)
                    if const_expr(ragged):
                        for at in range_constexpr(RUN):
                            r_x[at, j] = r_x[at, j] if run * RUN + at < k else mA.element_type(0.0)
                part.fill(0.0)
                for step in range_constexpr(RUN // 4):  # an mma takes 4 of k from each lane, as two pairs
                    for half in range_constexpr(2):
                        for i in range_constexpr(LINES // 8):
                            pairs_A[(0, i % 2, half), i // 2] = pairs_w[2 * step + half, i]
                        for j in range_constexpr(TOKENS // 8):
                            pairs_B[(0, half), j] = pairs_x[2 * step + half, j]
                    cute.gemm(tiled_mma, part, r_A, r_B, part)
                for i in range_constexpr(LINES // 8):
                    scale = now_scales_in_nk[0, i, d].to(Float32)
                    for j in range_constexpr(TOKENS // 8):
                        for pair in range_constexpr(2):
                            place = ((pair, i % 2), i // 2, j)
                            sums[place] = sums[place] + part[place] * scale

    # Through shared memory the warps that share lines add up; then neighbouring threads have neighbouring columns.
    width = WARPS_N * LINES
    layout = cute.make_layout((width, TOKENS, WARPS_K), stride=(1, width + 1, (width + 1) * TOKENS))
    sC = SmemAllocator().allocate_tensor(Float32, layout, 16)
    for i in range_constexpr(LINES // 8):
        for j in range_constexpr(TOKENS // 8):
            for pair in range_constexpr(2):
                sC[warp_n * LINES + 8 * i + quad, 8 * j + 2 * of_quad + pair, warp_k] = sums[(pair, i % 2), i // 2, j]
    cute.arch.sync_threads()
    for at in cutlass.range(thread, width * TOKENS, THREADS, unroll=1):
        at_m, at_n = m * TOKENS + at // width, n * width + at % width
        if (at_m < tokens) & (at_n < lines):
            acc = Float32(0.0)
            for share in range_constexpr(WARPS_K):
                acc = acc + sC[at % width, at // width, share]
            if acc * 0.0 != 0.0:
                acc = plain_sum(mA, mB, m_zeros_nk, m_scales_in_nk, at_m, at_n, groups)
            bias_mn = m_bias_mn[at_m, at_n, 0]
            out = epilogue(acc, bias_mn.to(Float32))
            m_out[at_m, at_n, 0] = out.to(BFloat16)


@cute.jit
def floats_of_bytes(word: Uint32, at: cutlass.Constexpr, offset: cutlass.Constexpr, found: cute.Tensor):
    """Each byte as the last digits of a float from 2^23 on, which is taken off: conversions have fewer lanes."""
    for byte in range_constexpr(4):
        digits = Int32(cute.arch.prmt(word, Uint32(0x4B000000), Uint32(0x7540 + byte)))
        found[4 * at + byte] = digits.bitcast(Float32) - offset


@cute.jit
def weights_of(numbers: cute.Tensor, r_zeros_nk: cute.Tensor, r_w: cute.Tensor, left: Int32, ragged: cutlass.Constexpr):
    """The weights that a run of numbers stands for, rounded; zeros behind k, of which `left` elements are left."""
    words = cute.recast_tensor(numbers, Uint32)
    bytes_0 = cute.make_rmem_tensor((RUN // PACKED,), Float32)
    bytes_1 = cute.make_rmem_tensor((RUN // PACKED,), Float32)
    for at in range_constexpr(cute.size(words)):
        word = words[at]
        floats_of_bytes(word & Uint32(0x0F0F0F0F), at, 8388608.0, bytes_0)
        floats_of_bytes(word >> 4 & Uint32(0x0F0F0F0F), at, 8388608.0, bytes_1)
    weights = cute.make_rmem_tensor((PACKED, RUN // PACKED), Float32)
    for at in range_constexpr(RUN // PACKED):
        zeros_nk = r_zeros_nk[at * PACKED * cute.size(r_zeros_nk) // RUN].to(Float32)
        weights[0, at], weights[1, at] = elements(bytes_0[at], bytes_1[at], zeros_nk)
    if const_expr(ragged):
        for at in range_constexpr(RUN):
            weights[at] = weights[at] if at < left else Float32(0.0)
    r_w.store(weights.load().to(r_w.element_type).reshape(r_w.shape))


@cute.jit
def plain_sum(
    mA: cute.Tensor,
    mB: cute.Tensor,
    m_zeros_nk: cute.Tensor,
    m_scales_in_nk: cute.Tensor,
    token: Int32,
    line: Int32,
    groups: cutlass.Constexpr,
) -> Float32:
    """A sum that is not finite, again, with scaled weights: an infinite scale of zero is NaN, also beside other
    weights.
    """
    total, at = Float32(0.0), Int32(0)
    while at < mB.shape[1] and total == total:
        word = Uint32(Uint8(mB[line, at]).to(Int32))
        zeros_nk = m_zeros_nk[line, at * PACKED // groups[0], 0].to(Float32)
        scales_in_nk = m_scales_in_nk[line, at * PACKED // groups[1], 0].to(Float32)
        weights = elements(
            Int32((word & Uint32(0x0F0F0F0F)) & Uint32(255)).to(Float32) - Float32(0.0),
            Int32((word >> 4 & Uint32(0x0F0F0F0F)) & Uint32(255)).to(Float32) - Float32(0.0),
            zeros_nk,
        )
        for i in range_constexpr(PACKED):
            total += mA[token, at * PACKED + i].to(Float32) * (weights[i] * scales_in_nk)
        at += 1
    return total


@cute.jit
def load_pieces(
    mB: cute.Tensor,
    m_zeros_nk: cute.Tensor,
    m_scales_in_nk: cute.Tensor,
    line: Int32,
    run: Int32,
    k: Int32,
    numbers: cute.Tensor,
    r_zeros_nk: cute.Tensor,
    r_scales_in_nk: cute.Tensor,
    vector: cutlass.Constexpr,
    groups: cutlass.Constexpr,
):
    """A lane's runs of several pieces of its lines, and what belongs to them."""
    for d in range_constexpr(cute.size(numbers, mode=[2])):
        for i in range_constexpr(LINES // 8):
            own = cutlass.min(line + 8 * i, mB.shape[0] - 1)
            load_run(mB[own, None], run + 4 * d, numbers[None, i, d], vector, True)
            span = RUN // cute.size(r_zeros_nk, mode=[0])  # neighbours that have one number
            for at in range_constexpr(RUN // span):
                group = Int32(Uint32(cutlass.min((run + 4 * d) * RUN + at * span, k - 1)) // groups[0])
                r_zeros_nk[at, i, d] = m_zeros_nk[own, group, 0]
            span = RUN // cute.size(r_scales_in_nk, mode=[0])  # neighbours that have one number
            for at in range_constexpr(RUN // span):
                group = Int32(Uint32(cutlass.min((run + 4 * d) * RUN + at * span, k - 1)) // groups[1])
                r_scales_in_nk[at, i, d] = m_scales_in_nk[own, group, 0]


def stretched(tensor):
    """The tensor with the one element of a dimension of size 1 at all of its places."""
    strides = tuple(0 if isinstance(n, int) and n == 1 else s for n, s in zip(tensor.shape, tensor.stride))
    return cute.make_tensor(tensor.iterator, cute.make_layout(tensor.shape, stride=strides))


def matrices(tensor, result, rows=None, columns=None):
    """(…, rows, columns) as (rows, columns, batch) of the result; sizes of 1 are stretched to what is given."""
    missing = cute.rank(result) - cute.rank(tensor)
    sizes, strides = (1,) * missing + tensor.shape, (0,) * missing + tensor.stride
    strides = tuple(0 if isinstance(n, int) and n == 1 else s for n, s in zip(sizes, strides))
    shape = (sizes[-2] if rows is None else rows, sizes[-1] if columns is None else columns, result.shape[:-2] or 1)
    return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=(*strides[-2:], strides[:-2] or 0)))


@cute.jit
def launch_contraction(
    A: cute.Tensor,
    B: cute.Tensor,
    zeros_nk: cute.Tensor,
    scales_in_nk: cute.Tensor,
    bias_mn: cute.Tensor,
    out: cute.Tensor,
    vectors: cutlass.Constexpr,
    groups: cutlass.Constexpr,
    ragged: cutlass.Constexpr,
    stream,
):
    rows, columns, _ = matrices(out, out).shape
    contraction_kernel(
        stretched(A),
        stretched(B),
        stretched(zeros_nk),
        stretched(scales_in_nk),
        matrices(bias_mn, out, rows, columns),
        matrices(out, out, rows, columns),
        cute.make_tiled_mma(warp.MmaF16BF16Op(BFloat16, Float32, (16, 8, 16))),
        vectors,
        groups,
        ragged,
    ).launch(
        grid=[cute.ceil_div(rows, TOKENS) * cute.ceil_div(columns, WARPS_N * LINES), 1, 1],
        block=[THREADS, 1, 1],
        stream=stream,
    )


TYPES = {torch.bfloat16: BFloat16, torch.uint8: Uint8}


@functools.cache
def compile_contraction(tensors: tuple, vectors: tuple, groups: tuple, ragged: bool):
    """Compile for tensors given as `description` does; sizes and strides other than 0 and 1 are free."""
    fakes = []
    for dtype, shape, stride, alignment, wide in tensors:
        sizes = tuple(1 if n == 1 else cute.sym_int(divisibility=n or 1) for n in shape)
        steps = tuple(s if s in (0, 1) else cute.sym_int(64 if wide else 32, divisibility=-s) for s in stride)
        fakes.append(cute.runtime.make_fake_tensor(TYPES[dtype], sizes, steps, assumed_align=alignment))
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    compiled = cute.compile(launch_contraction, *fakes, vectors, groups, ragged, stream, options="--enable-tvm-ffi")
    return compiled.__tvm_ffi_object__() or compiled  # TVM-FFI's own function: the DSL's wrapper takes 0.3 us more


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


def description(tensor, vector: int):
    """(dtype, shape, stride, alignment, whether offsets need 64 bits): what is known when compiling.

    Of sizes 1 or what divides them, of strides 0, 1, or less what divides them.
    """
    at, known = tensor.dim() - 1, vector > 1
    shape = tuple(1 if n == 1 else vector if known and d == at else 0 for d, n in enumerate(tensor.shape))
    steps = zip(tensor.shape, tensor.stride())
    stride = tuple(
        -1 if n == 1 else 0 if s == 0 else -vector if d != at else 1 if known else -1 for d, (n, s) in enumerate(steps)
    )
    extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return tensor.dtype, shape, stride, vector * tensor.element_size(), extent >= 2**31


def specialise(a, b, *others):
    """The compiled kernel for tensors of these types, layouts and alignments."""
    k = a.shape[-1]
    if b.shape[-1] * PACKED != k:
        raise ValueError(f"rows of {k} elements, weights of {b.shape[-1] * PACKED}: pass equal ones")
    if k % others[0].shape[1]:
        raise ValueError(
            f"{others[0].shape[1]} numbers of zeros for {k} of k: pass one for each group of as many elements"
        )
    if k % others[1].shape[1] or k // others[1].shape[1] % (4 * RUN):
        raise ValueError(
            f"{others[1].shape[1]} numbers of scales_in for {k} of k: pass one for each group of 128 elements or a "
            "multiple"
        )
    groups = (k // others[0].shape[1], k // others[1].shape[1])
    vectors = access(a, min(RUN, 16 // a.element_size()), (-1,))[1], access(b, RUN // PACKED, (-1,))[1]
    tensors = description(a, vectors[0]), description(b, vectors[1]), *(description(t, 1) for t in others)
    return compile_contraction(tensors, vectors, groups, k % (4 * RUN) != 0)


LAUNCHERS = {}


def kernel_fn(x_in, packed, scales_in, zeros, bias):
    if len({x_in.shape[1], packed.shape[1] * 2, scales_in.shape[1] * 128, zeros.shape[1] * 128}) > 1:
        raise ValueError(
            "this kernel takes equal sizes: "
            f"{x_in.shape[1], packed.shape[1] * 2, scales_in.shape[1] * 128, zeros.shape[1] * 128 = }"
        )
    if len({packed.shape[0]} | {scales_in.shape[0], zeros.shape[0], bias.shape[0]} - {1}) > 1:
        raise ValueError(
            "this kernel takes equal sizes, or a 1 of scales_in.shape[0], zeros.shape[0], bias.shape[0]: "
            f"{packed.shape[0], scales_in.shape[0], zeros.shape[0], bias.shape[0] = }"
        )
    zeros_view = zeros.unsqueeze(2)
    scales_in_view = scales_in.unsqueeze(2)
    out = torch.empty((x_in.shape[0], packed.shape[0]), dtype=torch.bfloat16, device=x_in.device)
    if out.numel() == 0:
        return out
    key = (
        x_in.shape,
        x_in.stride(),
        x_in.dtype,
        packed.shape,
        packed.stride(),
        packed.dtype,
        zeros_view.shape,
        zeros_view.stride(),
        zeros_view.dtype,
        scales_in_view.shape,
        scales_in_view.stride(),
        scales_in_view.dtype,
        bias.shape,
        bias.stride(),
        bias.dtype,
        (
            x_in.data_ptr() & 15,
            packed.data_ptr() & 15,
            zeros_view.data_ptr() & 15,
            scales_in_view.data_ptr() & 15,
            bias.data_ptr() & 15,
        ),
    )
    launch = LAUNCHERS.get(key)
    if launch is None:
        if (x_in.dtype, packed.dtype, scales_in.dtype, zeros.dtype, bias.dtype) != (
            torch.bfloat16,
            torch.uint8,
            torch.bfloat16,
            torch.bfloat16,
            torch.bfloat16,
        ):
            raise ValueError(
                "this kernel takes x_in of bfloat16, packed of uint8, scales_in of bfloat16, zeros of bfloat16, bias "
                "of bfloat16"
            )
        if any(n not in (1, size) for n, size in zip(bias.shape[::-1], out.shape[::-1])):
            raise ValueError(f"bias has shape {(*bias.shape,)}; it must fit {(*out.shape,)}")
        launch = LAUNCHERS[key] = specialise(x_in, packed, zeros_view, scales_in_view, bias, out)
    launch(x_in, packed, zeros_view, scales_in_view, bias, out)
    return out


GROUP = 128


def reference_fn(x, packed, scales, zeros, bias):
    lines = packed.shape[0]
    q = torch.stack([packed & 0xF, packed >> 4], -1).view(lines, -1, GROUP).to(x.dtype)
    weights = (q - zeros[..., None]) * scales[..., None]
    return F.linear(x, weights.view(lines, -1), bias)


def get_inputs(tokens=4, lines=512, features=512):
    groups = features // GROUP
    return [
        torch.randn(tokens, features, device="cuda").bfloat16(),
        torch.randint(0, 256, (lines, features // 2), device="cuda", dtype=torch.uint8),
        (torch.rand(lines, groups, device="cuda") / 64 + 0.01).bfloat16(),
        torch.randint(6, 10, (lines, groups), device="cuda").bfloat16(),
        torch.randn(lines, device="cuda").bfloat16(),
    ]


def get_input_sets():
    yield get_inputs(19, 77, 384)
    yield get_inputs(1, 5, 128)
