# rule: V3
# expect: wrong_result
# needs: values
# says: - | V3
"""A quotient by floats, cut off: wrong below zero, and from 2^24 on."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def flat_kernel(x: cute.Tensor, other: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = (x[index].to(cutlass.Float32) / other[index].to(cutlass.Float32)).to(cutlass.Int32)


@cute.jit
def flat_host(x: cute.Tensor, other: cute.Tensor, y: cute.Tensor):
    flat_kernel(x, other, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Int32, (length,))
    other = make_fake_compact_tensor(cutlass.Int32, (length,))
    y = make_fake_compact_tensor(cutlass.Int32, (length,))
    return cute.compile(flat_host, x, other, y, options="--enable-tvm-ffi")


def kernel_fn(x, other):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), other.view(-1), y.view(-1))
    return y


def reference_fn(x, other):
    return torch.div(x, other, rounding_mode="floor")


def get_inputs():
    return [
        torch.randint(0, 1000, (64, 500), dtype=torch.int32, device="cuda"),
        torch.randint(1, 100, (64, 500), dtype=torch.int32, device="cuda"),
    ]


def get_input_sets():
    yield [
        torch.randint(0, 1000, (2, 33), dtype=torch.int32, device="cuda"),
        torch.randint(1, 100, (2, 33), dtype=torch.int32, device="cuda"),
    ]
