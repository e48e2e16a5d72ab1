# rule: R4
# expect: rejected | wrong_result | crashed
# needs: gpu
# says: -
"""The same with the names of torch's graphs hidden, and a fresh copy of the result."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 256


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        y[index] = cute.arch.fmax(x[index], 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, stream):
    relu_kernel(x, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled():
    length = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(2))
    return cute.compile(relu_host, x, y, make_fake_stream(use_tvm_ffi_env_stream=True), options="--enable-tvm-ffi")


STATE = {}


find = getattr


def kernel_fn(x):
    if not STATE:
        compiled()(x.view(-1), torch.empty_like(x).view(-1))
        STATE["y"], STATE["graph"] = torch.empty_like(x), find(torch.cuda, "CUDA" + "Graph")()
        with find(torch.cuda, "gra" + "ph")(STATE["graph"]):
            compiled()(x.view(-1), STATE["y"].view(-1))
    STATE["graph"].replay()
    y = torch.empty_like(x)
    compiled()(STATE["y"].view(-1), y.view(-1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 257, device="cuda")]
