"""The epilogue of sequences of variable length copies what other warps have not staged yet.

FlashAttention, issue #1344 (forward for sm_90): a whole tile of O leaves by TMA, behind a barrier. With variable
lengths all threads copy it from shared memory themselves, so that no row beyond the sequence is stored, and nothing
orders these reads after the warps' writes.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

ROWS, COLUMNS, WARPS = 32, 32, 4
LENGTH = 27  # of the sequence
VECTOR = 4


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, length: cutlass.Int32, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    warp, lane = tidx // 32, tidx % 32
    layout = cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1))
    sO = SmemAllocator().allocate_tensor(cutlass.Float32, layout, byte_alignment=16)
    for i in cutlass.range_constexpr(ROWS // WARPS):  # as accumulators lie: a warp's rows, a lane's column
        row = warp * (ROWS // WARPS) + i
        sO[row, lane] = 2 * x[row, lane]
    if cutlass.const_expr(corrected):
        cute.arch.sync_threads()
    for i in cutlass.range_constexpr(ROWS * COLUMNS // VECTOR // (32 * WARPS)):
        vector = i * 32 * WARPS + tidx  # neighbouring threads have neighbouring vectors, whichever warp made them
        row, column = vector // (COLUMNS // VECTOR), vector % (COLUMNS // VECTOR) * VECTOR
        if row < length:
            for j in cutlass.range_constexpr(VECTOR):
                y[row, column + j] = sO[row, column + j]  # fault: race


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, length: cutlass.Int32, corrected: cutlass.Constexpr):
    kernel(x, y, length, corrected).launch(grid=[1, 1, 1], block=[32 * WARPS, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.zeros_like(x)
    if corrected not in _compiled:
        views = [from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True) for tensor in (x, y)]
        _compiled[corrected] = cute.compile(launch, *views, LENGTH, corrected, options="--enable-tvm-ffi")
    _compiled[corrected](x, y, LENGTH)
    return y


def kernel_fn(x):
    return run(x, False)


def corrected_fn(x):
    return run(x, True)


def reference_fn(x):
    return torch.cat([2 * x[:LENGTH], 0 * x[LENGTH:]])


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, device="cuda")]
