"""One warp of a warpgroup gives up no registers where its work is compiled out.

QuACK, commit 97c98dc (GEMM for sm_100): the warp that loads C decreased its registers inside `if C is given`; without C
the epilogue's increase waits for ever for registers that nothing gives up.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, loads_c: cutlass.Constexpr, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(tidx // 32)
    decreases = 4 if cutlass.const_expr(loads_c or corrected) else 3  # the warps 0 to 2, and 3 that loads C
    if warp < decreases or (warp >= 4 and warp < 8):
        cute.arch.setmaxregister_decrease(120)
    if warp >= 8:
        cute.arch.setmaxregister_increase(256)  # fault: deadlock
        y[tidx - 256] = 2 * x[tidx - 256]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, False, corrected).launch(grid=[1, 1, 1], block=[384, 1, 1], min_blocks_per_mp=1)


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
