"""A bulk store reads from 8 bytes behind a multiple of 16 in shared memory."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

STORE = "cp.async.bulk.global.shared::cta.bulk_group [{$r0}], [{$r1}], {$r2};"


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    skipped = 0 if cutlass.const_expr(corrected) else 2
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(258), byte_alignment=128)
    for i in cutlass.range_constexpr(4):
        tile[skipped + i * 64 + tidx] = 2 * x[i * 64 + tidx]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    if tidx == 0:
        here = [y.iterator, tile.iterator + skipped, cutlass.Int32(1024)]
        cute.arch.inline_ptx(STORE, read_only_args=here)  # fault: misaligned
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)


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
