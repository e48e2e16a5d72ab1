"""The row of partial sums has 32 places; eight warps fill eight of them."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

THREADS = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(32), byte_alignment=16)

    lane = tidx % 32
    total = cute.arch.warp_reduction_sum(x[tidx])
    if lane == 0:
        tile[tidx // 32] = total
    cute.arch.sync_threads()
    value = cutlass.Float32(0)
    if cutlass.const_expr(corrected):
        if lane < THREADS // 32:
            value = tile[lane]
    else:
        value = tile[lane]  # fault: uninitialised_read
    total = cute.arch.warp_reduction_sum(value)
    if tidx == 0:
        y[0] = total


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty(1, device=x.device)
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
    return x.sum().reshape(1)


def get_inputs():
    return [torch.randint(-9, 9, (256,), device="cuda").float()]
