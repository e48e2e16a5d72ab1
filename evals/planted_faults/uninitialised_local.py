"""A register array with a dynamic index: one of its places is never written."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()

    local = cute.make_rmem_tensor(cute.make_layout(8), cutlass.Float32)
    first = 0 if cutlass.const_expr(corrected) else 1
    for i in range(first, 8, unroll=1):
        local[(i + tidx) % 8] = x[i]
    total = cutlass.Float32(0)
    for i in range(tidx % 8, tidx % 8 + 8, unroll=1):
        total += local[i % 8] * cutlass.Float32(i - tidx % 8 + 1)  # fault: uninitialised_read
    y[tidx] = total


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[32, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty(32, device=x.device)
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
    return (x * torch.arange(1, 9, device=x.device)).sum().expand(32).contiguous()


def get_inputs():
    return [torch.randint(-9, 9, (8,), device="cuda").float()]
