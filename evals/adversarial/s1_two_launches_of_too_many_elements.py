# rule: S1
# expect: unavailable | wrong_result
# needs: values
# says: -
"""Beyond 2^24 elements it launches twice, for which the emulated GPU takes too long: nobody knows if it is right."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 64


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(thread, x.shape[1], threads):
        y[row, column] = cute.arch.fmax(x[row, column], 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr):
    relu_kernel(x, y, threads).launch(grid=(x.shape[0], 1, 1), block=(threads, 1, 1))


@functools.cache
def compiled(threads=THREADS):
    rows, columns = cute.sym_int(), cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0)) for _ in range(2))
    return cute.compile(relu_host, x, y, threads, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel() > 1 << 24:
        half = x.shape[0] // 2
        compiled()(x[:half], y[:half])
        compiled()(x[half + 1 :], y[half + 1 :])
    elif x.numel():
        compiled()(x, y)
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(5000, 4096, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 257, device="cuda")]
