"""sigmoid_odd_sizes.py as a CuTe DSL kernel.

Written by cutesmith 0.1.0 for sm_90a: pattern elementwise, configuration threads=128, vector=8, vectors=2.
Standalone: needs torch and nvidia-cutlass-dsl only; kernel_fn computes what reference_fn below does.
"""

import functools
import math
from typing import NamedTuple

import torch

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Uint8, const_expr, range_constexpr

# ---- kernel: sigmoid

THREADS = 128  # a block
VECTOR = 8  # elements that one thread loads and stores at once
VECTORS = 2  # vectors a thread, all loaded before the first is used


class Plan(NamedTuple):
    """What is known when compiling: elements a vector, index type, and 0 for each tensor that one vector repeats."""

    vector: int
    index: type
    steps: tuple
    tail: bool  # the length is free, so the last vector may be cut short


@cute.jit
def sigmoid_fast(x: Float32) -> Float32:
    """1 / (1 + exp(-x)) by ex2.approx and rcp.approx: relative error below 2^-21."""
    return cute.arch.rcp_approx(1.0 + cute.math.exp2(x * -1.4426950408889634, fastmath=True))


@cute.kernel
def elementwise_kernel(m_x: cute.Tensor, m_out: cute.Tensor, count: Int64, plan: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    first = plan.index(block) * (THREADS * VECTORS) + thread
    whole = plan.index(count // plan.vector)  # vectors that are not cut short
    r_x = cute.make_rmem_tensor((max(1, plan.vector * plan.steps[0]), VECTORS), Float16)
    f_out = cute.make_rmem_tensor((plan.vector,), Float32)
    r_out = cute.make_rmem_tensor((plan.vector,), Float16)
    for c in range_constexpr(VECTORS):
        at = first + c * THREADS
        if at < whole:
            cute.autovec_copy(m_x[None, at], r_x[None, c])
        if const_expr(plan.tail):
            if at == whole:
                for v in range_constexpr(plan.vector):
                    if at * plan.vector + v < count:
                        r_x[v * plan.steps[0], c] = m_x[v * plan.steps[0], at]
    for c in range_constexpr(VECTORS):
        at = first + c * THREADS
        v_x = r_x[None, c].load().to(Float32)
        for v in range_constexpr(plan.vector):
            input_0 = v_x[v * plan.steps[0]]
            sigmoid_1 = sigmoid_fast(input_0)
            f_out[v] = sigmoid_1
        r_out.store(f_out.load().to(Float16))
        if at < whole:
            cute.autovec_copy(r_out, m_out[None, at])
        if const_expr(plan.tail):
            if at == whole:
                for v in range_constexpr(plan.vector):
                    if at * plan.vector + v < count:
                        m_out[v, at] = r_out[v]


@cute.jit
def as_vectors(tensor: cute.Tensor, layout: cutlass.Constexpr, count: Int64, plan: cutlass.Constexpr):
    """The tensor as (elements of a vector, vectors); without a layout it is dense and of free length."""
    if const_expr(layout is None):
        vectors = plan.index(cute.ceil_div(count, plan.vector))
        shape, stride = (plan.vector, vectors), (1, plan.vector)
    else:
        shape, stride = layout
    return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=stride))


@cute.jit
def launch_elementwise(x: cute.Tensor, out: cute.Tensor, plan: cutlass.Constexpr, layouts: cutlass.Constexpr, stream):
    count = Int64(math.prod(out.shape))
    elementwise_kernel(
        as_vectors(x, layouts[0], count, plan),
        as_vectors(out, layouts[1], count, plan),
        count,
        plan,
    ).launch(
        grid=[Int32(cute.ceil_div(count, plan.vector * THREADS * VECTORS)), 1, 1],
        block=[THREADS, 1, 1],
        stream=stream,
    )


TYPES = {
    torch.float16: Float16, torch.bfloat16: BFloat16, torch.float32: Float32, torch.float64: Float64,
    torch.int8: Int8, torch.int16: Int16, torch.int32: Int32, torch.int64: Int64, torch.uint8: Uint8,
}


