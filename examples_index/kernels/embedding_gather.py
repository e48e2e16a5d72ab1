"""Embedding look-up with a mean over each bag of tokens: y[b] = mean of table[index[b, t]] over t, padding left out.

Shows a gather: indices are data, rows of the table are read where they say, and each warp keeps its sum in registers
while it walks the bag. An index outside the table counts as padding, so that no access is out of bounds.

Arch: sm_80+
Operation: gather
Features: vectorized_copy, gather, predication
Start here when addresses depend on data.
"""

import functools
import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
WARPS = 4  # bags a block works on at the same time
MAX_ELEMENTS_PER_LANE = 64


@cute.kernel
def gather_kernel(mTable: cute.Tensor, mIndex: cute.Tensor, mY: cute.Tensor, vector: cutlass.Constexpr):
    lane = cute.arch.lane_idx()
    block, _, _ = cute.arch.block_idx()
    bag = block * WARPS + cute.arch.warp_idx()
    bags, tokens = mIndex.shape
    rows, columns = mTable.shape
    vectors = const_expr(columns // vector)
    chunks = const_expr(-(-vectors // 32))
    if bag < bags:
        rRow = cute.make_rmem_tensor((vector, chunks), mTable.element_type)
        rSum = cute.make_rmem_tensor((vector, chunks), Float32)
        rRow.fill(0)
        rSum.fill(0.0)
        found = Int32(0)
        for token in cutlass.range(tokens, unroll=1):
            row = mIndex[bag, token]  # the same for all lanes: one broadcast load; 64 bits, or 2**32 would pass for 0
            if (row >= 0) & (row < rows):
                gRow = cute.zipped_divide(mTable[row, None], (vector,))
                for chunk in range_constexpr(chunks):
                    if chunk * 32 + lane < vectors:
                        cute.autovec_copy(gRow[None, chunk * 32 + lane], rRow[None, chunk])
                rSum.store(rSum.load() + rRow.load().to(Float32))
                found += 1
        count = cutlass.max(found, 1).to(Float32)  # an empty bag gives zeros
        rY = cute.make_rmem_tensor((vector, chunks), mY.element_type)
        rY.store((rSum.load() / count).to(mY.element_type))
        gY = cute.zipped_divide(mY[bag, None], (vector,))
        for chunk in range_constexpr(chunks):
            if chunk * 32 + lane < vectors:
                cute.autovec_copy(rY[None, chunk], gY[None, chunk * 32 + lane])


@cute.jit
def gather(mTable: cute.Tensor, mIndex: cute.Tensor, mY: cute.Tensor, vector: cutlass.Constexpr, stream):
    blocks = cute.ceil_div(mIndex.shape[0], WARPS)
    gather_kernel(mTable, mIndex, mY, vector).launch(grid=(blocks, 1, 1), block=(32 * WARPS, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype, columns: int):
    """The kernel for a table of `columns` columns; raises ValueError where a row does not fit a warp's registers."""
    if columns > 32 * MAX_ELEMENTS_PER_LANE:
        raise ValueError(f"rows of {columns} elements do not fit the registers of a warp")
    vector = math.gcd(columns, 16 // dtype.itemsize)
    rows, bags, tokens = cute.sym_int(), cute.sym_int(), cute.sym_int()
    table, y = (
        make_fake_compact_tensor(DTYPES[dtype], (size, columns), stride_order=(1, 0), assumed_align=16)
        for size in (rows, bags)
    )
    index = make_fake_compact_tensor(cutlass.Int64, (bags, tokens), stride_order=(1, 0))
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(gather, table, index, y, vector, stream, options="--enable-tvm-ffi")


def kernel_fn(table, index):
    y = torch.empty(index.shape[0], table.shape[1], dtype=table.dtype, device=table.device)
    if y.numel():
        compiled(table.dtype, table.shape[1])(table, index, y)
    return y


def reference_fn(table, index):
    valid = (index >= 0) & (index < table.shape[0])
    rows = torch.where(valid[..., None], table[torch.where(valid, index, 0)].float(), 0.0)
    return (rows.sum(1) / valid.sum(1).clamp(min=1)[:, None]).to(table.dtype)


def get_inputs(rows=65536, columns=512, bags=8192, tokens=32, dtype=torch.bfloat16):
    table = torch.randn(rows, columns, device="cuda", dtype=dtype)
    index = torch.randint(rows, (bags, tokens), device="cuda")
    index[:, tokens // 2 :][::3] = -1  # bags of several lengths
    return [table, index]


def get_input_sets():
    yield get_inputs(50, 72, 9, 5, torch.float16)
    yield get_inputs(20, 33, 3, 1, torch.float32)
