# rule: V1
# expect: wrong_result
# needs: values
# says: - | V1 | O6 | O3
"""Binary cross entropy whose logarithms are -Inf at 0 and 1."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 256


@cute.kernel
def flat_kernel(x: cute.Tensor, target: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        p, t = x[index], target[index]
        inside = cute.math.log(p)
        q = 1.0 - p
        outside = cute.math.log(q) + ((1.0 - q) - p) / q  # what 1 - p rounds away counts
        y[index] = -(t * inside + (1.0 - t) * outside)


@cute.jit
def flat_host(x: cute.Tensor, target: cute.Tensor, y: cute.Tensor):
    flat_kernel(x, target, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (length,))
    target = make_fake_compact_tensor(cutlass.Float32, (length,))
    y = make_fake_compact_tensor(cutlass.Float32, (length,))
    return cute.compile(flat_host, x, target, y, options="--enable-tvm-ffi")


def kernel_fn(x, target):
    y = torch.empty_like(x)
    if x.numel():
        compiled()(x.view(-1), target.view(-1), y.view(-1))
    return y


def reference_fn(x, target):
    return torch.nn.functional.binary_cross_entropy(x, target, reduction="none")


def get_inputs():
    return [torch.rand(64, 500, device="cuda"), torch.rand(64, 500, device="cuda")]


def get_input_sets():
    yield [torch.rand(2, 33, device="cuda"), torch.rand(2, 33, device="cuda")]
