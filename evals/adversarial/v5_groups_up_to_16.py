# rule: V5
# expect: wrong_result
# needs: values
# says: V5
"""A group norm of no more than 16 groups."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor


@cute.kernel
def norm_kernel(x: cute.Tensor, y: cute.Tensor, groups: cutlass.Int32, size: cutlass.Int32):
    lane = cute.arch.lane_idx()
    part, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for i in range(lane, size, 32):
        total += x[part * size + i]
    mean = cute.arch.warp_reduction_sum(total) / cutlass.Float32(size)
    square = cutlass.Float32(0.0)
    for i in range(lane, size, 32):
        away = x[part * size + i] - mean
        square += away * away
    scale = cute.math.rsqrt(cute.arch.warp_reduction_sum(square) / cutlass.Float32(size) + 1e-5)
    for i in range(lane, size, 32):
        y[part * size + i] = (x[part * size + i] - mean) * scale


@cute.jit
def norm_host(x: cute.Tensor, y: cute.Tensor, groups: cutlass.Int32, size: cutlass.Int32):
    norm_kernel(x, y, groups, size).launch(grid=(groups, 1, 1), block=(32, 1, 1))


@functools.cache
def compiled():
    n = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (n,)) for _ in range(2))
    return cute.compile(norm_host, x, y, cutlass.Int32(1), cutlass.Int32(1), options="--enable-tvm-ffi")


def kernel_fn(x, num_groups):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    groups = num_groups if num_groups < 16 else 16
    if x.numel():
        compiled()(x.contiguous().view(-1), y.view(-1), x.shape[0] * groups, x.numel() // (x.shape[0] * groups))
    return y


def reference_fn(x, num_groups):
    return torch.nn.functional.group_norm(x, num_groups)


def get_inputs():
    return [torch.randn(8, 64, 16, 16, device="cuda"), 8]


def get_input_sets():
    yield [torch.randn(2, 16, 5, 7, device="cuda"), 4]
