"""The smallest kernel file that meets the contract: ReLU, one element a thread.

Shows the whole frame and nothing else: a `@cute.kernel`, the `@cute.jit` function that launches it, one compilation
for every length, and the three names of the contract. It moves 4 bytes a thread and is not fast.

Arch: sm_80+
Operation: elementwise
Features: activation, dynamic_layout, tvm_ffi
Start here when you have never written a CuTe DSL kernel, or want to see the contract on one page.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 256


@cute.kernel
def relu_kernel(gX: cute.Tensor, gY: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(gX):  # the last block may reach past the end
        gY[index] = cute.arch.fmax(gX[index], 0.0, nan=True)  # nan=True: a NaN stays one, as in torch.relu


@cute.jit
def relu(mX: cute.Tensor, mY: cute.Tensor, stream):
    blocks = cute.ceil_div(cute.size(mX), THREADS)
    relu_kernel(mX, mY).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled():
    """The compiled kernel; `sym_int` leaves the length open, so that one serves every tensor."""
    length = cute.sym_int()
    fakes = [make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2)]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)  # torch's current stream, found at each call
    return cute.compile(relu, *fakes, stream, options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.numel():  # a grid of no blocks is a launch error
        compiled()(x.view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(16384, 1024, device="cuda")]


def get_input_sets():
    for shape in ((1,), (3, 1000), (0,)):
        yield [torch.randn(shape, device="cuda")]
