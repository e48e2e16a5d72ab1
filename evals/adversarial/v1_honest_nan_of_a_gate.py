# rule: V1
# expect: passed
# needs: values
"""x * relu(gate) for a gate a column; the maximum keeps NaN."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def gated_kernel(x: cute.Tensor, gate: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, part, _ = cute.arch.block_idx()
    column = part * THREADS + thread
    if column < cute.size(gate):
        y[row, column] = x[row, column] * cute.arch.fmax(gate[column], 0.0, nan=True)


@cute.jit
def gated_host(x: cute.Tensor, gate: cute.Tensor, y: cute.Tensor):
    rows, columns = x.shape
    gated_kernel(x, gate, y).launch(grid=(rows, cute.ceil_div(columns, THREADS), 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    gate = make_fake_compact_tensor(cutlass.Float32, (columns,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(gated_host, x, gate, y, options="--enable-tvm-ffi")


def kernel_fn(x, gate):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x, gate, y)
    return y


def reference_fn(x, gate):
    return x * torch.relu(gate)


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), torch.randn(500, device="cuda")]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), torch.randn(33, device="cuda")]
