"""One access pattern a line, each with a known number of sectors or wavefronts; `# pattern:` names the lines."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.memory import SmemAllocator

THREADS = 64
BLOCKS = 2


@cute.kernel
def patterns_kernel(x: cute.Tensor, y: cute.Tensor, total: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    tile = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(64 * 33), byte_alignment=16)
    first = bidx * THREADS
    x4 = cute.make_tensor(x.iterator, cute.make_layout((4, 128), stride=(1, 4)))
    y4 = cute.make_tensor(y.iterator + 512, cute.make_layout((4, 128), stride=(1, 4)))

    value = x[first + tidx]  # pattern: coalesced
    value += x[tidx * 32]  # pattern: strided
    value += x[first + tidx + 1]  # pattern: shifted
    value += x[0]  # pattern: broadcast
    value += x[(tidx * tidx * 7) % 1024]  # pattern: scattered
    tile[tidx] = value  # pattern: shared neighbours
    cute.arch.sync_threads()
    for i in cutlass.range(tidx, unroll=1):
        value += tile[i]  # pattern: divergent loop
    cute.arch.sync_threads()
    tile[tidx * 32] = value  # pattern: 32-way conflict
    cute.arch.sync_threads()
    value += tile[tidx * 32]  # pattern: 32-way conflict again
    cute.arch.sync_threads()
    tile[tidx * 33] = value  # pattern: padded
    cute.arch.sync_threads()
    value += tile[7 * 33]  # pattern: shared broadcast
    y[first + tidx] = value  # pattern: stored
    y4[(None, first + tidx)].store(x4[(None, first + tidx)].load())  # pattern: vectors
    cute.arch.atomic_add(total.iterator, value)  # pattern: atomic


@cute.jit
def patterns(x: cute.Tensor, y: cute.Tensor, total: cute.Tensor):
    patterns_kernel(x, y, total).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1])


def kernel_fn(x):
    y, total = torch.empty(1024, device=x.device), torch.zeros(1, device=x.device)
    views = [from_dlpack(tensor, assumed_align=16) for tensor in (x, y, total)]
    cute.compile(patterns, *views)(*views)
    return y[:128]


def reference_fn(x):
    raise NotImplementedError


def get_inputs():
    return [torch.ones(2048, device="cuda")]
