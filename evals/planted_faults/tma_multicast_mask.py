"""Each block of a cluster loads half of a tile for both, but the mask names its own block alone."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

ROWS, COLUMNS = 16, 32
BYTES = ROWS * COLUMNS * 4


@cute.kernel
def kernel(atom: cute.CopyAtom, mX: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    rank = cute.arch.block_idx_in_cluster()
    smem = SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1)), 128)
    full = smem.allocate_array(cutlass.Int64)
    if tidx == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(full, BYTES)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # the neighbour's mbarrier is initialised
    gX = cute.local_tile(mX, (ROWS, COLUMNS), (0, 0))
    shared, there = cpasync.tma_partition(
        atom, rank, cute.make_layout(2), cute.group_modes(tile, 0, 2), cute.group_modes(gX, 0, 2)
    )
    mask = cutlass.Int16(3) if cutlass.const_expr(corrected) else cutlass.Int16(1) << cutlass.Int16(rank)
    if tidx < 32:
        cute.copy(atom, there, shared, tma_bar_ptr=full, mcast_mask=mask)
    cute.arch.mbarrier_wait(full, 0)  # fault: deadlock
    for row in cutlass.range_constexpr(ROWS):
        y[rank * ROWS + row, tidx] = tile[row, tidx]
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # no block ends while its neighbour still sends


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    layout = cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1))
    op = cpasync.CopyBulkTensorTileG2SMulticastOp()
    atom, mX = cpasync.make_tiled_tma_atom(op, x, layout, (ROWS, COLUMNS), num_multicast=2)
    kernel(atom, mX, y, corrected).launch(grid=[2, 1, 1], block=[32, 1, 1], cluster=[2, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty(2 * ROWS, COLUMNS, device="cuda")
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
    return torch.cat([x, x])


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, device="cuda")]
