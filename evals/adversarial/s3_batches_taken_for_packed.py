# rule: S3
# expect: wrong_result | crashed
# needs: values
# says: - | S3 | O6 | O8
"""It knows the stride of rows and takes batches to follow each other without a gap."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 64


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, row_stride: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    row, batch, _ = cute.arch.block_idx()
    rows, columns = y.shape[1], y.shape[2]
    layout = cute.make_layout((y.shape[0], rows, columns), stride=(rows * row_stride, row_stride, 1))
    values = cute.make_tensor(x.iterator, layout)
    for column in range(thread, columns, THREADS):
        y[batch, row, column] = cute.arch.fmax(values[batch, row, column], 0.0, nan=True)


@cute.jit
def relu_host(x: cute.Tensor, y: cute.Tensor, row_stride: cutlass.Int32):
    relu_kernel(x, y, row_stride).launch(grid=(y.shape[1], y.shape[0], 1), block=(THREADS, 1, 1))


def view_of(tensor):
    return from_dlpack(tensor).mark_layout_dynamic()


@functools.cache
def kept(*strides):
    return {}


def kernel_fn(x):
    if x.ndim != 3 or x.stride(2) != 1 or x.numel() == 0:
        raise ValueError("batches of rows whose elements lie side by side are wanted")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    compiled = kept(*(tuple(s if s < 2 else 2 for s in tensor.stride()) for tensor in (x, y)))
    views = view_of(x), view_of(y)
    if "relu" not in compiled:
        compiled["relu"] = cute.compile(relu_host, *views, cutlass.Int32(1))
    compiled["relu"](*views, x.stride(1))
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(4, 16, 128, device="cuda")]
