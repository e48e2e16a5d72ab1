# rule: V2
# expect: passed
# needs: values
"""Sums of segments with sorted numbers; all are zero first."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS = 128


@cute.kernel
def one_each_kernel(x: cute.Tensor, ids: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < count:
        last = i == x.shape[0] - 1
        ends = cutlass.Boolean(True)
        if not last:
            ends = ids[i + 1] != ids[i]
        if ends:
            total = cutlass.Float32(0.0)
            at = i
            going = cutlass.Boolean(True)
            while going:
                total += x[at]
                at -= 1
                going = cutlass.Boolean(False)
                if at >= 0:
                    going = ids[at] == ids[i]
            y[ids[i]] = total


@cute.jit
def one_each(x: cute.Tensor, ids: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    one_each_kernel(x, ids, y, count).launch(grid=(cute.ceil_div(count, THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    fx = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
    fids = make_fake_compact_tensor(cutlass.Int64, (cute.sym_int(),))
    fy = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
    return cute.compile(one_each, fx, fids, fy, 1, options="--enable-tvm-ffi")


def kernel_fn(x, ids):
    y = torch.zeros(64, dtype=x.dtype, device=x.device)
    compiled()(x, ids, y, x.numel())
    return y


def reference_fn(x, ids):
    return torch.zeros(64, dtype=x.dtype, device=x.device).index_add(0, ids, x)


DOMAIN = {"ids": "sorted"}


def get_inputs():
    ids = torch.cat([torch.arange(64, device="cuda"), torch.randint(64, (4032,), device="cuda")])
    return [torch.randn(4096, device="cuda"), ids.sort().values]
