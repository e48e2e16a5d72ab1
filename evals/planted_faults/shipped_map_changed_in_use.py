"""A tensor map is changed for the next group while a store may still read it.

CUTLASS, issues #2162 (grouped GEMM for sm_90) and #3165 (of two blocks for sm_100), and DeepGEMM, pull request #343:
nothing waits for the copies of the last group before their map is changed, so they may go to the next group's tensor.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.cute.typing import AddressSpace
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import TensorMapManager, TensorMapUpdateMode

ROWS, COLUMNS = 16, 32


@cute.kernel
def kernel(
    atom: cute.CopyAtom,
    mY: cute.Tensor,
    x: cute.Tensor,
    y: cute.Tensor,
    room: cute.Tensor,
    layout: cute.Layout,
    corrected: cutlass.Constexpr,
):
    tidx, _, _ = cute.arch.thread_idx()
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, layout, byte_alignment=128)
    maps = TensorMapManager(TensorMapUpdateMode.GMEM, 128)
    described = maps.get_tensormap_ptr(room.iterator)
    maps.init_tensormap_from_atom(atom, described, 0)
    maps.fence_tensormap_initialization()
    for row in cutlass.range_constexpr(ROWS):
        tile[row, tidx, 0] = 2 * x[row, tidx, 0]
        tile[row, tidx, 1] = 2 * x[row, tidx, 1]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    gY = cute.local_tile(mY, (ROWS, COLUMNS), (0, 0))
    for group in cutlass.range_constexpr(2):
        if cutlass.const_expr(corrected):
            cute.arch.cp_async_bulk_wait_group(0, read=True)
            cute.arch.sync_warp()
        cpasync.update_tma_descriptor(atom, y[None, None, group], described)  # fault: race
        cute.arch.sync_warp()
        cpasync.fence_tma_desc_release()
        maps.fence_tensormap_update(described)
        shared, there = cpasync.tma_partition(
            atom, 0, cute.make_layout(1), cute.group_modes(tile[None, None, group], 0, 2), cute.group_modes(gY, 0, 2)
        )
        if tidx == 0:
            cute.copy(atom, shared, there, tma_desc_ptr=maps.get_tensormap_ptr(room.iterator, AddressSpace.generic))
            cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, room: cute.Tensor, corrected: cutlass.Constexpr):
    layout = cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1))
    one = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), y[None, None, 0], layout, (ROWS, COLUMNS))
    layouts = cute.make_layout((ROWS, COLUMNS, 2), stride=(COLUMNS, 1, ROWS * COLUMNS))
    kernel(*one, x, y, room, layouts, corrected).launch(grid=[1, 1, 1], block=[32, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty_like(x)
    room = torch.zeros(16, dtype=torch.int64, device=x.device)
    tensors = (x.permute(1, 2, 0), y.permute(1, 2, 0), room)
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
    return [torch.randn(2, ROWS, COLUMNS, device="cuda")]
