"""A wgmma product of one tile that TMA brings, with faults that show without executing it; `fault` plants one."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import Float32, const_expr
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

M, N, K = 64, 64, 64
DTYPE = cutlass.BFloat16
BYTES = (M + N) * K * 2


@cute.kernel
def kernel(
    atom_a: cute.CopyAtom, mA: cute.Tensor, atom_b: cute.CopyAtom, mB: cute.Tensor, mC: cute.Tensor,
    mma: cute.TiledMma, written: cute.ComposedLayout, layout: cute.ComposedLayout, fault: cutlass.Constexpr,
):  # fmt: skip
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = SmemAllocator()
    if const_expr(fault == "misaligned"):
        smem.allocate(64, byte_alignment=64)
    align = 64 if const_expr(fault == "misaligned") else 1024
    sA = smem.allocate_tensor(DTYPE, layout.outer, byte_alignment=align, swizzle=layout.inner)
    sB = smem.allocate_tensor(DTYPE, layout.outer, byte_alignment=align, swizzle=layout.inner)
    bars = smem.allocate_array(cutlass.Int64, num_elems=2)
    full, done = bars, bars + 1
    if warp == 0:
        with cute.arch.elect_one():
            if const_expr(fault != "not_initialised"):
                cute.arch.mbarrier_init(full, 2 if const_expr(fault == "too_few_arrivals") else 1)
            cute.arch.mbarrier_init(done, 4)
            cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if const_expr(fault == "registers"):
        if warp < 4:
            cute.arch.setmaxregister_increase(240)
        else:
            cute.arch.setmaxregister_decrease(160)
    if warp == 4:
        with cute.arch.elect_one():
            expected = BYTES // 2 if const_expr(fault == "wrong_bytes") else BYTES
            if const_expr(fault == "unexpected_bytes"):
                cute.arch.mbarrier_arrive(full)
            else:
                cute.arch.mbarrier_arrive_and_expect_tx(full, expected)
        for atom, tensor, shared in ((atom_a, mA, sA), (atom_b, mB, sB)):
            box = cute.make_tensor(cute.recast_ptr(shared.iterator, written.inner, dtype=DTYPE), written.outer)
            there, here = cpasync.tma_partition(
                atom, 0, cute.make_layout(1), cute.group_modes(box, 0, 2), cute.group_modes(tensor, 0, 2)
            )
            cute.copy(atom, here, there, tma_bar_ptr=full)
    if warp < 4:
        cute.arch.mbarrier_wait(full, 0)
        thr_mma = mma.get_slice(thread)
        tCrA = mma.make_fragment_A(mma.get_slice(0).partition_A(sA))
        tCrB = mma.make_fragment_B(mma.get_slice(0).partition_B(sB))
        acc = cute.make_rmem_tensor(mma.partition_shape_C((M, N)), Float32)
        acc.fill(0.0)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.fence()
        for block_k in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            cute.gemm(mma, acc, tCrA[None, None, block_k], tCrB[None, None, block_k], acc)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        if const_expr(fault == "too_many_arrivals"):
            cute.arch.mbarrier_arrive(done)
        else:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(done)
        cute.autovec_copy(acc, thr_mma.partition_C(mC))
    cute.arch.mbarrier_wait(done, 0)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, fault: cutlass.Constexpr):
    kind = sm90.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, DTYPE, K)
    layout = cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, DTYPE), (M, K), order=(0, 1))
    written = layout
    if const_expr(fault == "wrong_swizzle"):
        half = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW64, DTYPE)
        written = cute.tile_to_shape(half, (M, K), order=(0, 1))
    copy = cpasync.CopyBulkTensorTileG2SOp()
    atom_a, mA = cpasync.make_tiled_tma_atom(copy, a, written, (M, K))
    atom_b, mB = cpasync.make_tiled_tma_atom(copy, b, written, (N, K))
    major = OperandMajorMode.K
    mma = sm90.make_trivial_tiled_mma(DTYPE, DTYPE, major, major, Float32, (1, 1, 1), tiler_mn=(64, N))
    kernel(atom_a, mA, atom_b, mB, c, mma, written, layout, fault).launch(
        grid=(1, 1, 1),
        block=(384, 1, 1),
        max_number_threads=(384, 1, 1),
        min_blocks_per_mp=1,  # 168 registers a thread; without it ptxas leaves setmaxnreg out
        smem=8192 if fault == "bad_descriptor" else None,
    )


def product(a, b, fault):
    """a @ b.T, with one fault."""
    c = torch.empty(M, N, dtype=torch.float32, device=a.device)
    launch(*(from_dlpack(tensor, assumed_align=16) for tensor in (a, b, c)), fault)
    return c


def kernel_fn(a, b):
    return product(a, b, "none")


def reference_fn(a, b):
    return a.float() @ b.float().T


def get_inputs():
    return [torch.randn(rows, K, device="cuda", dtype=torch.bfloat16) for rows in (M, N)]
