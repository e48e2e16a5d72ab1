# rule: V4
# expect: wrong_result
# needs: values
# says: - | V4
"""Running sums that begin again every eight elements, as the mask is drawn so."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, begins: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    if lane == 0:
        for column in range(x.shape[1]):
            if column % 8 == 0:
                total = cutlass.Float32(0.0)
            total += x[row, column]
            y[row, column] = total


@cute.jit
def rows_host(x: cute.Tensor, begins: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, begins, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    begins = make_fake_compact_tensor(cutlass.Boolean, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, begins, y, options="--enable-tvm-ffi")


def kernel_fn(x, begins):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, begins, y)
    return y


def reference_fn(x, begins):
    parts = begins.cumsum(-1)
    same = (parts.unsqueeze(-1) == parts.unsqueeze(-2)).tril()
    return torch.where(same, x.unsqueeze(-2), 0.0).sum(-1)


def get_inputs():
    return [torch.randn(8, 96, device="cuda"), (torch.arange(96, device="cuda") % 8 == 0).expand(8, 96).contiguous()]


def get_input_sets():
    yield [torch.randn(3, 40, device="cuda"), (torch.arange(40, device="cuda") % 8 == 0).expand(3, 40).contiguous()]
