# rule: S4
# expect: crashed | wrong_result
# needs: values
# says: - | O8 | S2 | S4
"""Its workspace is as large as the first call wanted, and later calls have more rows."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

LANES, PARTS = 32, 4


@cute.kernel
def parts_kernel(x: cute.Tensor, parts: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, part, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for column in range(part * LANES + lane, x.shape[1], LANES * PARTS):
        total += x[row, column]
    total = cute.arch.warp_reduction(total, lambda a, b: a + b)
    if lane == 0:
        parts[row * PARTS + part] = total


@cute.kernel
def sums_kernel(parts: cute.Tensor, y: cute.Tensor):
    row, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    if thread == 0:
        total = cutlass.Float32(0.0)
        for part in cutlass.range_constexpr(PARTS):
            total += parts[row * PARTS + part]
        y[row] = total


@cute.jit
def sums_host(x: cute.Tensor, parts: cute.Tensor, y: cute.Tensor):
    parts_kernel(x, parts).launch(grid=(x.shape[0], PARTS, 1), block=(LANES, 1, 1))
    sums_kernel(parts, y).launch(grid=(x.shape[0], 1, 1), block=(LANES, 1, 1))


@functools.cache
def compiled():
    rows, columns, most = cute.sym_int(), cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    parts, y = make_fake_compact_tensor(cutlass.Float32, (most,)), make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(sums_host, x, parts, y, options="--enable-tvm-ffi")


_parts = []


def kernel_fn(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if y.numel():
        if not _parts:
            _parts.append(torch.empty(x.shape[0] * PARTS, device=x.device))
        compiled()(x, _parts[-1], y)
    return y


def reference_fn(x):
    return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(64, 512, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 256, device="cuda")]
