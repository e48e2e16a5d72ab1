# rule:
# expect: passed
# needs: compile
"""One compiled object for each dtype, kept by functools.lru_cache."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        value = cute.arch.fmax(x[index].to(cutlass.Float32), 0.0, nan=True)
        y[index] = value.to(y.element_type)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor):
    relu_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.lru_cache(maxsize=8)
def compiled(dtype):
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(DTYPES[dtype], (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, options="--enable-tvm-ffi")


DTYPES = {torch.float32: cutlass.Float32, torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():
        compiled(x.dtype)(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 257, device="cuda")]


def get_input_sets():
    for dtype in (torch.float16, torch.bfloat16):
        yield [torch.randn(20, 30, device="cuda", dtype=dtype)]
