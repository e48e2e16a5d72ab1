"""amin.py as a CuTe DSL kernel.

Written by cutesmith 0.1.0 for sm_90a: pattern rows, configuration vector=8, elements_per_thread=32, min_threads=128,
max_threads=1024, max_cluster=1, resident_elements=64, reload_elements=32, shared_bytes=0, hints="stream",
stores="none", threads_per_sm=0.
Standalone: needs torch and nvidia-cutlass-dsl only; kernel_fn computes what reference_fn below does.
"""

import functools
import math
from typing import NamedTuple

import torch

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Uint8, const_expr, range_constexpr

# ---- kernel: min over the last dimension

ROWS_RANK = 1  # leading dimensions that are rows; the other dimensions are the columns that a row reduces


class Plan(NamedTuple):
    """How one row is spread over a block: `threads` a row, each with `blocks` x `chunks` vectors of `vector` elements."""

    columns: int
    vector: int
    threads: int
    rows: int  # rows a block
    chunks: int  # vectors a thread holds in registers at once
    blocks: int  # 1: the row stays in registers; more: later stages fetch it again
    cluster: int  # thread blocks that share a row
    shared: bool  # a row too long for the registers is kept in shared memory, not read again

    @property
    def vectors(self) -> int:
        return self.columns // self.vector

    @property
    def resident(self) -> bool:
        return self.blocks == 1

    @property
    def even(self) -> bool:
        return self.vectors == self.threads * self.cluster * self.chunks * self.blocks

    @property
    def warps(self) -> int:
        return max(1, self.threads // 32)

    @property
    def parts(self) -> int:
        """Partial results of a row: one a warp of every block that shares it; a warp combines them, so at most 32."""
        return self.warps * self.cluster


ELEMENTS_PER_THREAD = 32
MIN_THREADS = 128  # a block: short rows share one
MAX_THREADS = 1024  # a block; longer rows are split over a cluster of blocks
MAX_CLUSTER = 1
RESIDENT_ELEMENTS = 64  # a thread, in registers
RELOAD_ELEMENTS = 32  # loads in flight a thread where a row is longer
SHARED_BYTES = 0  # longer rows up to this size stay in shared memory, the others are read again from L2
KEPT_BYTES = 0  # a column, of the tensors that more than one stage reads


def plan_rows(columns: int, vector: int) -> Plan:
    """The launch plan for rows of `columns` elements read `vector` at a time."""
    vectors = columns // vector
    threads = max(1, -(-columns // ELEMENTS_PER_THREAD))
    threads = 1 << (threads - 1).bit_length() if threads < 32 else -(-threads // 32) * 32
    cluster = 1
    while threads > MAX_THREADS and cluster < MAX_CLUSTER and MAX_THREADS // 32 * cluster < 32:
        threads, cluster = -(-threads // 64) * 32, cluster * 2
    threads = min(threads, MAX_THREADS)
    chunks, blocks = max(1, -(-vectors // (threads * cluster))), 1
    if chunks * vector > RESIDENT_ELEMENTS:
        in_flight = max(1, RELOAD_ELEMENTS // vector)
        chunks, blocks = in_flight, -(-chunks // in_flight)
    rows = max(1, MIN_THREADS // threads) if cluster == 1 else 1
    shared = blocks > 1 and cluster == 1 and 0 < columns * KEPT_BYTES <= SHARED_BYTES
    return Plan(columns, vector, threads, 1 if blocks > 1 else rows, chunks, blocks, cluster, shared)

def combine_min_f32(a, b):
    return cute.arch.fmin(a, b, nan=True)  # NaN wins, as in torch.amin

def across_lanes(state, combine, lanes):
    """Butterfly over `lanes` neighbouring lanes of a warp; every lane gets the result."""
    offset = 1
    while offset < lanes:
        state = combine(*state, *(cute.arch.shuffle_sync_bfly(part, offset=offset) for part in state))
        state = state if isinstance(state, tuple) else (state,)
        offset *= 2
    return state


PTX_SUFFIX = {Float32: "f32", Float64: "f64", Int32: "s32", Int64: "s64"}


def store_to_peer(pointer, value, peer):
    """Store to the same place of another block's shared memory in the cluster."""
    there = cute.arch.map_dsmem_ptr(pointer, peer)
    cute.arch.inline_ptx(f"st.shared::cluster.{PTX_SUFFIX[type(value)]} [{{$r0}}], {{$r1}};", read_only_args=[there, value])

def combine_lanes_1(min_1, lanes, even):
    """Combine min of the row over `lanes` neighbouring lanes of a warp; `even`: each speaks for as many elements."""
    min_1, = across_lanes((min_1,), combine_min_f32, lanes)
    return min_1


@cute.jit
def reduce_1(min_1, s_min_1: cute.Tensor, slot: Int32, lane: Int32, plan: cutlass.Constexpr):
    """Combine min of the row over the threads of a row; every thread gets the result."""
    min_1 = combine_lanes_1(min_1, const_expr(min(32, plan.threads)), plan.even)
    if const_expr(plan.cluster > 1):
        cute.arch.cluster_wait()  # every block of the cluster has started: its shared memory may be written
        peer = lane % 32
        if peer < plan.cluster:
            at = cute.arch.block_idx_in_cluster() * plan.warps + lane // 32
            store_to_peer(s_min_1.iterator + at, min_1, peer)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    elif const_expr(plan.warps > 1):
        if lane % 32 == 0:
            s_min_1[lane // 32, slot] = min_1
        cute.arch.barrier()
    if const_expr(plan.parts > 1):
        lanes = const_expr(1 << (plan.parts - 1).bit_length())
        part = lane % lanes
        inside = part < plan.parts
        part = part if inside else Int32(0)
        min_1 = s_min_1[part, slot] if inside else Float32(math.inf)
        min_1 = combine_lanes_1(min_1, lanes, const_expr(plan.even and lanes == plan.parts))
    return min_1


EVICT_FIRST, EVICT_LAST = Int64(0x12F0000000000000), Int64(0x14F0000000000000)  # L2 policies as `createpolicy` encodes them


def read(source, target, again: bool = False):
    """Copy one vector from global memory to registers, past L1 so that the column tensors stay there."""
    bits = min(128, cute.size(target) * target.element_type.width)
    if bits < 32:
        cute.autovec_copy(source, target)
        return
    atom = cute.make_copy_atom(
        cute.nvgpu.CopyG2ROp(), target.element_type, num_bits_per_copy=bits,
        l1c_evict_priority=cute.nvgpu.CacheEvictionPriority.NO_ALLOCATE,
    )
    cute.copy(atom, source, target)


@cute.kernel
def rows_kernel(m_x: cute.Tensor, m_out: cute.Tensor, rows: Int32, plan: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    lane, slot = thread % plan.threads, thread // plan.threads
    row = block // plan.cluster * plan.rows + slot
    place = lane  # the thread's place among all that share the row
    if const_expr(plan.cluster > 1):
        place = cute.arch.block_idx_in_cluster() * plan.threads + lane
        cute.arch.cluster_arrive_relaxed()
    read_row = (row if row < rows else rows - 1).to(Int64)  # threads past the last row repeat it and store nothing
    smem = cutlass.memory.SmemAllocator()
    partials = cute.make_layout((plan.parts, plan.rows))
    s_min_1 = smem.allocate_tensor(Float32, partials, byte_alignment=16)
    g_x = cute.zipped_divide(m_x[read_row, None], (plan.vector,))
    r_x = cute.make_rmem_tensor((plan.vector, plan.chunks), BFloat16)

    if const_expr(plan.resident):
        for c in range_constexpr(plan.chunks):
            at = (c) * (plan.threads * plan.cluster) + place
            if const_expr(plan.even):
                read(g_x[None, at], r_x[None, c])
            else:
                if at < plan.vectors:
                    read(g_x[None, at], r_x[None, c])
    # Stage 1: min of the row
    min_1 = Float32(math.inf)
    for b in cutlass.range(plan.blocks, unroll=1, unroll_full=plan.resident):
        if const_expr(not plan.resident):
            for c in range_constexpr(plan.chunks):
                again_1 = (b * plan.chunks + c) * (plan.threads * plan.cluster) + place
                if const_expr(plan.even):
                    read(g_x[None, again_1], r_x[None, c])
                else:
                    if again_1 < plan.vectors:
                        read(g_x[None, again_1], r_x[None, c])
        for c in range_constexpr(plan.chunks):
            index_1 = (b * plan.chunks + c) * (plan.threads * plan.cluster) + place
            s1_x = r_x[None, c].load().to(Float32)
            for v in range_constexpr(plan.vector):
                s1_x_v = s1_x[v]
                item_2 = s1_x_v
                if const_expr(not plan.even):
                    item_2 = item_2 if index_1 < plan.vectors else Float32(math.inf)
                min_1 = combine_min_f32(min_1, item_2)
    min_1 = reduce_1(min_1, s_min_1, slot, lane, plan)
    if (place == 0) & (row < rows):
        m_out[row] = min_1.to(BFloat16)


class Layout(NamedTuple):
    """A tensor as rows x columns with strides known when compiling; `None` for a role: it is dense."""

    shape: tuple
    stride: tuple


def collapse(shape, stride):
    """The same elements in row-major order with as few dimensions as possible, innermost first (CuTe's order)."""
    merged = []
    for size, step in reversed(list(zip(shape, stride))):
        if size < 2:
            continue
        if merged and merged[-1][0] * merged[-1][1] == step:
            merged[-1] = (merged[-1][0] * size, merged[-1][1])
        else:
            merged.append((size, step))
    merged = merged or [(1, 1)]
    return tuple(size for size, _ in merged), tuple(step for _, step in merged)


@cute.jit
def as_matrix(tensor: cute.Tensor, layout: cutlass.Constexpr, role: cutlass.Constexpr, rows: Int32, columns: cutlass.Constexpr):
    """The tensor as (rows, columns), (rows,) or (columns,), by its role."""
    if const_expr(layout is not None):
        shape, stride = layout.shape, layout.stride
    elif const_expr(role == "element"):
        shape, stride = (rows, max(columns, 1)), (columns, 1)
    elif const_expr(role == "column"):
        shape, stride = (max(columns, 1),), (1,)
    else:
        shape, stride = (rows,), (1,)
    return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=stride))


@cute.jit
def launch_rows(x: cute.Tensor, out: cute.Tensor, plan: cutlass.Constexpr, layouts: cutlass.Constexpr, stream):
    rows = Int32(math.prod(out.shape[:ROWS_RANK]))  # an output: its leading dimensions are the rows
    rows_kernel(
        as_matrix(x, layouts[0], ROLES[0], rows, plan.columns),
        as_matrix(out, layouts[1], ROLES[1], rows, plan.columns),
        rows,
        plan,
    ).launch(
        grid=[cute.ceil_div(rows, plan.rows) * plan.cluster, 1, 1],
        block=[plan.threads * plan.rows, 1, 1],
        cluster=[plan.cluster, 1, 1] if const_expr(plan.cluster > 1) else None,
        stream=stream,
    )


TYPES = {
    torch.float16: Float16, torch.bfloat16: BFloat16, torch.float32: Float32, torch.float64: Float64,
    torch.int8: Int8, torch.int16: Int16, torch.int32: Int32, torch.int64: Int64, torch.uint8: Uint8,
}


@functools.cache
def compile_rows(columns: int, vector: int, tensors: tuple):
    """Compile for rows of `columns` elements; `tensors` holds (dtype, shape, stride, alignment, layout) each.

    A dense tensor has no stride and no layout, and -1 for every size that is free at run time.
    """
    fakes = []
    for dtype, shape, stride, alignment, _ in tensors:
        if stride is None:
            sizes = tuple(cute.sym_int() if size < 1 else size for size in shape)  # -1: free; 0: an empty row
            order = tuple(reversed(range(len(shape))))
            fake = cute.runtime.make_fake_compact_tensor(TYPES[dtype], sizes, stride_order=order, assumed_align=alignment)
        else:
            sizes = tuple(size or cute.sym_int() for size in shape)
            fake = cute.runtime.make_fake_tensor(TYPES[dtype], sizes, stride, assumed_align=alignment)
        fakes.append(fake)
    layouts = tuple(layout for *_, layout in tensors)
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    plan = plan_rows(columns, vector)
    scalars = []
    compiled = cute.compile(launch_rows, *fakes, *scalars, plan, layouts, stream, options="--enable-tvm-ffi")
    return compiled.__tvm_ffi_object__() or compiled  # TVM-FFI's own function: the DSL's wrapper costs a third of a microsecond


ROLES = ('element', 'row')


def specialise(*tensors):
    """The compiled kernel for tensors of these shapes, strides, types and alignments; nothing to do when there is no row."""
    shape = tuple(tensors[0].shape)
    leading, trailing = shape[:ROWS_RANK], shape[ROWS_RANK:]
    rows, columns = math.prod(leading), math.prod(trailing)
    vector = 8 if columns > 0 else 1
    if columns == 0:
        raise IndexError("amin of a row without elements has no value")
    if rows == 0:
        return lambda *_: None
    sizes = {"element": rows * columns, "column": columns, "row": rows, "kept row": rows}
    dense = all(t.is_contiguous() and t.numel() == sizes[role] for t, role in zip(tensors, ROLES))
    described = []
    for tensor, role in zip(tensors, ROLES):
        alignment = min(16, tensor.data_ptr() & -tensor.data_ptr() or 16)
        if dense:
            fixed = len(trailing) if role in ("element", "column") else 0
            free = (-1,) * (tensor.dim() - fixed) + tuple(tensor.shape[tensor.dim() - fixed :])
            description = (tensor.dtype, free, None, alignment, None)
        else:
            layout = matrix_layout(tensor, role, leading, trailing)
            description = (tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), alignment, layout)
        described.append(description)
        if role in ("element", "column"):
            vector = min(vector, vector_of(description[-1], columns, alignment // tensor.element_size()))
    return compile_rows(columns, vector, tuple(described))


def matrix_layout(tensor, role: str, leading, trailing) -> Layout:
    """The layout of `tensor`, broadcast to its role's shape, as rows x columns."""
    if role == "element":
        tensor = tensor.expand(*leading, *trailing)
        rows = collapse(tensor.shape[:ROWS_RANK], tensor.stride()[:ROWS_RANK])
        columns = collapse(tensor.shape[ROWS_RANK:], tensor.stride()[ROWS_RANK:])
        return Layout((rows[0], columns[0]), (rows[1], columns[1]))
    if role == "kept row":
        tensor = tensor.view(tensor.shape[: max(0, tensor.dim() - len(trailing))])
    tensor = tensor.expand(trailing if role == "column" else leading)
    shape, stride = collapse(tensor.shape, tensor.stride())
    return Layout((shape,), (stride,))


def vector_of(layout, columns: int, aligned: int) -> int:
    """How many elements of a tensor one vector access may cover (a power of two)."""
    width = math.gcd(columns, 16, max(1, aligned))
    if layout is None:
        return width
    if layout.stride[-1] != (1,):
        return 1
    return math.gcd(width, *(layout.stride[0] if len(layout.stride) == 2 else ()))


_launchers = {}


def kernel_fn(x):
    out = torch.empty(x.shape[:1], dtype=torch.bfloat16, device=x.device)
    key = (x.shape, x.stride(), x.dtype, (x.data_ptr()) & 15)
    launch = _launchers.get(key)
    if launch is None:
        launch = _launchers.setdefault(key, specialise(x, out))
    launch(x, out)
    return out


# ------------------------------------------------------------------------------
# The problem, as it was given: what to compute, and on which inputs.
# ------------------------------------------------------------------------------

"""Smallest element of each row of a bf16 matrix."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "bf16")


def reference_fn(x):
    return torch.amin(x, dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)
