"""Two stages of a ring: the copy of the next tile goes into the stage that is being read."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(2 * THREADS), byte_alignment=16)

    tile[tidx] = x[tidx]
    cute.arch.sync_threads()
    for step in cutlass.range_constexpr(3):
        stage = step % 2 if cutlass.const_expr(corrected) else 0
        following = (step + 1) % 2 if cutlass.const_expr(corrected) else 0
        value = tile[stage * THREADS + THREADS - 1 - tidx]
        if cutlass.const_expr(step < 2):
            tile[following * THREADS + tidx] = x[(step + 1) * THREADS + tidx]  # fault: race
        y[step * THREADS + tidx] = value
        cute.arch.sync_threads()


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty_like(x)
    tensors = (x, y)
    if corrected not in _compiled:
        views = [from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True) for tensor in tensors]
        _compiled[corrected] = cute.compile(launch, *views, corrected, options="--enable-tvm-ffi")
    _compiled[corrected](*tensors)
    return y


def kernel_fn(x):
    return run(x, False)


def corrected_fn(x):
    return run(x, True)


def reference_fn(x):
    return x.view(3, -1).flip(1).reshape(-1)


def get_inputs():
    return [torch.randn(768, device="cuda")]
