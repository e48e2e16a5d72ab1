# rule: V1
# expect: passed
# needs: values
"""The two largest elements, of equal ones the last place first: `topk` leaves open which."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

LOWEST = float("-inf")


@cute.jit
def largest(x: cute.Tensor, row: cutlass.Int32, without: cutlass.Int64):
    """The largest element of a row at another place than `without`, and its place, the last of equal ones."""
    best, place = cutlass.Float32(LOWEST), cutlass.Int64(-1)
    for column in range(x.shape[1]):
        value = x[row, column]
        if (value >= best or value != value) and column != without:  # noqa: PLR0124 - NaN is the largest
            best, place = value, cutlass.Int64(column)
    return best, place


@cute.kernel
def rows_kernel(x: cute.Tensor, values: cute.Tensor, places: cute.Tensor):
    row, _, _ = cute.arch.block_idx()
    first, first_place = largest(x, row, cutlass.Int64(-1))
    second, second_place = largest(x, row, first_place)
    values[row, 0], places[row, 0] = first, first_place
    values[row, 1], places[row, 1] = second, second_place


@cute.jit
def rows_host(x: cute.Tensor, values: cute.Tensor, places: cute.Tensor):
    rows_kernel(x, values, places).launch(grid=(x.shape[0], 1, 1), block=(1, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    values = make_fake_compact_tensor(cutlass.Float32, (rows, 2), stride_order=(1, 0))
    places = make_fake_compact_tensor(cutlass.Int64, (rows, 2), stride_order=(1, 0))
    return cute.compile(rows_host, x, values, places, options="--enable-tvm-ffi")


def kernel_fn(x):
    values = torch.empty(x.shape[0], 2, dtype=x.dtype, device=x.device)
    places = torch.empty(x.shape[0], 2, dtype=torch.int64, device=x.device)
    compiled()(x, values, places)
    return values, places


def reference_fn(x):
    return torch.topk(x, 2)


def get_inputs():
    return [torch.randn(96, 64, device="cuda")]
