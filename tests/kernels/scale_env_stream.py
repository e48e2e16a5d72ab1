"""y = x * factor through TVM-FFI on the stream of the environment, with a scalar and a keyword argument."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 128


@cute.kernel
def scale_kernel(gx: cute.Tensor, gy: cute.Tensor, factor: cutlass.Float32):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    i = bidx * THREADS + tidx
    if i < cute.size(gx):
        gy[i] = (gx[i].to(cutlass.Float32) * factor).to(gy.element_type)


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, stream):
    grid = [cute.ceil_div(cute.size(x), THREADS), 1, 1]
    scale_kernel(x, y, factor).launch(grid=grid, block=[THREADS, 1, 1], stream=stream, min_blocks_per_mp=2)


_compiled = {}


def kernel_fn(x, factor):
    y = torch.empty_like(x)
    if x.dtype not in _compiled:
        n = cute.sym_int()
        fakes = [make_fake_compact_tensor(cutlass.BFloat16, (n,), assumed_align=16) for _ in range(2)]
        stream = make_fake_stream(use_tvm_ffi_env_stream=True)
        _compiled[x.dtype] = cute.compile(scale, *fakes, cutlass.Float32(1.0), stream, options="--enable-tvm-ffi")
    _compiled[x.dtype](x, y, factor)
    return y


def reference_fn(x, factor):
    return x * factor


def get_inputs():
    return [torch.randn(1000, device="cuda", dtype=torch.bfloat16), 2.5]
