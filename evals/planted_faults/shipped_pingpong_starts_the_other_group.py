"""The start signal of two warpgroups that take turns goes to the second one.

QuACK, commit 6a645d5 (GEMM for sm_90, pingpong): the function that arrives took the caller's number and added one, so
the signal of the beginning went to the group whose turn is later. With one tile the first group waits for ever.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

MMA = 1  # barrier of the first warpgroup; that of the second follows
BOTH = 256


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    group = cute.arch.make_warp_uniform(tidx // 128)
    if group == 0:
        first = 0 if cutlass.const_expr(corrected) else 1
        cute.arch.barrier_arrive(barrier_id=MMA + first, number_of_threads=BOTH)
    tile = group
    while tile < cute.size(x) // 128:
        cute.arch.barrier(barrier_id=MMA + group, number_of_threads=BOTH)  # fault: deadlock
        y[tile * 128 + tidx % 128] = 2 * x[tile * 128 + tidx % 128]
        cute.arch.barrier_arrive(barrier_id=MMA + (1 - group), number_of_threads=BOTH)
        tile += 2


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[256, 1, 1])


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
    return 2 * x


def get_inputs():
    return [torch.randn(128, device="cuda")]
