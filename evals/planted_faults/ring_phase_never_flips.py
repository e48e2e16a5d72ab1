"""The consumer waits for the first phase of a stage on every lap: it is right until the ring wraps."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [{$r0}], [{$r1}], {$r2}, [{$r3}];"
STAGES, TILE, TRIPS = 4, 256, 9
DERIVED_SHAPES = True


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, trips: cutlass.Int32, corrected: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    warp, lane = cute.arch.make_warp_uniform(tidx // 32), tidx % 32
    smem = SmemAllocator()
    full = smem.allocate_array(cutlass.Int64, STAGES)
    empty = smem.allocate_array(cutlass.Int64, STAGES)
    ring = smem.allocate_tensor(cutlass.Float32, cute.make_layout((TILE, STAGES)), byte_alignment=128)
    if tidx == 0:
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(empty + stage, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if warp == 0:
        if lane == 0:
            for trip in cutlass.range(trips, unroll=1):
                stage, phase = trip % STAGES, trip // STAGES % 2
                cute.arch.mbarrier_wait(empty + stage, phase ^ 1)
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 4 * TILE)
                here = [ring.iterator + stage * TILE, x.iterator + trip * TILE, cutlass.Int32(4 * TILE), full + stage]
                cute.arch.inline_ptx(LOAD, read_only_args=here)
    elif warp == 1:
        for trip in cutlass.range(trips, unroll=1):
            stage, phase = trip % STAGES, trip // STAGES % 2
            cute.arch.mbarrier_wait(full + stage, phase if cutlass.const_expr(corrected) else 0)
            for i in cutlass.range(TILE // 32, unroll=1):
                y[trip * TILE + i * 32 + lane] = 2 * ring[i * 32 + lane, stage]  # fault: missing_wait
            cute.arch.sync_warp()
            if lane == 0:
                cute.arch.mbarrier_arrive(empty + stage)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, corrected: cutlass.Constexpr):
    kernel(x, y, cute.size(x) // TILE, corrected).launch(grid=[1, 1, 1], block=[64, 1, 1])


_compiled = {}


def run(x, corrected):
    if x.numel() % TILE or not x.is_contiguous() or x.dtype is not torch.float32 or not x.numel():
        raise ValueError(f"this kernel takes whole tiles of {TILE} float32 numbers")
    y = torch.empty_like(x)
    tensors = (x, y)
    if corrected not in _compiled:
        views = [from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True).mark_layout_dynamic() for tensor in tensors]
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
    return [torch.randn(TRIPS * TILE, device="cuda")]
