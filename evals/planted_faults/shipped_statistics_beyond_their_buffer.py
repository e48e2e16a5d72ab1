"""Row maxima are written at an offset for two stages into a buffer of one.

FlashAttention, pull request #2229 (forward for sm_100): sums and maxima share a buffer of 2 x q_stage tiles. The maxima
began at 2 tiles instead of q_stage, so with one stage they overwrite the buffer behind, which other warps use.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

ROWS, STAGES = 64, 1


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    scale = smem.allocate_tensor(cutlass.Float32, cute.make_layout(2 * STAGES * ROWS), byte_alignment=16)
    behind = smem.allocate_tensor(cutlass.Float32, cute.make_layout(ROWS), byte_alignment=16)
    warp = cute.arch.make_warp_uniform(tidx // 32)
    if warp < 2:
        scale[tidx] = x[tidx]
        first = STAGES * ROWS if cutlass.const_expr(corrected) else 2 * ROWS
        scale[first + tidx] = x[ROWS + tidx]  # fault: race
    else:
        behind[tidx - ROWS] = 3 * x[tidx - ROWS]
    cute.arch.sync_threads()
    if warp < 2:
        y[tidx] = scale[tidx] + scale[STAGES * ROWS + tidx]
    else:
        y[tidx] = behind[tidx - ROWS]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, corrected).launch(grid=[1, 1, 1], block=[2 * ROWS, 1, 1])


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
    return torch.cat([x[:ROWS] + x[ROWS:], 3 * x[:ROWS]])


def get_inputs():
    return [torch.randn(2 * ROWS, device="cuda")]
