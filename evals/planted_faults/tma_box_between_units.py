"""A TMA load of a box that begins 12 bytes into the rows of the tensor: a GPU ends the launch, illegal instruction."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

ROWS, COLUMNS, WIDTH = 16, 64, 32
FIRST = 3  # column of x that y begins with


@cute.kernel
def kernel(atom: cute.CopyAtom, mX: cute.Tensor, y: cute.Tensor, layout: cute.Layout, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, layout, byte_alignment=128)
    full = smem.allocate_array(cutlass.Int64)
    if tidx == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(full, ROWS * COLUMNS * 4)
    cute.arch.sync_threads()
    skipped = 0 if cutlass.const_expr(corrected) else FIRST
    gX = cute.local_tile(cute.domain_offset((0, skipped), mX), (ROWS, COLUMNS), (0, 0))
    shared, there = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(gX, 0, 2)
    )
    if tidx < 32:
        cute.copy(atom, there, shared, tma_bar_ptr=full)  # fault: misaligned
    cute.arch.mbarrier_wait(full, 0)
    for row in cutlass.range_constexpr(ROWS):
        y[row, tidx] = tile[row, tidx + FIRST - skipped]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    layout = cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1))
    atom, mX = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, layout, (ROWS, COLUMNS))
    kernel(atom, mX, y, layout, corrected).launch(grid=[1, 1, 1], block=[WIDTH, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty(ROWS, WIDTH, device=x.device, dtype=x.dtype)
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
    return x[:, FIRST : FIRST + WIDTH].clone()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, device="cuda")]