@functools.cache
def compile_elementwise(plan: Plan, layouts: tuple, tensors: tuple):
    """Compile for tensors given as (dtype, shape, stride, alignment); without a stride: dense, every size free."""
    fakes = []
    for dtype, shape, stride, alignment in tensors:
        if stride is None:
            sizes = tuple(cute.sym_int() for _ in shape)
            order = tuple(reversed(range(len(shape))))
            fake = cute.runtime.make_fake_compact_tensor(TYPES[dtype], sizes, stride_order=order, assumed_align=alignment)
        else:
            fake = cute.runtime.make_fake_tensor(TYPES[dtype], shape, stride, assumed_align=alignment)
        fakes.append(fake)
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    scalars = []
    compiled = cute.compile(launch_elementwise, *fakes, *scalars, plan, layouts, stream, options="--enable-tvm-ffi")
    return compiled.__tvm_ffi_object__() or compiled  # TVM-FFI's own function: the DSL's wrapper costs a third of a microsecond


INPUTS = 1  # the first tensors; the others are outputs


def specialise(*tensors):
    """The compiled kernel for tensors of these shapes, strides, types and alignments; nothing to do for no element."""
    shape, count = tensors[-1].shape, tensors[-1].numel()
    if count == 0:
        return lambda *_: None
    dense = all(is_dense(t) and (t.shape == shape or t.numel() == 1) for t in tensors)
    if dense and count < 2**31:
        vector, tail = VECTOR, True
        layouts = tuple(None if t.numel() > 1 or count == 1 else ((1, 2**31 - 1), (0, 0)) for t in tensors)
    else:
        sizes, strides = merge_dimensions([t.expand(shape) for t in tensors], tensors[-1].stride())
        vector, tail = math.gcd(VECTOR, sizes[0]), False
        layouts = tuple(vector_layout(sizes, stride, vector) for stride in strides)
    steps = tuple(0 if layout is not None and layout[1][0] == 0 else 1 for layout in layouts[:INPUTS])
    plan = Plan(vector, Int32 if max(map(extent, tensors)) < 2**31 else Int64, steps, tail)
    free = [layout is None for layout in layouts]
    return compile_elementwise(plan, layouts, tuple(map(description, tensors, free)))


def extent(tensor) -> int:
    """Elements from the first to the last in memory, and no fewer than there are."""
    return max(tensor.numel(), 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())))


def description(tensor, free: bool):
    """(dtype, shape, stride, alignment) as `compile_elementwise` takes it; of a free tensor only the rank counts."""
    alignment = min(16, tensor.data_ptr() & -tensor.data_ptr() or 16)
    if free:
        return tensor.dtype, (-1,) * tensor.dim(), None, alignment
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), alignment


def is_dense(tensor) -> bool:
    """Whether the strides are exactly those of a contiguous tensor (PyTorch lets those of size 1 be anything)."""
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride())):
        if stride != step:
            return False
        step *= size
    return True


def merge_dimensions(tensors, order):
    """Sizes and each tensor's strides, innermost first, in as few dimensions as all tensors allow."""
    shape = tensors[0].shape
    dims = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: (order[d], -d))
    sizes, strides = [], [[] for _ in tensors]
    for dim in dims:
        steps = [t.stride(dim) for t in tensors]
        if sizes and all(own[-1] * sizes[-1] == step for own, step in zip(strides, steps)):
            sizes[-1] *= shape[dim]
            continue
        sizes.append(shape[dim])
        for own, step in zip(strides, steps):
            own.append(step)
    return (sizes, strides) if sizes else ([1], [[1] for _ in tensors])


def vector_layout(sizes, stride, vector: int):
    """Shape and stride of (elements of a vector, vectors); one element a vector where all are the same."""
    inner = stride[0]
    shape = (vector if inner else 1, (sizes[0] // vector, *sizes[1:]))
    return shape, (inner, (inner * vector, *stride[1:]))


LAUNCHERS = {}


def kernel_fn(x):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    key = (x.shape, x.stride(), x.dtype, (x.data_ptr()) & 15)
    launch = LAUNCHERS.get(key)
    if launch is None:
        launch = LAUNCHERS[key] = specialise(x, out)
    launch(x, out)
    return out


# ------------------------------------------------------------------------------
# The problem, as it was given: what to compute, and on which inputs.
# ------------------------------------------------------------------------------

"""Sigmoid of a fp16 matrix whose sizes are odd primes, so that no row starts at a vector boundary."""

import torch

LEVEL = 1
TAGS = ("elementwise", "fp16", "odd")


def reference_fn(x):
    return torch.sigmoid(x)


def get_inputs(rows=16381, columns=4093):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float16)]


def get_input_sets():
    for rows, columns in ((1, 1), (3, 7), (1, 8191), (17, 257), (0, 13)):
        yield get_inputs(rows, columns)
