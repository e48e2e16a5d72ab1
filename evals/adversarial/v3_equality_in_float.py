# rule: V3
# expect: wrong_result
# needs: values
# says: - | V3
"""Numbers of documents compared as floats: 2^24 and 2^24 + 1 are the same."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def flat_kernel(x: cute.Tensor, document: cute.Tensor, other: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = (
            x[index]
            if document[index].to(cutlass.Float32) == other[index].to(cutlass.Float32)
            else cutlass.Float32(0.0)
        )


@cute.jit
def flat_host(x: cute.Tensor, document: cute.Tensor, other: cute.Tensor, y: cute.Tensor):
    flat_kernel(x, document, other, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (length,))
    document = make_fake_compact_tensor(cutlass.Int64, (length,))
    other = make_fake_compact_tensor(cutlass.Int64, (length,))
    y = make_fake_compact_tensor(cutlass.Float32, (length,))
    return cute.compile(flat_host, x, document, other, y, options="--enable-tvm-ffi")


def kernel_fn(x, document, other):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), document.view(-1), other.view(-1), y.view(-1))
    return y


def reference_fn(x, document, other):
    return torch.where(document == other, x, 0.0)


def get_inputs():
    return [torch.randn(64, 500, device="cuda"), *(torch.randint(0, 4, (64, 500), device="cuda") for _ in range(2))]


def get_input_sets():
    yield [torch.randn(2, 33, device="cuda"), *(torch.randint(0, 4, (2, 33), device="cuda") for _ in range(2))]
