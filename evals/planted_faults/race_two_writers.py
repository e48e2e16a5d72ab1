"""Two threads write one element of shared memory."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), byte_alignment=16)

    place = tidx if cutlass.const_expr(corrected) else tidx // 2
    tile[place] = x[tidx]  # fault: race
    cute.arch.sync_threads()
    y[tidx] = tile[place]


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
    return [torch.randn(256, device="cuda")]
