"""Matrix transpose through shared memory: coalesced reads, coalesced writes, no bank conflicts.

Shows why a tile goes through shared memory at all (a direct transpose reads or writes single elements a row apart), and
how one column of padding moves the elements of a tile's column to different banks. Elements have 4 bytes; each warp
reads and writes rows of 32.

Arch: sm_80+
Operation: transpose
Features: smem, swizzle, predication
Start here when data has to change places within a block.
"""

import functools

import cutlass.cute as cute
import torch
from cutlass import Float32, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator

TILE = 32  # as wide as a warp: 128 bytes, a whole line of L2
WARPS = 8  # rows of the tile that are on their way at the same time


@cute.kernel
def transpose_kernel(mX: cute.Tensor, mY: cute.Tensor):
    lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
    block_column, block_row, _ = cute.arch.block_idx()
    rows, columns = mX.shape
    # Row stride 33: element (i, j) lies in bank (33 i + j) % 32 = (i + j) % 32, another one for each i and for each j.
    padded = cute.make_layout((TILE, TILE), stride=(TILE + 1, 1))
    sTile = SmemAllocator().allocate_tensor(Float32, padded, byte_alignment=16)

    for i in range_constexpr(TILE // WARPS):
        inside = i * WARPS + warp
        row, column = block_row * TILE + inside, block_column * TILE + lane
        if (row < rows) & (column < columns):
            sTile[inside, lane] = mX[row, column]
    cute.arch.sync_threads()
    for i in range_constexpr(TILE // WARPS):
        inside = i * WARPS + warp
        row, column = block_column * TILE + inside, block_row * TILE + lane  # of the output
        if (row < columns) & (column < rows):
            mY[row, column] = sTile[lane, inside]


@cute.jit
def transpose(mX: cute.Tensor, mY: cute.Tensor, stream):
    rows, columns = mX.shape
    grid = (cute.ceil_div(columns, TILE), cute.ceil_div(rows, TILE), 1)
    transpose_kernel(mX, mY).launch(grid=grid, block=(32 * WARPS, 1, 1), stream=stream)


@functools.cache
def compiled():
    """One kernel for all shapes."""
    rows, columns = cute.sym_int(), cute.sym_int()
    x, y = (
        make_fake_compact_tensor(Float32, shape, stride_order=(1, 0)) for shape in ((rows, columns), (columns, rows))
    )
    return cute.compile(transpose, x, y, make_fake_stream(use_tvm_ffi_env_stream=True), options="--enable-tvm-ffi")


def kernel_fn(x):
    rows, columns = x.shape
    if rows > 65535 * TILE:
        raise ValueError(f"{rows} rows: the grid's second dimension ends at 65535 blocks")
    y = torch.empty(columns, rows, dtype=x.dtype, device=x.device)
    if y.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return x.t().contiguous()


def get_inputs(rows=8192, columns=16384):
    return [torch.randn(rows, columns, device="cuda")]


def get_input_sets():
    yield get_inputs(70, 33)
    yield get_inputs(1, 100)
