"""`mma.sync`: D = A B + C of a warp, its matrices spread over the registers of 32 lanes (fragments.py)."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.emitters.formats import FORMATS
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.machine.suspensions import warp_operation
from cutesmith.emulator.operations import tensor_core
from cutesmith.emulator.operations.fragments import (
    N,
    fragment_order,
    pack,
    read_registers,
    unpack,
    whole_warps,
    write_registers,
)
from cutesmith.emulator.operations.native_sums import fused_multiply_add
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.ptx.syntax import Instruction, Operand, bits_of

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
_FAMILIES = {
    "f16": "f16", "bf16": "bf16", "tf32": "tf32", "e4m3": "fp8", "e5m2": "fp8", "f64": "f64",
    "s8": "8-bit", "u8": "8-bit", "s4": "4-bit", "u4": "4-bit", "b1": "b1",
}  # fmt: skip
_RESULTS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "fp8": ("f16", "f32"), "f64": ("f64",),
    "8-bit": ("s32",), "4-bit": ("s32",), "b1": ("s32",),
}  # fmt: skip
_FORM = re.compile(
    r"mma\.sync\.aligned\.(?P<shape>m(?P<m>\d+)n8k(?P<k>\d+))\.row\.col(?P<satfinite>\.satfinite)?"
    r"\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)\.(?P<c>\w+)(?P<bitwise>\.(xor|and)\.popc)?(?P<rounding>\.rn)?"
)


@dataclass(frozen=True)
class Multiplication:
    """A form of `mma.sync`: rows and depth, types of A, B and of C and D, `operation` "xor" or "and" of single bits."""

    m: int
    k: int
    a: str
    b: str
    result: str
    satfinite: bool = False
    operation: str = ""

    @property
    def family(self) -> str:
        """Which arithmetic: a floating-point format, "fp8", or integers by width."""
        return _FAMILIES[self.a]


@functools.cache
def parse_multiplication(opcode: str) -> Multiplication | None:
    """The form that a full opcode names; None where this machine has no such form."""
    match = _FORM.fullmatch(opcode)
    if match is None or match["a"] not in _FAMILIES or match["b"] not in _FAMILIES:
        return None
    family = _FAMILIES[match["a"]]
    fits = (
        _FAMILIES[match["b"]] == family
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


@warp_operation("mma")
def multiply(warps: Warps) -> None:
    """Every form of `mma.sync.aligned` but sparse and block-scaled ones."""
    instruction = warps.instruction
    form = parse_multiplication(instruction.full_opcode)
    if form is None:
        raise UnsupportedInstruction(instruction, _why(instruction))
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
        warps.wave.tensor_core_sm or warps.wave.program.module.sm,
    )
    elements = np.empty((len(product), len(order)), np.uint64)
    elements[:, order] = product.reshape(elements.shape)
    per = max(1, 32 // result_bits)
    write_registers(warps, d, pack(elements.reshape(len(product), -1, per, WARP), result_bits))


def _why(instruction: Instruction) -> str:
    if "sp" in instruction.modifiers or any(word.startswith("sp::") for word in instruction.modifiers):
        return "sparse matrices"
    if "block_scale" in instruction.modifiers or any(word.startswith("kind") for word in instruction.modifiers):
        return "block-scaled and sub-byte floating-point matrices"
    return "no such shape and types"


def _matrix(warps: Warps, operand: Operand, order: Array, bits: int) -> Array:
    """uint64 elements (w, rows x columns) of the matrix that a vector operand spreads over the lanes."""
    elements = unpack(read_registers(warps, operand, max(32, bits)), bits)
    return elements.reshape(-1, len(order)).take(order, axis=1)


def compute(form: Multiplication, a: Array, b: Array, c: Array, sm: int) -> Array:
    """Bits of D (w, m, n) from the bits of A (w, m, k), B (w, k, n), C (w, m, n), as tensor cores of `sm` round."""
    if form.family == "f64":  # a chain of fused multiply-adds over k
        for index in range(a.shape[2]):
            left, right = np.broadcast_arrays(a[:, :, index, None], b[:, index, None])
            sums = fused_multiply_add(*(bits.view(np.float64) for bits in (left, right, c))).view(np.uint64)
            c = _with_nan(sums, (left, c, right)) if _is_nan(sums).any() else sums
        return c
    if form.result == "s32":
        return _multiply_integers(form, a, b, c)
    inputs, result = (FORMATS[form.a], FORMATS[form.b]), FORMATS[form.result]
    return tensor_core.multiply(a, b, c, inputs, result, tensor_core.tensor_core_of(sm))


def _with_nan(sums: Array, sources: tuple[Array, ...]) -> Array:
    """A NaN is handed on quieted, that of the last source first; one that arises is 0xfff8 << 48."""
    sums = np.where(_is_nan(sums), np.uint64(0xFFF8 << 48), sums)
    for source in sources:
        sums = np.where(_is_nan(source), source | np.uint64(1 << 51), sums)
    return sums


def _is_nan(bits: Array) -> Array:
    nan: Array = np.isnan(bits.view(np.float64))
    return nan


def _multiply_integers(form: Multiplication, a: Array, b: Array, c: Array) -> Array:
    """Exact sums (float32 holds them: at most 64 products below 2^16), then wrapped or clamped to 32 bits."""
    left, right = (_signed(bits, name).astype(np.float32) for bits, name in ((a, form.a), (b, form.b)))
    products = left @ right
    if form.operation == "xor":
        products = left.sum(axis=2)[:, :, None] + right.sum(axis=1)[:, None] - 2 * products
    total = c.astype(np.uint32).view(np.int32).astype(np.int64) + products.astype(np.int64)
    if form.satfinite:
        total = total.clip(-(2**31), 2**31 - 1)
    return total.view(np.uint64) & np.uint64(0xFFFF_FFFF)


def _signed(bits: Array, name: str) -> Array:
    values = bits.astype(np.int32)
    width = bits_of(name)
    return values - ((values >> (width - 1)) << width) if name.startswith("s") else values
