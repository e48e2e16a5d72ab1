# rule: S4
# expect: passed
# needs: compile
"""It keeps what it compiled by shape and type."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_ptr


@cute.kernel
def sums_kernel(x: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], 32):
        total += x[row, column].to(cutlass.Float32)
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    if lane == 0:
        y[row] = total.to(y.element_type)


@cute.jit
def sums_host(x: cute.Pointer, y: cute.Pointer, rows: cutlass.Constexpr, columns: cutlass.Constexpr):
    mx = cute.make_tensor(x, cute.make_layout((rows, columns), stride=(columns, 1)))
    my = cute.make_tensor(y, cute.make_layout(rows))
    sums_kernel(mx, my).launch(grid=(rows, 1, 1), block=(32, 1, 1))


_kept = {}


def pointer(tensor):
    return make_ptr(TYPES[tensor.dtype], tensor.data_ptr(), cute.AddressSpace.gmem)


TYPES = {torch.float32: cutlass.Float32, torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}


def kernel_fn(x):
    if x.ndim != 2 or not x.is_contiguous() or x.numel() == 0:
        raise ValueError("a contiguous matrix is wanted")
    rows, columns = x.shape
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    key = rows, columns, x.dtype
    if key not in _kept:
        _kept[key] = cute.compile(sums_host, pointer(x), pointer(y), rows, columns)
    _kept[key](pointer(x), pointer(y))
    return y


def reference_fn(x):
    return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(64, 512, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    yield [torch.randn(3, 256, device="cuda", dtype=torch.bfloat16)]
