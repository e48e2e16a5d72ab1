"""ReLU through TVM-FFI: torch tensors go straight into the compiled function."""

import cutlass
import cutlass.cute as cute
import torch

THREADS = 128
VECTOR = 4


@cute.kernel
def relu_kernel(gx: cute.Tensor, gy: cute.Tensor, count: cutlass.Int32):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    vector = bidx * THREADS + tidx
    if vector < count:
        x = gx[(None, vector)].load()
        gy[(None, vector)].store(cute.where(x < 0, cute.full_like(x, 0), x))


@cute.jit
def relu(x: cute.Tensor, y: cute.Tensor):
    gx = cute.zipped_divide(x, (VECTOR,))
    gy = cute.zipped_divide(y, (VECTOR,))
    count = cute.size(gx, mode=[1])
    relu_kernel(gx, gy, count).launch(grid=[cute.ceil_div(count, THREADS), 1, 1], block=[THREADS, 1, 1])


_compiled = None


def kernel_fn(x):
    global _compiled
    y = torch.empty_like(x)
    if _compiled is None:
        n = cute.sym_int(divisibility=VECTOR)
        fake = [cute.runtime.make_fake_compact_tensor(cutlass.Float32, (n,), assumed_align=16) for _ in range(2)]
        _compiled = cute.compile(relu, *fake, options="--enable-tvm-ffi")
    _compiled(x, y)
    return y


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(1 << 20, device="cuda")]
