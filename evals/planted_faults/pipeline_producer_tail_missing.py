"""The producer ends without its tail: the neighbour still releases stages on mbarriers of a block that is gone."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

ROWS, COLUMNS, STAGES, TRIPS = 16, 32, 2, 5
BYTES = ROWS * COLUMNS * 4


@cute.kernel
def kernel(atom: cute.CopyAtom, mX: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    smem = SmemAllocator()
    layout = cute.make_layout((ROWS, COLUMNS, STAGES), stride=(COLUMNS, 1, ROWS * COLUMNS))
    tile = smem.allocate_tensor(cutlass.Float32, layout, byte_alignment=128)
    loads = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 2),  # a warp of each block
        tx_count=BYTES,
        barrier_storage=smem.allocate_array(cutlass.Int64, 2 * STAGES),
        cta_layout_vmnk=cute.make_layout((1, 2, 1, 1)),
    )
    gX = cute.local_tile(mX, (ROWS, COLUMNS), (None, 0))
    shared, there = cpasync.tma_partition(
        atom, rank, cute.make_layout(2), cute.group_modes(tile, 0, 2), cute.group_modes(gX, 0, 2)
    )
    if warp == 0:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for trip in cutlass.range(TRIPS, unroll=1):
            loads.producer_acquire(state)
            full = loads.producer_get_barrier(state)
            cute.copy(atom, there[None, trip], shared[None, state.index], tma_bar_ptr=full, mcast_mask=cutlass.Int16(3))
            state.advance()
        if cutlass.const_expr(corrected):
            loads.producer_tail(state)
    elif warp == 1:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        for trip in cutlass.range(TRIPS, unroll=1):
            loads.consumer_wait(state)
            for row in cutlass.range_constexpr(ROWS):
                y[(trip * 2 + rank) * ROWS + row, tidx - 32] = tile[row, tidx - 32, state.index]
            cute.arch.sync_warp()
            loads.consumer_release(state)  # fault: race
            state.advance()


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    layout = cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1))
    op = cpasync.CopyBulkTensorTileG2SMulticastOp()
    atom, mX = cpasync.make_tiled_tma_atom(op, x, layout, (ROWS, COLUMNS), num_multicast=2)
    kernel(atom, mX, y, corrected).launch(grid=[2, 1, 1], block=[64, 1, 1], cluster=[2, 1, 1])


_compiled = {}


def run(x, corrected):
    y = torch.empty(2 * TRIPS * ROWS, COLUMNS, device="cuda")
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
    return x.view(TRIPS, 1, ROWS, COLUMNS).expand(TRIPS, 2, ROWS, COLUMNS).reshape(2 * TRIPS * ROWS, COLUMNS)


def get_inputs():
    return [torch.randn(TRIPS * ROWS, COLUMNS, device="cuda")]
