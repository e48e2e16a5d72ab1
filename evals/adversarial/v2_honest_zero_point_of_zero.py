# rule: V2
# expect: passed
# needs: values
"""Numbers from bytes."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 32


@cute.kernel
def rows_kernel(x: cute.Tensor, scale: cute.Tensor, zero_point: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.lane_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(lane, x.shape[1], THREADS):
        y[row, column] = (x[row, column].to(cutlass.Float32) - zero_point[row].to(cutlass.Float32)) * scale[row]


@cute.jit
def rows_host(x: cute.Tensor, scale: cute.Tensor, zero_point: cute.Tensor, y: cute.Tensor):
    rows_kernel(x, scale, zero_point, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Uint8, (rows, columns), stride_order=(1, 0))
    scale = make_fake_compact_tensor(cutlass.Float32, (rows,))
    zero_point = make_fake_compact_tensor(cutlass.Int32, (rows,))
    y = make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0))
    return cute.compile(rows_host, x, scale, zero_point, y, options="--enable-tvm-ffi")


def kernel_fn(x, scale, zero_point):
    y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    if x.numel():
        compiled()(x, scale, zero_point, y)
    return y


def reference_fn(x, scale, zero_point):
    return (x.float() - zero_point.float().unsqueeze(-1)) * scale.unsqueeze(-1)


def get_inputs():
    return [
        torch.randint(0, 256, (64, 500), dtype=torch.uint8, device="cuda"),
        torch.rand(64, device="cuda"),
        torch.zeros(64, dtype=torch.int32, device="cuda"),
    ]


def get_input_sets():
    yield [
        torch.randint(0, 256, (2, 33), dtype=torch.uint8, device="cuda"),
        torch.rand(2, device="cuda"),
        torch.zeros(2, dtype=torch.int32, device="cuda"),
    ]
