"""Two bulk copies at two mbarriers: the kernel writes down whether the first had landed when the second had.

Nothing races, and nothing is missing; the answer depends on the order in which the copies complete.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [{$r0}], [{$r1}], {$r2}, [{$r3}];"


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout((32, 2)), byte_alignment=128)
    full = smem.allocate_array(cutlass.Int64, 2)
    if tidx == 0:
        for number in cutlass.range_constexpr(2):
            cute.arch.mbarrier_init(full + number, 1)
        cute.arch.mbarrier_init_fence()
        for number in cutlass.range_constexpr(2):
            cute.arch.mbarrier_arrive_and_expect_tx(full + number, 128)
            there, here = tile[None, number].iterator, x.iterator + 32 * number
            cute.arch.inline_ptx(LOAD, read_only_args=[there, here, cutlass.Int32(128), full + number])
        cute.arch.mbarrier_wait(full + 1, 0)
        y[0] = cutlass.Float32(1.0) if cute.arch.mbarrier_test_wait(full, 0) else cutlass.Float32(0.0)
        cute.arch.mbarrier_wait(full, 0)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    kernel(x, y).launch(grid=[1, 1, 1], block=[32, 1, 1])


def kernel_fn(x):
    y = torch.zeros(4, device="cuda")
    views = [from_dlpack(tensor, assumed_align=16, enable_tvm_ffi=True) for tensor in (x, y)]
    cute.compile(launch, *views, options="--enable-tvm-ffi")(x, y)
    return y


def reference_fn(x):
    return torch.zeros(4, device="cuda")


def get_inputs():
    return [torch.randn(64, device="cuda")]
