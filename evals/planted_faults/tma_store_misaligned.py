"""TMA stores a box from byte 64 of shared memory; boxes begin at multiples of 128."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

ROWS, COLUMNS = 16, 32


@cute.kernel
def kernel(atom: cute.CopyAtom, mY: cute.Tensor, x: cute.Tensor, layout: cute.Layout, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    smem.allocate(64, byte_alignment=128)
    tile = smem.allocate_tensor(cutlass.Float32, layout, byte_alignment=128 if cutlass.const_expr(corrected) else 64)
    for row in cutlass.range_constexpr(ROWS):
        tile[row, tidx] = 2 * x[row, tidx]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    gY = cute.local_tile(mY, (ROWS, COLUMNS), (0, 0))
    shared, there = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(gY, 0, 2)
    )
    cute.copy(atom, shared, there)  # fault: misaligned
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    layout = cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1))
    atom, mY = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), y, layout, (ROWS, COLUMNS))
    kernel(atom, mY, x, layout, corrected).launch(grid=[1, 1, 1], block=[32, 1, 1])


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
    return [torch.randn(ROWS, COLUMNS, device="cuda")]
