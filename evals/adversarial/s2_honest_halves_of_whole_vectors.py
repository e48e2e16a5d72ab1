# rule: S2
# expect: passed
# needs: values
"""Value times gate, which lie side by side."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def one_each_kernel(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < count:
        half = x.shape[1] // 2
        r, c = i // y.shape[1], i % y.shape[1]
        g = x[r, c + half]
        b = bias[c] if bias.shape[0] > 1 else bias[0]
        y[r, c] = (x[r, c] + b) / (1.0 + cute.math.exp(-g))


@cute.jit
def one_each(x: cute.Tensor, bias: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    one_each_kernel(x, bias, y, count).launch(grid=(cute.ceil_div(count, THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    fx = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    fbias = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
    fy = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    return cute.compile(one_each, fx, fbias, fy, 1, options="--enable-tvm-ffi")


def kernel_fn(x, bias):
    y = torch.empty(x.shape[0], x.shape[1] // 2, dtype=x.dtype, device=x.device)
    if y.numel():
        compiled()(x, bias, y, y.numel())
    return y


def reference_fn(x, bias):
    value, gate = x.chunk(2, -1)
    return (value + bias) * torch.sigmoid(gate)


def get_inputs():
    return [torch.randn(48, 256, device="cuda"), torch.randn(128, device="cuda")]


def get_input_sets():
    yield [torch.randn(16, 64, device="cuda"), torch.randn(32, device="cuda")]
