"""A copy of 128 numbers whose asynchronous engines are misused in one way: FAULT names it, None is sound."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

FAULT = None
ZEROS = "mov.f32 d0, 0f00000000; mov.f32 d1, 0f00000000; mov.f32 d2, 0f00000000; mov.f32 d3, 0f00000000;"
WGMMA = (
    "{ .reg .f32 d<4>; " + ZEROS + " wgmma.fence.sync.aligned; "
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {d0,d1,d2,d3}, {$r0}, {$r0}, 1, 1, 1, 0, 0; "
    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }"
)
BULK = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [{$r0}], [{$r1}], 512, [{$r2}];"
BOX = "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [{$r0}], [{$r1}, {{$r2}}], [{$r3}];"
PRODUCT = "tcgen05.mma.cta_group::1.kind::f16 [{$r0}], {$r1}, {$r1}, {$r2}, 0;"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [{$r0}];"
BF16_128_BY_16 = 1 << 4 | 1 << 7 | 1 << 10 | 2 << 17 | 8 << 24
BEYOND, INSIDE = 0x0000_4010_0001_3FF0, 0x0000_4010_0001_0000  # descriptors that begin at byte 0x3ff00, and at 0


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, zero, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    full = smem.allocate_array(cutlass.Int64)
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout(4096), byte_alignment=1024)
    for i in cutlass.range(32, unroll=1):
        tile[i * 128 + thread] = 0.0
    if cutlass.const_expr(FAULT == "barrier waited for"):
        cute.arch.mbarrier_wait(full, 0)
    elif cutlass.const_expr(FAULT == "barrier arrived at"):
        cute.arch.mbarrier_arrive(full)
    elif cutlass.const_expr(FAULT == "barrier of a copy"):
        cute.arch.sync_threads()
        if thread == 0:
            cute.arch.inline_ptx(BULK, read_only_args=[tile.iterator, x.iterator, full])
    elif thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    if cutlass.const_expr(FAULT == "tensor map"):
        if thread == 0:
            cute.arch.mbarrier_arrive_and_expect_tx(full, 512)
            cute.arch.inline_ptx(BOX, read_only_args=[tile.iterator, x.iterator, zero, full])
        cute.arch.mbarrier_wait(full, 0)
    if cutlass.const_expr(FAULT == "descriptor of wgmma"):
        cute.arch.inline_ptx(WGMMA, read_only_args=[cutlass.Int64(BEYOND)])
    if cutlass.const_expr(FAULT == "descriptor of tcgen05" or FAULT == "tensor memory"):
        held = smem.allocate_array(cutlass.Int32)
        address, descriptor = zero, INSIDE
        if cutlass.const_expr(FAULT == "descriptor of tcgen05"):
            descriptor = BEYOND
            if thread < 32:
                cute.arch.alloc_tmem(32, held)
            cute.arch.sync_threads()
            address = held[0]
        if thread == 0:
            operands = [address, cutlass.Int64(descriptor), cutlass.Int32(BF16_128_BY_16)]
            cute.arch.inline_ptx(PRODUCT, read_only_args=operands)
            cute.arch.inline_ptx(COMMIT, read_only_args=[full])
        cute.arch.mbarrier_wait(full, 0)
    y[thread] = x[thread] + tile[thread]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[1, 1, 1], block=[128, 1, 1])


_compiled = None


def kernel_fn(x):
    global _compiled
    y = torch.empty_like(x)
    if _compiled is None:
        views = [from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True) for tensor in (x, y)]
        _compiled = cute.compile(launch, *views, options="--enable-tvm-ffi")
    _compiled(x, y)
    return y


def reference_fn(x):
    return x.clone()


def get_inputs():
    return [torch.randn(128, device="cuda")]


if __name__ == "__main__":
    values = get_inputs()[0]
    torch.testing.assert_close(kernel_fn(values), values)
