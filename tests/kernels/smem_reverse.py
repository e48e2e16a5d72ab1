"""Each block reverses its 256 elements through shared memory, allocated by the kernel."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

THREADS = 256


@cute.kernel
def reverse_kernel(gx: cute.Tensor, gy: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), byte_alignment=16)
    tile[tidx] = gx[bidx * THREADS + tidx]
    cute.arch.sync_threads()
    gy[bidx * THREADS + tidx] = tile[THREADS - 1 - tidx]


@cute.jit
def reverse(x: cute.Tensor, y: cute.Tensor):
    reverse_kernel(x, y).launch(grid=[cute.size(x) // THREADS, 1, 1], block=[THREADS, 1, 1])


_compiled = None


def _view(tensor):
    return from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True)


def kernel_fn(x):
    global _compiled
    y = torch.empty_like(x)
    if _compiled is None:
        _compiled = cute.compile(reverse, _view(x), _view(y), options="--enable-tvm-ffi")
    _compiled(x, y)
    return y


def reference_fn(x):
    return x.view(-1, THREADS).flip(1).reshape(-1)


def get_inputs():
    return [torch.randn(4 * THREADS, device="cuda")]
