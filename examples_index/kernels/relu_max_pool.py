"""Batch norm, ReLU and max pooling 3x3 in one pass: a few neighbouring results a thread, read through L1.

Written by `cutesmith generate`. A thread loads the elements of each line that its windows share, in aligned vectors
where all of a vector is needed, applies scale, shift and ReLU once to each of them, and takes the largest. What lies
outside the image is -inf after that work. Other sizes compile once more; loops, bounds and vectors are constants.

Arch: sm_80+
Operation: convolution
Features: vectorized_copy, predication, stencil
Start here when a window moves over an image and each channel stands alone: pooling, depthwise convolution, stencils.
"""

import functools
import math
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
import torch.nn.functional as F
from cutlass import (
    BFloat16,
    Float16,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    const_expr,
    range_constexpr,
)

# ---- kernel: maximum of windows + mul + add + maximum

THREADS = 128  # of a block
OUTPUTS = 4  # neighbouring results of a thread
TAPS, STEP, START, DILATION = 3, 2, 1, 1  # of windows along a line of the image
VECTOR = 4  # elements of a line that are loaded at once, at most
LEAD = -START % VECTOR  # elements from where a load may begin to the first that is needed
SPAN = (OUTPUTS - 1) * STEP + (TAPS - 1) * DILATION + 1  # elements of a line that a thread needs
SEEN = -(-(LEAD + SPAN) // VECTOR) * VECTOR  # and that it has room for


class Plan(NamedTuple):
    """What is known when compiling: sizes of the image and of the result, and elements of an access of each tensor."""

    image: tuple
    sizes: tuple
    index: type
    widths: tuple


@cute.jit
def element(x_at: Float32, scale_at: Float32, shift_at: Float32):
    mul_2 = x_at * scale_at
    add_4 = mul_2 + shift_at
    maximum_5 = cute.arch.fmax(add_4, Float32(0.0), nan=True)
    return maximum_5


@cute.jit
def load_seen(line: cute.Tensor, base, size: cutlass.Constexpr, seen: cute.Tensor, width: cutlass.Constexpr):
    """Elements `base` and on of a line of the image, those that are needed and that it has."""
    for chunk in range_constexpr(SEEN // width):
        at = base + chunk * width
        if const_expr(chunk * width >= LEAD and (chunk + 1) * width <= LEAD + SPAN):
            if (at >= 0) & (at < size):
                cute.autovec_copy(line[((None, at // width),)], cute.local_tile(seen, (width,), (chunk,)))
        else:
            for e in range_constexpr(width):
                if const_expr(LEAD <= chunk * width + e < LEAD + SPAN):  # noqa: SIM102 (a constant, then not)
                    if (at + e >= 0) & (at + e < size):
                        seen[chunk * width + e] = line[at + e]


@cute.jit
def store(values: cute.Tensor, line: cute.Tensor, first, size: cutlass.Constexpr, width: cutlass.Constexpr):
    """The values as elements `first` and on of a line of the result, as many as it has."""
    for chunk in range_constexpr(OUTPUTS // width):
        at = first + chunk * width
        if at < size:
            cute.autovec_copy(cute.local_tile(values, (width,), (chunk,)), line[((None, at // width),)])


@cute.kernel
def windows_kernel(
    m_x_at: cute.Tensor, m_scale_at: cute.Tensor, m_shift_at: cute.Tensor, m_out: cute.Tensor, plan: cutlass.Constexpr
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    group = plan.index(block) * THREADS + thread
    across = cute.ceil_div(plan.sizes[-1], OUTPUTS)  # groups of neighbouring results in a line
    r_x_at = cute.make_rmem_tensor((SEEN,), Float32)
    r_out = cute.make_rmem_tensor((OUTPUTS,), Float32)
    values = cute.make_rmem_tensor((SEEN,), Float32)
    acc = cute.make_rmem_tensor((OUTPUTS,), Float32)
    acc.fill(Float32(-math.inf))
    if group < math.prod(plan.sizes[:-1]) * across:
        first = group % across * OUTPUTS
        line = group // across
        q_0 = line % plan.sizes[-2]
        line = line // plan.sizes[-2]
        at_1 = line % plan.sizes[1]
        line = line // plan.sizes[1]
        at_0 = line
        base = first * STEP - START - LEAD
        for tap in range_constexpr(3):
            y_0 = q_0 * 2 - 1 + tap
            if (y_0 >= 0) & (y_0 < plan.image[-2]):
                load_seen(m_x_at[at_0, at_1, y_0, None], base, plan.image[-1], r_x_at, plan.widths[0])
                scale_at = m_scale_at[at_0, at_1, y_0, 0]
                shift_at = m_shift_at[at_0, at_1, y_0, 0]
                for e in range_constexpr(LEAD, LEAD + SPAN):
                    y_1 = base + e
                    x_at = r_x_at[e]
                    value = element(x_at, scale_at, shift_at)
                    values[e] = value if (y_1 >= 0) & (y_1 < plan.image[-1]) else Float32(-math.inf)
                for t in range_constexpr(TAPS):
                    for v in range_constexpr(OUTPUTS):
                        best = acc[v]
                        acc[v] = cute.arch.fmax(best, values[LEAD + v * STEP + t * DILATION], nan=True)
        for v in range_constexpr(OUTPUTS):
            best = acc[v]
            out = best
            r_out[v] = out
        store(r_out, m_out[at_0, at_1, q_0, None], first, plan.sizes[-1], plan.widths[3])


@cute.jit
def launch_windows(
    x_at: cute.Tensor,
    scale_at: cute.Tensor,
    shift_at: cute.Tensor,
    out: cute.Tensor,
    plan: cutlass.Constexpr,
    layouts: cutlass.Constexpr,
    stream,
):
    groups = math.prod(plan.sizes[:-1]) * cute.ceil_div(plan.sizes[-1], OUTPUTS)
    windows_kernel(
        cute.make_tensor(x_at.iterator, cute.make_layout(layouts[0][0], stride=layouts[0][1])),
        cute.make_tensor(scale_at.iterator, cute.make_layout(layouts[1][0], stride=layouts[1][1])),
        cute.make_tensor(shift_at.iterator, cute.make_layout(layouts[2][0], stride=layouts[2][1])),
        cute.make_tensor(out.iterator, cute.make_layout(layouts[3][0], stride=layouts[3][1])),
        plan,
    ).launch(grid=[cute.ceil_div(groups, THREADS), 1, 1], block=[THREADS, 1, 1], stream=stream)


TYPES = {
    torch.float16: Float16,
    torch.bfloat16: BFloat16,
    torch.float32: Float32,
    torch.float64: Float64,
    torch.int8: Int8,
    torch.int16: Int16,
    torch.int32: Int32,
    torch.int64: Int64,
    torch.uint8: Uint8,
}


@functools.cache
def compile_windows(plan: Plan, layouts: tuple, tensors: tuple):
    """Compile for tensors given as (dtype, shape, stride, alignment)."""
    fakes = [
        cute.runtime.make_fake_tensor(TYPES[dtype], *layout, assumed_align=align) for dtype, *layout, align in tensors
    ]
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    numbers = []
    compiled = cute.compile(launch_windows, *fakes, *numbers, plan, layouts, stream, options="--enable-tvm-ffi")
    return (
        compiled.__tvm_ffi_object__() or compiled
    )  # TVM-FFI's own function: the DSL's wrapper costs a third of a microsecond


IMAGES, LATE = 3, 0  # tensors of the image's shape, then of the result's; the last are outputs


def specialise(image, sizes, *tensors):
    """The compiled kernel for an image of this shape, positions of these sizes, and tensors of these layouts."""
    shape = tuple(tensors[-1].shape)
    result = shape
    layouts, widths = [], []
    for place, tensor in enumerate(tensors):
        if place < IMAGES:
            layout, most = layout_of(tensor.expand(image), tuple(image)), VECTOR
        else:
            layout, most = layout_of(tensor.expand(shape), result), OUTPUTS
        width = access(tensor, *layout, most)
        widths.append(width)
        (*outer, size), (*steps, step) = layout
        layouts.append(((*outer, (width, size // width)), (*steps, (step, step * width))))
    extent = max(1 + sum((size - 1) * step for size, step in zip(t.shape, t.stride())) for t in tensors)
    index = Int32 if max(extent, math.prod(image), math.prod(result)) < 2**30 else Int64
    plan = Plan(tuple(image[-2:]), result, index, tuple(widths))
    described = tuple(
        (t.dtype, tuple(t.shape), tuple(t.stride()), min(16, t.data_ptr() & -t.data_ptr() or 16)) for t in tensors
    )
    return compile_windows(plan, tuple(layouts), described)


def layout_of(tensor, shape):
    """Shape and strides of a tensor; of positions in one dimension as several."""
    if tensor.dim() == len(shape):
        return shape, tuple(tensor.stride())
    leading, step = tensor.dim() - 1, tensor.stride(-1)
    return shape, (*tensor.stride()[:-1], *(step * math.prod(shape[at + 1 :]) for at in range(leading, len(shape))))


def access(tensor, shape, strides, most: int) -> int:
    """Elements of the widest aligned access along a line."""
    if strides[-1] != 1:
        return 1
    steps = (step for size, step in zip(shape[:-1], strides[:-1]) if size != 1)
    return math.gcd(most, 16 // tensor.element_size(), shape[-1], tensor.data_ptr() // tensor.element_size(), *steps)


LAUNCHERS = {}


def kernel_fn(x, scale, shift):
    image = x.shape
    sizes = (
        (image[-2] + -1) // 2 + 1,
        (image[-1] + -1) // 2 + 1,
    )
    out = torch.empty((*image[:-2], *sizes), dtype=torch.float32, device=x.device)
    if out.numel() == 0:
        return out
    key = (
        x.shape,
        x.stride(),
        x.dtype,
        scale.shape,
        scale.stride(),
        scale.dtype,
        shift.shape,
        shift.stride(),
        shift.dtype,
        (x.data_ptr() & 15, scale.data_ptr() & 15, shift.data_ptr() & 15),
    )
    launch = LAUNCHERS.get(key)
    if launch is None:
        if (x.dtype, scale.dtype, shift.dtype) != (torch.float32, torch.float32, torch.float32):
            raise ValueError("this kernel takes x of float32, scale of float32, shift of float32")
        launch = LAUNCHERS[key] = specialise(image, sizes, x, scale, shift, out)
    launch(x, scale, shift, out)
    return out


# ------------------------------------------------------------------------------
# The problem, as it was given: what to compute, and on which inputs.
# ------------------------------------------------------------------------------


def reference_fn(x, scale, shift):
    """x [batch, channels, height, width], scale and shift [channels, 1, 1]: a batch norm, ReLU and pooling."""
    return F.max_pool2d(F.relu(x * scale + shift), kernel_size=3, stride=2, padding=1)


def get_inputs(batch=32, channels=64, height=112, width=112, dtype=torch.float32):
    x = torch.randn(batch, channels, height, width, device="cuda", dtype=dtype)
    return [x, *torch.randn(2, channels, 1, 1, device="cuda", dtype=dtype)]


def get_input_sets():
    for sizes in ((2, 64, 16, 32), (1, 3, 7, 9), (3, 5, 5, 1)):
        yield get_inputs(*sizes)
