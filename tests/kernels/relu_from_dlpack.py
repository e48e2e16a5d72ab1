"""ReLU through `from_dlpack`, with the stream passed by hand."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def relu_kernel(gx: cute.Tensor, gy: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    i = bidx * THREADS + tidx
    if i < cute.size(gx):
        x = gx[i]
        gy[i] = cutlass.Float32(0.0) if x < 0.0 else x


@cute.jit
def relu(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    grid = [cute.ceil_div(cute.size(x), THREADS), 1, 1]
    relu_kernel(x, y).launch(grid=grid, block=[THREADS, 1, 1], stream=stream)


_compiled = {}


def kernel_fn(x):
    y = torch.empty_like(x)
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    arguments = [from_dlpack(t, assumed_align=16).mark_layout_dynamic() for t in (x, y)]
    if "relu" not in _compiled:
        _compiled["relu"] = cute.compile(relu, *arguments, stream)
    _compiled["relu"](*arguments, stream)
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    generator = torch.Generator(device="cuda").manual_seed(1)
    return [torch.randn(1000, device="cuda", generator=generator)]
