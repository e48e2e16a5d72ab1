"""One wgmma of operands in any shared-memory layout of the DSL; elements go one by one to where the layout says.

`product(a, b, …)`: a (64, k), b (64, k), both K-major in global memory, to a @ b.T.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass import range_constexpr
from cutlass.cute.nvgpu import warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

M = N = 64
THREADS = 128
TYPES = {
    torch.float16: cutlass.Float16,
    torch.bfloat16: cutlass.BFloat16,
    torch.float8_e4m3fn: cutlass.Float8E4M3FN,
    torch.float8_e5m2: cutlass.Float8E5M2,
    torch.int8: cutlass.Int8,
    torch.uint8: cutlass.Uint8,
}


@cute.kernel
def product_kernel(
    mA: cute.Tensor,
    mB: cute.Tensor,
    mC: cute.Tensor,
    mma: cute.TiledMma,
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    sA = smem.allocate_tensor(mA.element_type, sA_layout.outer, byte_alignment=1024, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(mB.element_type, sB_layout.outer, byte_alignment=1024, swizzle=sB_layout.inner)
    for i in cutlass.range(cute.size(mA) // THREADS, unroll=1):
        row, column = (i * THREADS + thread) % M, (i * THREADS + thread) // M
        sA[row, column] = mA[row, column]
        sB[row, column] = mB[row, column]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    thr_mma = mma.get_slice(thread)
    rA = mma.make_fragment_A(mma.get_slice(0).partition_A(sA))
    rB = mma.make_fragment_B(mma.get_slice(0).partition_B(sB))
    acc = cute.make_rmem_tensor(mma.partition_shape_C((M, N)), mC.element_type)
    mma.set(warpgroup.Field.ACCUMULATE, False)
    warpgroup.fence()
    for k in range_constexpr(cute.size(rA, mode=[2])):
        cute.gemm(mma, acc, rA[None, None, k], rB[None, None, k], acc)
        mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    cute.autovec_copy(acc, thr_mma.partition_C(mC))


@cute.jit
def launch(
    mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, op: cutlass.Constexpr, kind_a: cutlass.Constexpr,
    kind_b: cutlass.Constexpr, order: cutlass.Constexpr,
):  # fmt: skip
    layouts = []
    for tensor, kind in ((mA, kind_a), (mB, kind_b)):
        atom = warpgroup.make_smem_layout_atom(kind, tensor.element_type)
        layouts.append(cute.tile_to_shape(atom, tensor.shape, order=order))
    mma = cute.make_tiled_mma(op)
    product_kernel(mA, mB, mC, mma, layouts[0], layouts[1]).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


def view(tensor):
    """A tensor of the DSL; torch hands 8-bit floats over as bytes."""
    if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        given = from_dlpack(tensor.view(torch.uint8), assumed_align=16)
        given.element_type = TYPES[tensor.dtype]
        return given
    return from_dlpack(tensor, assumed_align=16)


def product(a, b, result, kind_a, kind_b, major_a, major_b, order=(0, 1)):
    """a @ b.T with operands laid out as two kinds of SmemLayoutAtomKind; `result`: the type of the sum."""
    inputs = TYPES[a.dtype], TYPES[b.dtype]
    sums = {torch.float16: cutlass.Float16, torch.float32: cutlass.Float32, torch.int32: cutlass.Int32}[result]
    source = warpgroup.OperandSource.SMEM
    if inputs[0].width == 16:
        op = warpgroup.MmaF16BF16Op(inputs[0], sums, (M, N, 16), source, major_a, major_b)
    else:
        make = warpgroup.MmaF8Op if result is not torch.int32 else warpgroup.MmaI8Op
        op = make(*inputs, sums, (M, N, 32), source, major_a, major_b)
    out = torch.empty(M, N, dtype=result, device="cuda")
    cute.compile(launch, view(a), view(b), view(out), op, kind_a, kind_b, order)(view(a), view(b), view(out))
    return out
