# rule: V1
# expect: wrong_result
# needs: values
# says: - | V1 | O6 | O9
"""The product of all other elements by dividing: one zero gives NaN."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(1.0)
    for column in range(x.shape[1]):
        total *= x[row, column]
    for column in range(lane, x.shape[1], THREADS):
        y[row, column] = total / x[row, column]


@cute.jit
def rows_host(x: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, y, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    others = ~torch.eye(x.shape[-1], dtype=torch.bool, device=x.device)
    return torch.where(others, x.unsqueeze(-2), 1.0).prod(-1)


def get_inputs():
    return [torch.randn(96, 12, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 9, device="cuda")]
