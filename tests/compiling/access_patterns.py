"""Kernels that read global memory in known ways: 256 rows of 512 float32, two blocks of 128 threads."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32


@cute.kernel
def accesses(x: cute.Tensor, index: cute.Tensor, y: cute.Tensor, way: cutlass.Constexpr):
    tid, _, _ = cute.arch.thread_idx()
    bid, _, _ = cute.arch.block_idx()
    row = bid * 128 + tid
    total = Float32(0.0)
    if cutlass.const_expr(way == "columns"):  # neighbouring lanes in one row, a row further at each step
        for k in cutlass.range(x.shape[0], unroll=1):
            total += x[k, tid]
    elif cutlass.const_expr(way == "rows"):  # each lane has a row: 2048 bytes apart
        for k in cutlass.range(x.shape[1], unroll=1):
            total += x[row, k]
    elif cutlass.const_expr(way == "shifted"):  # begins 4 bytes behind a sector
        total = x[bid, tid + 1]
    elif cutlass.const_expr(way == "pairs"):  # two lanes at one address, by a quotient
        total = x[bid, row // 6 * 3 % 97]
    elif cutlass.const_expr(way == "broadcast"):
        total = x[bid, 5]
    elif cutlass.const_expr(way == "some"):  # a warp and a half
        if tid < 48:
            total = x[bid, tid]
    elif cutlass.const_expr(way == "gather"):
        total = x[bid, index[tid]]
    else:  # two paths that leave two addresses
        place = cutlass.Int32(tid)
        if index[0] > 3:
            place = tid * 2
        total = x[bid, place]
    y[row] = total


@cute.jit
def launch(x: cute.Tensor, index: cute.Tensor, y: cute.Tensor, way: cutlass.Constexpr):
    accesses(x, index, y, way).launch(grid=(2, 1, 1), block=(128, 1, 1))


def run(x, index, way):
    """Compile the kernel that reads in this way, launch it, and return its result."""
    y = torch.empty(x.shape[0], device=x.device)
    views = [cute.runtime.from_dlpack(each, assumed_align=16) for each in (x, index, y)]
    cute.compile(launch, *views, way)(*views)
    return y


def kernel_fn(x, index):
    return run(x, index, "columns")


def reference_fn(x, index):
    return x[:, :128].sum(0).repeat(2)


def get_inputs():
    return [torch.randn(256, 512, device="cuda"), torch.arange(128, device="cuda", dtype=torch.int32)]
