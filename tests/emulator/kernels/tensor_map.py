"""A kernel whose only parameter is the tensor map of a tile of its argument."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync


@cute.kernel
def kernel(atom: cute.CopyAtom):
    if cute.arch.thread_idx()[0] == 0:
        cpasync.prefetch_descriptor(atom)


@cute.jit
def host(tensor: cute.Tensor, tile: cutlass.Constexpr):
    layout = cute.make_ordered_layout(tile, order=tuple(range(len(tile) - 1, -1, -1)))
    atom, _ = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), tensor, layout, tile)
    kernel(atom).launch(grid=(1, 1, 1), block=(32, 1, 1))
