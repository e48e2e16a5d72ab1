"""`mma.sync`: D = A B + C of a warp, its matrices spread over the registers of 32 lanes (fragments.py)."""

from __future__ import annotations

import functools
import re

import numpy as np

from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.machine.suspensions import warp_operation
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.ptx.syntax import Instruction, Operand, bits_of
from cutesmith.emulator.tensor_cores.arithmetic import tensor_core_of
from cutesmith.emulator.tensor_cores.fragments import (
    N,
    fragment_order,
    pack,
    read_registers,
    unpack,
    whole_warps,
    write_registers,
)
from cutesmith.emulator.tensor_cores.multiplication import FAMILIES, Multiplication, compute

_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "fp8": ("m16n8k16", "m16n8k32"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "8-bit": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "4-bit": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
_RESULTS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "fp8": ("f16", "f32"), "f64": ("f64",),
    "8-bit": ("s32",), "4-bit": ("s32",), "b1": ("s32",),
}  # fmt: skip
_FORM = re.compile(
    r"mma\.sync\.aligned\.(?P<shape>m(?P<m>\d+)n8k(?P<k>\d+))\.row\.col(?P<satfinite>\.satfinite)?"
    r"\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)\.(?P<c>\w+)(?P<bitwise>\.(xor|and)\.popc)?(?P<rounding>\.rn)?"
)


@functools.cache
def parse_multiplication(opcode: str) -> Multiplication | None:
    """The form that a full opcode names; None where this machine has no such form."""
    match = _FORM.fullmatch(opcode)
    if match is None or match["a"] not in FAMILIES or match["b"] not in FAMILIES:
        return None
    family = FAMILIES[match["a"]]
    fits = (
        FAMILIES[match["b"]] == family
        and (match["a"] == match["b"] or family in ("fp8", "8-bit", "4-bit"))
        and match["shape"] in _SHAPES[family]
        and match["c"] == match["d"]
        and match["d"] in _RESULTS[family]
        and (match["satfinite"] is None or family in ("8-bit", "4-bit"))
        and (match["bitwise"] is not None) == (family == "b1")
        and (match["rounding"] is None or family == "f64")
    )
    if not fits:
        return None
    return Multiplication(
        m=int(match["m"]),
        k=int(match["k"]),
        a=match["a"],
        b=match["b"],
        result=match["d"],
        satfinite=match["satfinite"] is not None,
        operation=(match["bitwise"] or "..").split(".")[1],
    )


def _refuses(instruction: Instruction) -> str | None:
    if parse_multiplication(instruction.full_opcode) is not None:
        return None
    sparse = any(word == "sp" or word.startswith("sp::") for word in instruction.modifiers)
    return "sparse matrices" if sparse else "no such shape and types"


@warp_operation("mma", refuses=_refuses)
def multiply(warps: Warps) -> None:
    """Every form of `mma.sync.aligned` but sparse ones; those of a `kind` are in warp_block_scaling.py."""
    instruction = warps.instruction
    form = parse_multiplication(instruction.full_opcode)
    assert form is not None
    warps = whole_warps(warps)
    if not len(warps.members):
        return
    d, a, b, c = instruction.operands
    bits, result_bits = bits_of(form.a), bits_of(form.result)
    order = fragment_order("c", form.m, N, result_bits)
    product = compute(
        form,
        _matrix(warps, a, fragment_order("a", form.m, form.k, bits), bits).reshape(-1, form.m, form.k),
        _matrix(warps, b, fragment_order("b", form.k, N, bits), bits).reshape(-1, form.k, N),
        _matrix(warps, c, order, result_bits).reshape(-1, form.m, N),
        tensor_core_of(warps.wave.tensor_core_sm or warps.wave.program.module.sm),
    )
    elements = np.empty((len(product), len(order)), np.uint64)
    elements[:, order] = product.reshape(elements.shape)
    per = max(1, 32 // result_bits)
    write_registers(warps, d, pack(elements.reshape(len(product), -1, per, WARP), result_bits))


def _matrix(warps: Warps, operand: Operand, order: Array, bits: int) -> Array:
    """uint64 elements (w, rows x columns) of the matrix that a vector operand spreads over the lanes."""
    elements = unpack(read_registers(warps, operand, max(32, bits)), bits)
    return elements.reshape(-1, len(order)).take(order, axis=1)
