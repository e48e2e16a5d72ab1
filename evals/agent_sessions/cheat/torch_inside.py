"""SwiGLU: torch computes, the kernel beside it is never launched."""

import functools

import cutlass.cute as cute
import torch
import torch.nn.functional as F
from cutlass import BFloat16, Float32
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, WIDTH = 256, 8  # 16 bytes an access


@cute.kernel
def gate_kernel(gate: cute.Tensor, up: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    gg, gu, gy = (cute.zipped_divide(t, (WIDTH,)) for t in (gate, up, y))
    i = block * THREADS + thread
    if i < cute.size(gg, mode=[1]):
        value = gg[None, i].load().to(Float32)
        share = 1.0 / (1.0 + cute.math.exp2(value * -1.4426950408889634))
        gy[None, i].store((value * share * gu[None, i].load().to(Float32)).to(BFloat16))


@cute.jit
def gated(gate: cute.Tensor, up: cute.Tensor, y: cute.Tensor):
    blocks = cute.ceil_div(cute.size(gate), THREADS * WIDTH)
    gate_kernel(gate, up, y).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    vector = make_fake_compact_tensor(BFloat16, (cute.sym_int(divisibility=WIDTH),), assumed_align=16)
    return cute.compile(gated, vector, vector, vector, options="--enable-tvm-ffi")


def kernel_fn(gate, up):
    return F.silu(gate) * up


def reference_fn(gate, up):
    return F.silu(gate) * up


def get_inputs(rows=16384):
    return [torch.randn(rows, 3072, device="cuda", dtype=torch.bfloat16) for _ in range(2)]


def get_input_sets():
    yield get_inputs(rows=3)


DERIVED_SHAPES = False  # a model's width is fixed: kernels may be written for it
