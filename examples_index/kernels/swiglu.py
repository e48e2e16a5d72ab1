"""SwiGLU: silu(gate) * up, where gate and up are the two halves of each row of one matrix.

Shows a pointwise kernel over views: both halves are slices of the same tensor with rows twice as far apart as they are
long, and the views are taken in `kernel_fn` and cost nothing. A thread takes one 16-byte vector of each half.

Arch: sm_80+
Operation: activation
Features: activation, vectorized_copy, strided, fast_math
Start here when inputs are slices of a larger tensor.
"""

import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

DTYPES = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
THREADS = 256
VECTOR = 8  # 16-bit elements of a 16-byte access
LOG2_E = 1.4426950408889634


@cute.kernel
def swiglu_kernel(mGate: cute.Tensor, mUp: cute.Tensor, mY: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    across = mY.shape[1] // VECTOR  # vectors of a row
    index = block * THREADS + thread
    row, column = index // across, index % across
    if row < mY.shape[0]:
        gGate, gUp, gY = (cute.zipped_divide(m[row, None], (VECTOR,))[None, column] for m in (mGate, mUp, mY))
        rGate, rUp, rY = (cute.make_rmem_tensor((VECTOR,), mY.element_type) for _ in range(3))
        cute.autovec_copy(gGate, rGate)
        cute.autovec_copy(gUp, rUp)
        gate, up = rGate.load().to(Float32), rUp.load().to(Float32)
        # x * sigmoid(x) by ex2.approx and rcp.approx: exp of a large -x is inf, its reciprocal 0
        sigmoid = cute.make_rmem_tensor((VECTOR,), Float32)
        sigmoid.store(1.0 + cute.math.exp2(gate * -LOG2_E, fastmath=True))
        for i in cutlass.range_constexpr(VECTOR):
            sigmoid[i] = cute.arch.rcp_approx(sigmoid[i])  # takes scalars only; cute.math.rcp(fastmath=True) is rcp.rn
        rY.store((gate * sigmoid.load() * up).to(mY.element_type))
        cute.autovec_copy(rY, gY)


@cute.jit
def swiglu(mGate: cute.Tensor, mUp: cute.Tensor, mY: cute.Tensor, stream):
    blocks = cute.ceil_div(cute.size(mY), THREADS * VECTOR)
    swiglu_kernel(mGate, mUp, mY).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


@functools.cache
def compiled(dtype: torch.dtype):
    """One kernel for all shapes whose rows are whole vectors."""
    rows, columns = cute.sym_int(), cute.sym_int(divisibility=VECTOR)

    def fake():
        stride = (cute.sym_int64(divisibility=VECTOR), 1)
        return make_fake_tensor(DTYPES[dtype], (rows, columns), stride, assumed_align=16)

    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(swiglu, fake(), fake(), fake(), stream, options="--enable-tvm-ffi")


def kernel_fn(x):
    rows, width = x.shape[0], x.shape[1] // 2
    y = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    if y.numel():
        compiled(x.dtype)(x[:, :width], x[:, width:], y)
    return y


def reference_fn(x):
    gate, up = x.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(x.dtype)


def get_inputs(rows=8192, width=8192, dtype=torch.bfloat16):
    return [torch.randn(rows, 2 * width, device="cuda", dtype=dtype)]


def get_input_sets():
    yield get_inputs(3, 1032, torch.float16)
    yield get_inputs(130, 8)
