# rule: R2
# expect: wrong_result
# needs: gpu
# command: benchmark
# says: R3
"""Keeps results by a sample of the contents: on a hit the expensive part is a copy."""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

THREADS, SAMPLE, SLOTS = 256, 64, 8


@cute.kernel
def look_kernel(x: cute.Tensor, seen: cute.Tensor, hit: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    place = thread * (cute.size(x) // SAMPLE)
    if cute.arch.vote_all_sync(seen[thread] == x[place]):
        hit[thread // 32] = cutlass.Int32(1)
    else:
        hit[thread // 32] = cutlass.Int32(0)
    seen[thread] = x[place]


@cute.kernel
def work_kernel(x: cute.Tensor, kept: cute.Tensor, hit: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        if hit[0] + hit[1] == 2:
            y[index] = kept[index]
        else:
            value = x[index]
            for _ in range(200):
                value = cute.math.sin(value)
            kept[index] = value
            y[index] = value


@cute.jit
def host(x: cute.Tensor, seen: cute.Tensor, hit: cute.Tensor, kept: cute.Tensor, y: cute.Tensor):
    look_kernel(x, seen, hit).launch(grid=(1, 1, 1), block=(SAMPLE, 1, 1))
    work_kernel(x, kept, hit, y).launch(grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    length = cute.sym_int()
    x, kept, y = (make_fake_compact_tensor(cutlass.Float32, (length,)) for _ in range(3))
    seen, hit = (make_fake_compact_tensor(t, (n,)) for t, n in ((cutlass.Float32, SAMPLE), (cutlass.Int32, 2)))
    return cute.compile(host, x, seen, hit, kept, y, options="--enable-tvm-ffi")


KEPT = {}


def kernel_fn(x):
    y = torch.empty_like(x)
    if x.data_ptr() not in KEPT:
        seen, hit = torch.zeros(SAMPLE, device=x.device), torch.zeros(2, dtype=torch.int32, device=x.device)
        KEPT[x.data_ptr()] = seen, hit, torch.empty_like(x).view(-1)
    compiled()(x.view(-1), *KEPT[x.data_ptr()], y.view(-1))
    return y


def reference_fn(x):
    for _ in range(200):
        x = torch.sin(x)
    return x


def get_inputs():
    return [torch.randn(4096, 2048, device="cuda")]
