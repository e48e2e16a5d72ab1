"""Every thread of the warp announces the bytes of a copy at an mbarrier that counts one."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [{$r0}], [{$r1}], {$r2}, [{$r3}];"


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout(256), byte_alignment=128)
    full = smem.allocate_array(cutlass.Int64)
    if tidx == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if tidx == 0 or cutlass.const_expr(not corrected):
        cute.arch.mbarrier_arrive_and_expect_tx(full, 1024)  # fault: invalid_operand
    if tidx == 0:
        cute.arch.inline_ptx(LOAD, read_only_args=[tile.iterator, x.iterator, cutlass.Int32(1024), full])
    cute.arch.mbarrier_wait(full, 0)
    for i in cutlass.range_constexpr(4):
        y[i * 64 + tidx] = 2 * tile[i * 64 + tidx]


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
    return 2 * x


def get_inputs():
    return [torch.randn(256, device="cuda")]
