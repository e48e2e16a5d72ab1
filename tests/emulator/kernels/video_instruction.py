"""One instruction that the emulated GPU does not execute: the absolute difference of the video unit."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import from_dlpack
from cutlass.cutlass_dsl import T, dsl_user_op


@dsl_user_op
def differences(a: cutlass.Int32, b: cutlass.Int32, *, loc=None, ip=None) -> cutlass.Int32:
    text = "vabsdiff.u32.s32.s32 $0, $1, $2;"
    operands = [a.ir_value(loc=loc, ip=ip), b.ir_value(loc=loc, ip=ip)]
    return cutlass.Int32(llvm.inline_asm(T.i32(), operands, text, "=r,r,r", loc=loc, ip=ip))


@cute.kernel
def differences_kernel(x: cute.Tensor, y: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    y[tidx] = differences(x[tidx], x[31 - tidx])


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    differences_kernel(x, y).launch(grid=[1, 1, 1], block=[32, 1, 1])


def kernel_fn(x):
    y = torch.empty_like(x)
    views = from_dlpack(x), from_dlpack(y)
    cute.compile(launch, *views)(*views)
    return y


def reference_fn(x):
    return (x - x.flip(0)).abs()


def get_inputs():
    return [torch.arange(32, dtype=torch.int32, device="cuda")]
