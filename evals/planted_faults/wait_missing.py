"""An asynchronous copy is read without having been waited for."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(256), byte_alignment=16)

    atom = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=128)
    source = cute.make_tensor(x.iterator, cute.make_layout((4, 64), stride=(1, 4)))
    target = cute.make_tensor(tile.iterator, cute.make_layout((4, 64), stride=(1, 4)))

    cute.copy(atom, source[(None, tidx)], target[(None, tidx)])
    cute.arch.cp_async_commit_group()
    if cutlass.const_expr(corrected):
        cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()
    for i in cutlass.range_constexpr(4):
        y[tidx * 4 + i] = tile[255 - tidx * 4 - i]  # fault: missing_wait


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[64, 1, 1])


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
    return x.flip(0)


def get_inputs():
    return [torch.randn(256, device="cuda")]
