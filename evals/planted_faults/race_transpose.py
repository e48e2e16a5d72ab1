"""A 32 x 32 tile is read across warps before it is complete."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    row = tidx // 32
    column = tidx % 32
    layout = cute.make_layout((32, 32), stride=(33, 1))
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, layout, byte_alignment=16)
    tile[row, column] = x[row, column]
    if cutlass.const_expr(corrected):
        cute.arch.sync_threads()
    y[row, column] = tile[column, row]  # fault: race


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[1024, 1, 1])


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
    return x.t().contiguous()


def get_inputs():
    return [torch.randn(32, 32, device="cuda")]
