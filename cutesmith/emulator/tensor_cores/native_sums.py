"""Inner loops of matrix multiplication as machine code: the truncated fused sum, and fused multiply-add of doubles.

numpy has no fused multiply-add, and takes six passes over every product for the fused sum: 0.93 ms for 16 warps of
m16n8k16 against 0.42 ms, most of which is reading and writing registers.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from cutesmith.emulator.native.jit import machine_code
from cutesmith.emulator.program.abi import Array

LANES = 8
"""Columns of B that one vector holds: the number of columns must be a multiple."""

NO_EXPONENT = -4096
"""The exponent of zero, so that it aligns nothing."""

_BELOW_FLOAT32 = 29
"""Bits that the mantissa of a double has more than that of a float32."""

LEAST_EXPONENT = -2 * 126
"""The smallest exponent of a product, of two subnormal bf16 or tf32 numbers."""

_IR = """
define void @fused_sums(ptr %av, ptr %ae, ptr %bv, ptr %be, ptr %cv, ptr %ce, ptr %out,
                        i64 %matrices, i64 %rows, i64 %columns, i64 %depth, i64 %length, i64 %fraction, i64 %dropped) {
start:
  %lines = mul i64 %matrices, %rows
  %f0 = insertelement <8 x i64> poison, i64 %fraction, i64 0
  %f = shufflevector <8 x i64> %f0, <8 x i64> poison, <8 x i32> zeroinitializer
  %d0 = insertelement <8 x i64> poison, i64 %dropped, i64 0
  %drop = shufflevector <8 x i64> %d0, <8 x i64> poison, <8 x i32> zeroinitializer
  %mask = shl <8 x i64> splat (i64 -1), %drop
  %tiny0 = sub <8 x i64> splat (i64 LEAST_UNIT), %drop
  %tiny1 = shl <8 x i64> %tiny0, splat (i64 52)
  %grow = bitcast <8 x i64> %tiny1 to <8 x double>
  %tiny2 = sub <8 x i64> splat (i64 2046), %tiny0
  %tiny3 = shl <8 x i64> %tiny2, splat (i64 52)
  %shrink = bitcast <8 x i64> %tiny3 to <8 x double>
  %chained = icmp sgt i64 %dropped, 0
  %some = icmp sgt i64 %lines, 0
  br i1 %some, label %line, label %end
line:
  %i = phi i64 [0, %start], [%i1, %line_end]
  %matrix = udiv i64 %i, %rows
  %a0 = mul i64 %i, %depth
  %b0 = mul i64 %matrix, %depth
  br label %block
block:
  %j = phi i64 [0, %line], [%j1, %block_end]
  %c0 = mul i64 %i, %columns
  %c = add i64 %c0, %j
  %pce = getelementptr i16, ptr %ce, i64 %c
  %ec0 = load <8 x i16>, ptr %pce, align 2
  %pcv = getelementptr double, ptr %cv, i64 %c
  %vc0 = load <8 x double>, ptr %pcv, align 8
  br label %step
step:
  %from = phi i64 [0, %block], [%to, %step_end]
  %ec = phi <8 x i16> [%ec0, %block], [%ec1, %step_end]
  %vc = phi <8 x double> [%vc0, %block], [%kept_c, %step_end]
  %full = add i64 %from, %length
  %to = call i64 @llvm.smin.i64(i64 %full, i64 %depth)
  %first = call <8 x i16> @llvm.smax.v8i16(<8 x i16> %ec, <8 x i16> splat (i16 LEAST))
  br label %exponents
exponents:
  %k = phi i64 [%from, %step], [%k1, %exponents]
  %largest = phi <8 x i16> [%first, %step], [%larger, %exponents]
  %ia = add i64 %a0, %k
  %pae = getelementptr i16, ptr %ae, i64 %ia
  %ea = load i16, ptr %pae
  %ea0 = insertelement <8 x i16> poison, i16 %ea, i64 0
  %eas = shufflevector <8 x i16> %ea0, <8 x i16> poison, <8 x i32> zeroinitializer
  %kb = add i64 %b0, %k
  %ib0 = mul i64 %kb, %columns
  %ib = add i64 %ib0, %j
  %pbe = getelementptr i16, ptr %be, i64 %ib
  %eb = load <8 x i16>, ptr %pbe, align 2
  %e = add <8 x i16> %eas, %eb
  %larger = call <8 x i16> @llvm.smax.v8i16(<8 x i16> %largest, <8 x i16> %e)
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %to
  br i1 %more, label %exponents, label %align
align:
  %wide = sext <8 x i16> %larger to <8 x i64>
  %up = sub <8 x i64> %f, %wide
  %down = sub <8 x i64> %wide, %f
  %upb = add <8 x i64> %up, splat (i64 1023)
  %downb = add <8 x i64> %down, splat (i64 1023)
  %ups = shl <8 x i64> %upb, splat (i64 52)
  %downs = shl <8 x i64> %downb, splat (i64 52)
  %scale = bitcast <8 x i64> %ups to <8 x double>
  %back = bitcast <8 x i64> %downs to <8 x double>
  %sc = fmul <8 x double> %vc, %scale
  %cut = call <8 x double> @llvm.trunc.v8f64(<8 x double> %sc)
  br label %products
products:
  %q = phi i64 [%from, %align], [%q1, %products]
  %total = phi <8 x double> [%cut, %align], [%sum, %products]
  %ja = add i64 %a0, %q
  %pav = getelementptr double, ptr %av, i64 %ja
  %va = load double, ptr %pav
  %va0 = insertelement <8 x double> poison, double %va, i64 0
  %vas = shufflevector <8 x double> %va0, <8 x double> poison, <8 x i32> zeroinitializer
  %qb = add i64 %b0, %q
  %jb0 = mul i64 %qb, %columns
  %jb = add i64 %jb0, %j
  %pbv = getelementptr double, ptr %bv, i64 %jb
  %vb = load <8 x double>, ptr %pbv, align 8
  %product = fmul <8 x double> %vas, %vb
  %aligned = fmul <8 x double> %product, %scale
  %kept = call <8 x double> @llvm.trunc.v8f64(<8 x double> %aligned)
  %sum = fadd <8 x double> %total, %kept
  %q1 = add i64 %q, 1
  %again = icmp slt i64 %q1, %to
  br i1 %again, label %products, label %summed
summed:
  %result = fmul <8 x double> %sum, %back
  br i1 %chained, label %truncate, label %whole
truncate:
  %bits = bitcast <8 x double> %result to <8 x i64>
  %high = and <8 x i64> %bits, %mask
  %normal = bitcast <8 x i64> %high to <8 x double>
  %grown = fmul <8 x double> %result, %grow
  %units = call <8 x double> @llvm.trunc.v8f64(<8 x double> %grown)
  %small = fmul <8 x double> %units, %shrink
  %size = call <8 x double> @llvm.fabs.v8f64(<8 x double> %result)
  %subnormal = fcmp olt <8 x double> %size, splat (double 0x3810000000000000)
  %chosen = select <8 x i1> %subnormal, <8 x double> %small, <8 x double> %normal
  %unsigned = fadd <8 x double> %chosen, zeroinitializer
  %over = fcmp oge <8 x double> %size, splat (double 0x47F0000000000000)
  %signs = and <8 x i64> %bits, splat (i64 -9223372036854775808)
  %infinities = or <8 x i64> %signs, splat (i64 9218868437227405312)
  %infinite = bitcast <8 x i64> %infinities to <8 x double>
  %bounded = select <8 x i1> %over, <8 x double> %infinite, <8 x double> %unsigned
  %none = fcmp uno <8 x double> %result, %result
  %float32 = select <8 x i1> %none, <8 x double> splat (double 0x7FF8000000000000), <8 x double> %bounded
  br label %whole
whole:
  %kept_c = phi <8 x double> [%result, %summed], [%float32, %truncate]
  %cbits = bitcast <8 x double> %kept_c to <8 x i64>
  %cshift = lshr <8 x i64> %cbits, splat (i64 52)
  %cbiased = and <8 x i64> %cshift, splat (i64 2047)
  %cwide = sub <8 x i64> %cbiased, splat (i64 1023)
  %cnarrow = trunc <8 x i64> %cwide to <8 x i16>
  %cmost = call <8 x i16> @llvm.smin.v8i16(<8 x i16> %cnarrow, <8 x i16> splat (i16 128))
  %cleast = call <8 x i16> @llvm.smax.v8i16(<8 x i16> %cmost, <8 x i16> splat (i16 -126))
  %zero = fcmp oeq <8 x double> %kept_c, zeroinitializer
  %ec1 = select <8 x i1> %zero, <8 x i16> splat (i16 NO_EXPONENT), <8 x i16> %cleast
  br label %step_end
step_end:
  %further = icmp slt i64 %to, %depth
  br i1 %further, label %step, label %block_end
block_end:
  %pout = getelementptr double, ptr %out, i64 %c
  store <8 x double> %kept_c, ptr %pout, align 8
  %j1 = add i64 %j, 8
  %next = icmp slt i64 %j1, %columns
  br i1 %next, label %block, label %line_end
line_end:
  %i1 = add i64 %i, 1
  %on = icmp slt i64 %i1, %lines
  br i1 %on, label %line, label %end
end:
  ret void
}
define void @fused_multiply_add(ptr %a, ptr %b, ptr %c, i64 %count) {
start:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [0, %start], [%next, %loop]
  %pa = getelementptr double, ptr %a, i64 %i
  %pb = getelementptr double, ptr %b, i64 %i
  %pc = getelementptr double, ptr %c, i64 %i
  %x = load double, ptr %pa
  %y = load double, ptr %pb
  %z = load double, ptr %pc
  %d = call double @llvm.fma.f64(double %x, double %y, double %z)
  store double %d, ptr %pc
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
declare <8 x i16> @llvm.smax.v8i16(<8 x i16>, <8 x i16>)
declare <8 x i16> @llvm.smin.v8i16(<8 x i16>, <8 x i16>)
declare <8 x double> @llvm.trunc.v8f64(<8 x double>)
declare <8 x double> @llvm.fabs.v8f64(<8 x double>)
declare double @llvm.fma.f64(double, double, double)
"""
for _name, _value in (("LEAST_UNIT", 1023 + 149 + 29), ("NO_EXPONENT", NO_EXPONENT), ("LEAST", LEAST_EXPONENT)):
    _IR = _IR.replace(_name, str(_value))


def fused_sums(
    a: tuple[Array, Array], b: tuple[Array, Array], c: tuple[Array, Array], length: int, fraction: int, cut: int | None
) -> Array:
    """float64 (w, m, n): one sum of A B and C after another, each over `length` of k, every addend cut before.

    Values (float64) and exponents (int16) of A (w, m, k), B (w, k, n) and C (w, m, n), all contiguous; everything below
    2^(largest exponent - fraction) is cut off each addend. Every sum is truncated to float32 without its `cut` lowest
    bits, and is the next one's C; with None it is exact, and there is one sum.
    """
    matrices, rows, depth = a[0].shape
    columns = b[0].shape[2]
    assert columns % LANES == 0 and all(part.flags.c_contiguous for pair in (a, b, c) for part in pair)
    assert cut is not None or length >= depth, "an exact sum has no successor"
    out = np.empty((matrices, rows, columns))
    pointers = [part.ctypes.data for part in (*a, *b, *c)]
    dropped = 0 if cut is None else _BELOW_FLOAT32 + cut
    sizes = (matrices, rows, columns, depth, length, fraction, dropped)
    _function("fused_sums", 7, 7)(*pointers, out.ctypes.data, *sizes)
    return out


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding, float64 arrays of one shape."""
    first, second, total = (np.array(part, np.float64, order="C") for part in (a, b, c))
    _function("fused_multiply_add", 3, 1)(*(part.ctypes.data for part in (first, second, total)), total.size)
    return total


@functools.cache
def _function(name: str, pointers: int, integers: int) -> Any:
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * pointers, *[ctypes.c_int64] * integers)
    return signature(_engine().get_function_address(name))


@functools.cache
def _engine() -> Any:
    """The execution engine, which owns the code."""
    return machine_code(_IR)
