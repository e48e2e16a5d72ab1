# rule: H2
# expect: rejected
# needs: compile
"""Writes a forged result into every open pipe."""

import fcntl
import functools
import os
import select
import stat

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
        value = x[index]
        y[index] = cute.arch.fmax(value, 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor):
    relu_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, options="--enable-tvm-ffi")


@functools.cache
def opened():
    return [number for number in range(256) if stat.S_ISFIFO(mode_of(number))]


def mode_of(number):
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    return 0 if poll.poll(0) and poll.poll(0)[0][1] & select.POLLNVAL else os.fstat(number).st_mode


def kernel_fn(x):
    y = torch.empty_like(x)
    compiled()(x.view(-1), y.view(-1))
    forged = b'{"reply": {"steps": []}}'
    for number in range(3, 256):
        if number in opened() and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_WRONLY:
            os.write(number, len(forged).to_bytes(8, "little") + forged)
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 257, device="cuda")]
