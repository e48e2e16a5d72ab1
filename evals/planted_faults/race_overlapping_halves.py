"""Pairs of bfloat16 at odd places: the second half of one store is the first half of the neighbour."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    tile = SmemAllocator().allocate_tensor(cutlass.BFloat16, cute.make_layout(2 * THREADS), byte_alignment=16)

    first = 2 * tidx if cutlass.const_expr(corrected) else tidx
    tile[first] = x[2 * tidx]
    tile[first + 1] = x[2 * tidx + 1]  # fault: race
    cute.arch.sync_threads()
    y[2 * tidx] = tile[2 * tidx]
    y[2 * tidx + 1] = tile[2 * tidx + 1]


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
    return x.clone()


def get_inputs():
    return [torch.randn(512, device="cuda", dtype=torch.bfloat16)]
