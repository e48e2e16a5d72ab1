"""y = 2 x in tilings of which two cannot be launched, one does not compile, one kills its process, one is wasteful."""

import functools
import os
import signal

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

from cutesmith.runtime import KernelPlan, TiledShape, Tiling

TILINGS = (
    Tiling(threads=64, tile=(64,), settings={"again": 8}),
    Tiling(threads=2048, tile=(2048,)),
    Tiling(threads=128, tile=(128,), stages=4, stage_bytes=65536),
    Tiling(threads=96, tile=(96,), settings={"broken": True}),
    Tiling(threads=128, tile=(128,)),
    Tiling(threads=160, tile=(160,), settings={"dies": True}),
)


@cute.kernel
def scale_kernel(mX: cute.Tensor, mY: cute.Tensor, threads: cutlass.Constexpr, again: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * threads + thread
    if index < cute.size(mX):
        value = mX[index]
        for _ in cutlass.range(again, unroll=1):  # work that the result does not need
            value = cute.math.exp2(cute.math.log2(value))
        mY[index] = value * Float32(2.0)


@cute.jit
def scale(mX: cute.Tensor, mY: cute.Tensor, threads: cutlass.Constexpr, again: cutlass.Constexpr, stream):
    grid = (cute.ceil_div(cute.size(mX), threads), 1, 1)
    scale_kernel(mX, mY, threads, again).launch(grid=grid, block=(threads, 1, 1), stream=stream)


@functools.cache
def compiled(threads: int, again: int):
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(Float32, (length,)) for _ in range(2))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(scale, x, y, threads, again, stream, options="--enable-tvm-ffi")


def build(tiling: Tiling):
    if tiling.settings.get("broken"):
        return cute.compile(scale, "no tensor")
    if tiling.settings.get("raises"):
        return refuse
    if tiling.settings.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    return compiled(tiling.threads, tiling.settings.get("again", 0))


def refuse(x, y):
    raise ValueError("not today")


def plan_fn(x, tilings=TILINGS):
    y = torch.empty_like(x)
    shape = TiledShape(sizes=tuple(x.shape), element_bytes=x.element_size())
    return KernelPlan(
        inputs=(x,), outputs=(y,), tilings=tilings, shape=shape, build=build, launch=lambda run: run(x, y)
    )


def raising_plan(x):
    return plan_fn(x, (Tiling(threads=64, settings={"raises": True}),))


def get_inputs():
    return [torch.rand(4096, device="cuda") + 1]
