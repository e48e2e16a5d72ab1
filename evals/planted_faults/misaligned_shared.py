"""A sixteen-byte store to rows of 33 floats in shared memory."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    width = 36 if cutlass.const_expr(corrected) else 33
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(32 * width), byte_alignment=16)
    address = (tile.iterator + tidx * width).toint()
    pointer = cute.make_ptr(cutlass.Float32, address, cute.AddressSpace.smem, assumed_align=16)
    row = cute.make_tensor(pointer, cute.make_layout(4))
    row.store(x[(tidx, None)].load())  # fault: misaligned
    y[(tidx, None)].store(row.load())


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[32, 1, 1])


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
    return [torch.randn(32, 4, device="cuda")]
