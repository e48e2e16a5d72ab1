"""Fused multiply-add over arrays of doubles: numpy has none, and its rounding cannot be had from two operations."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import llvmlite.binding as llvm
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_IR = """
define void @run_fused(ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %count) {
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
declare double @llvm.fma.f64(double, double, double)
"""


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding, float64 arrays of one shape."""
    first, second, total = (np.array(part, np.float64, order="C") for part in (a, b, c))
    _, address = _compiled()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
    function(first.ctypes.data, second.ctypes.data, total.ctypes.data, total.size)
    return total


@functools.cache
def _compiled() -> tuple[Any, int]:
    """The engine, which must stay alive, and the address of its function."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=2)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_IR), machine)
    engine.finalize_object()
    return engine, engine.get_function_address("run_fused")
