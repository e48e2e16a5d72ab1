"""A sixteen-byte load four bytes past an aligned address."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    offset = 0 if cutlass.const_expr(corrected) else 1
    pointer = cute.make_ptr(cutlass.Float32, (x.iterator + offset).toint(), cute.AddressSpace.gmem, assumed_align=16)
    vectors = cute.make_tensor(pointer, cute.make_layout((4, 32), stride=(1, 4)))
    results = cute.make_tensor(y.iterator, cute.make_layout((4, 32), stride=(1, 4)))
    results[(None, tidx)].store(vectors[(None, tidx)].load())  # fault: misaligned


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[32, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty(128, device=x.device)
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
    return x[:128].clone()


def get_inputs():
    return [torch.randn(132, device="cuda")]
