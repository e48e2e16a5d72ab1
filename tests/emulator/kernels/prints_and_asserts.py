"""What the compiler writes rarely: a call sequence, a local array, an assertion, inline assembly with its own scope."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import from_dlpack
from cutlass.cutlass_dsl import T, dsl_user_op

_ASSEMBLY = """{
.reg .pred p;
.reg .b32 q<3>;
setp.ne.s32 p, $1, 0;
mov.b32 q1, 0x1F;
@p bra DONE;
add.s32 q1, q1, 017;
DONE:
selp.b32 $0, q1, -1, p;
}"""


@dsl_user_op
def choose(x, *, loc=None, ip=None):
    operands = [cutlass.Int32(x).ir_value(loc=loc, ip=ip)]
    dialect = llvm.AsmDialect.AD_ATT
    chosen = llvm.inline_asm(T.i32(), operands, _ASSEMBLY, "=r,r", has_side_effects=True, asm_dialect=dialect)
    return cutlass.Int32(chosen)


@cute.kernel
def features_kernel(gx: cute.Tensor, gy: cute.Tensor, n: cutlass.Int32):
    tidx, _, _ = cute.arch.thread_idx()
    values = cute.make_rmem_tensor(cute.make_layout(16), cutlass.Float32)
    for i in cutlass.range_constexpr(16):
        values[i] = gx[i]
    values[n] = 3.0
    cute.testing.assert_(n < 8, "n is too large")
    total = values[n + 1]
    for i in cutlass.range(n, unroll=1):
        total = total + values[i]
    if tidx == 0:
        cute.printf("thread {} sum {}\n", tidx, total)
    gy[choose(n) + choose(n + 4)] = total


@cute.jit
def features(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    features_kernel(x, y, n).launch(grid=[1, 1, 1], block=[128, 1, 1])


def kernel_fn(x):
    y = torch.zeros_like(x)
    cute.compile(features, from_dlpack(x), from_dlpack(y), 3, options="--generate-line-info")(
        from_dlpack(x), from_dlpack(y), 3
    )
    return y


def reference_fn(x):
    y = torch.zeros_like(x)
    y[62] = x[4] + x[:3].sum()
    return y


def get_inputs():
    return [torch.randn(128, device="cuda")]
