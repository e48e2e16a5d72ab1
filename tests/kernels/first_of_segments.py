"""The first row of each segment: borders belong to the number of rows, so the file says what smaller inputs are."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

COLUMNS = 64
DERIVED_SHAPES = False  # borders belong to the number of rows
EMULATED_SIZES = {"segments": 50}


@cute.kernel
def first_kernel(x: cute.Tensor, borders: cute.Tensor, y: cute.Tensor):
    column, _, _ = cute.arch.thread_idx()
    segment, _, _ = cute.arch.block_idx()
    y[segment, column] = x[borders[segment], column]


@cute.jit
def first_host(x: cute.Tensor, borders: cute.Tensor, y: cute.Tensor):
    first_kernel(x, borders, y).launch(grid=(y.shape[0], 1, 1), block=(COLUMNS, 1, 1))


@functools.cache
def compiled():
    counts = [cute.sym_int() for _ in range(3)]
    x, y = (make_fake_compact_tensor(cutlass.Float32, (n, COLUMNS), stride_order=(1, 0)) for n in counts[:2])
    borders = make_fake_compact_tensor(cutlass.Int64, (counts[2],))
    return cute.compile(first_host, x, borders, y, options="--enable-tvm-ffi")


def kernel_fn(x, borders):
    y = torch.empty(len(borders) - 1, COLUMNS, device=x.device)
    compiled()(x, borders, y)
    return y


def reference_fn(x, borders):
    torch._assert_async(borders[-1] == len(x), "the last border is not the number of rows")
    return x[borders[:-1]]


def get_inputs(segments=20_000):
    lengths = 1 + torch.arange(segments, device="cuda") % 3
    borders = torch.cat((torch.zeros(1, dtype=torch.int64, device="cuda"), lengths.cumsum(0)))
    return [torch.randn(int(lengths.sum()), COLUMNS, device="cuda"), borders]
