"""A kernel pair as a PyTorch operator: GELU (tanh) with its gradient, for autograd, torch.compile and fake tensors.

Shows how a kernel becomes a PyTorch operator. `register_operators` makes `examples::gelu_tanh` of the forward kernel;
its fake implementation tells the output's shape without running it. The backward kernel is registered as its gradient.
`kernel_fn` runs what both operators run, so that the pair is verified like any kernel. `python
custom_op_with_backward.py` (needs a GPU) checks the operators and takes a gradient through torch.compile.

Arch: sm_80+
Operation: activation
Features: torch_op, backward, activation, vectorized_copy, fake_tensor
Start here when a verified kernel has to become part of a model.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, const_expr
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16, torch.float32: Float32}
THREADS = 256
BETA, KAPPA = 0.7978845608028654, 0.044715  # gelu(x) = x (1 + tanh u) / 2, u = BETA (x + KAPPA x^3)
LOG2_E = 1.4426950408889634


@cute.jit
def gelu_value(x, gradient: cutlass.Constexpr):
    """gelu(x), or its derivative; (1 + tanh u) / 2 is the sigmoid of 2u."""
    u2 = 2.0 * BETA * (x + KAPPA * x * x * x)
    sigmoid = 1.0 / (1.0 + cute.math.exp2(u2 * -LOG2_E, fastmath=True))
    if const_expr(not gradient):
        return x * sigmoid
    slope = 2.0 * BETA * (1.0 + 3.0 * KAPPA * x * x)
    rest = cute.where(sigmoid < cute.full_like(sigmoid, 1.0), sigmoid * (1.0 - sigmoid), cute.full_like(x, 0.0))
    return sigmoid + x * (slope * rest)


@cute.kernel
def gelu_kernel(mX: cute.Tensor, mDy: cute.Tensor, mOut: cute.Tensor, vector: cutlass.Constexpr):
    """out = gelu(x), or dy * gelu'(x) where there is a dy."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < mX.shape[0] // vector:
        rX, rDy, rOut = (cute.make_rmem_tensor((vector,), mX.element_type) for _ in range(3))
        cute.autovec_copy(cute.zipped_divide(mX, (vector,))[None, index], rX)
        if const_expr(mDy is None):
            rOut.store(gelu_value(rX.load().to(Float32), False).to(mOut.element_type))
        else:
            cute.autovec_copy(cute.zipped_divide(mDy, (vector,))[None, index], rDy)
            dx = rDy.load().to(Float32) * gelu_value(rX.load().to(Float32), True)
            rOut.store(dx.to(mOut.element_type))
        cute.autovec_copy(rOut, cute.zipped_divide(mOut, (vector,))[None, index])


@cute.jit
def gelu(mX: cute.Tensor, mDy: cute.Tensor, mOut: cute.Tensor, vector: cutlass.Constexpr, stream):
    blocks = cute.ceil_div(mX.shape[0], THREADS * vector)
    gelu_kernel(mX, mDy, mOut, vector).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype, vector: int, backward: bool):
    """One kernel for all lengths that `vector` divides."""
    length = cute.sym_int(divisibility=vector)
    x, dy, out = (
        make_fake_compact_tensor(DTYPES[dtype], (length,), assumed_align=vector * dtype.itemsize) for _ in range(3)
    )
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(gelu, x, dy if backward else None, out, vector, stream, options="--enable-tvm-ffi")


def launch(x, dy=None):
    """The forward kernel, or the backward kernel where there is a `dy`."""
    out = torch.empty_like(x)
    if x.numel():
        flat = [None if t is None else t.view(-1) for t in (x, dy, out)]
        width = 16 // x.element_size()
        whole = all(t is None or t.numel() % width == 0 and t.data_ptr() % 16 == 0 for t in flat)
        compiled(x.dtype, width if whole else 1, dy is not None)(*flat)
    return out


def kernel_fn(x, dy):
    return launch(x), launch(x, dy)


def reference_fn(x, dy):
    x = x.detach().clone()
    with torch.enable_grad():
        x.requires_grad_(True)
        y = torch.nn.functional.gelu(x, approximate="tanh")
        (dx,) = torch.autograd.grad(y, x, dy)
    return y.detach(), dx


def get_inputs(rows=16384, columns=4096, dtype=torch.bfloat16):
    return [torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(2)]


def get_input_sets():
    yield get_inputs(3, 1000, torch.float16)
    yield get_inputs(5, 129, torch.float32)


def register_operators():
    """Define `examples::gelu_tanh` and its gradient, once a process; returns the operator."""

    @torch.library.custom_op("examples::gelu_tanh", mutates_args=())
    def forward(x: torch.Tensor) -> torch.Tensor:
        return launch(x.contiguous())

    @torch.library.custom_op("examples::gelu_tanh_backward", mutates_args=())
    def backward(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        return launch(x.contiguous(), dy.contiguous())  # autograd hands out gradients of any layout

    @forward.register_fake
    def _(x):
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    @backward.register_fake
    def _(x, dy):
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    def keep_input(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def gradient(ctx, dy):
        return backward(*ctx.saved_tensors, dy)  # an operator too: torch.compile sees the whole graph

    forward.register_autograd(gradient, setup_context=keep_input)
    return forward


if __name__ == "__main__":
    gelu_tanh = register_operators()
    torch.library.opcheck(gelu_tanh, (torch.randn(4, 64, device="cuda", requires_grad=True),))
    x = torch.randn(256, 1024, device="cuda", requires_grad=True)
    for function in (gelu_tanh, torch.nn.GELU(approximate="tanh")):
        (dx,) = torch.autograd.grad(torch.compile(lambda t, f=function: f(2 * t).square().mean())(x), x)
        print(f"gradient norm {dx.norm().item():.6f}")
