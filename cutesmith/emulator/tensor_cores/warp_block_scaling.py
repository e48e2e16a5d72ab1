"""`mma.sync` of sm_120a: formats of 8, 6 and 4 bits (`kind::f8f6f4`), and with scale factors (`mxf…`).

PTX ISA, "Block scaling for mma.sync" and "mma"; the places of scale factors are also those of CUTLASS's SM120 traits.
An element of `f8f6f4` kinds takes 8 bits: the lower six of e2m3 and e3m2, bits 2 to 5 of e2m1. The lanes of a quad hold
factors: of A `thread-id` chooses a pair, whose lanes hold those of rows `group` and `group + 8`, of B one lane.
`byte-id` is the first of their bytes. Sums are those of `tcgen05.mma` (block_scaling.py); no such GPU was at hand.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.emitters.formats import E2M1, E4M3, E5M2, Format
from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.machine.suspensions import warp_operation
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.ptx.syntax import Instruction, Operand, Vector
from cutesmith.emulator.tensor_cores.block_scaling import multiply, unpadded
from cutesmith.emulator.tensor_cores.fragments import (
    N,
    fragment_order,
    pack,
    read_registers,
    unpack,
    whole_warps,
    write_registers,
)
from cutesmith.emulator.tensor_cores.instruction_descriptors import E2M3, E3M2, Product, ProductForm

_M = 16
_QUAD = 4
_SMALL = {"e4m3": E4M3, "e5m2": E5M2, "e2m3": E2M3, "e3m2": E3M2, "e2m1": E2M1}
_SCALES: dict[str, dict[str, tuple[str, ...]]] = {
    "mxf8f6f4": {"1X": ("ue8m0",)},
    "mxf4": {"2X": ("ue8m0",)},
    "mxf4nvf4": {"2X": ("ue8m0",), "4X": ("ue4m3", "ue8m0")},
}
"""By kind: how many factors a row has in one product, and their types."""
_KINDS = "{f8f6f4,mxf8f6f4,mxf4,mxf4nvf4}"
_DIMENSIONS = {"f8f6f4": "m16n8k32", "mxf8f6f4": "m16n8k32", "mxf4": "m16n8k64", "mxf4nvf4": "m16n8k64"}


@dataclass(frozen=True)
class _Scaled:
    """A form: its product, bits that an element takes in a register, scale factors of a row (0: none)."""

    product: Product
    bits: int
    factors: int


@functools.cache
def parse(opcode: str) -> _Scaled | None:
    """The form that a full opcode names, its kind before or behind the shape; None for one that PTX lacks."""
    words = opcode.split(".")[3:]
    kind = next((word.removeprefix("kind::") for word in words if word.startswith("kind::")), "")
    if kind not in _DIMENSIONS:
        return None
    vector = next((word.removeprefix("scale_vec::") for word in words if word.startswith("scale_vec::")), None)
    known = {f"kind::{kind}", _DIMENSIONS[kind], "row", "col", "block_scale", f"scale_vec::{vector}"}
    types, scales = [word for word in words if word not in known], _SCALES.get(kind)
    if {_DIMENSIONS[kind], "row", "col"} - {*words} or (scales is not None) != ("block_scale" in words):
        return None
    scale = types.pop() if scales is not None and len(types) == 5 else ""
    if scales is not None:
        vector = vector or (next(iter(scales)) if len(scales) == 1 else None)
    if (
        len(types) != 4
        or (scales is None) != (vector is None)
        or (scales and scale not in scales.get(vector or "", ()))
    ):
        return None
    result, left, right, addend = types
    narrow = kind.startswith("mxf4")
    formats = {"e2m1": E2M1} if narrow else _SMALL
    if left not in formats or right not in formats or result != addend:
        return None
    if result != "f32" and (scales or result != "f16"):
        return None
    factors = int((vector or "0X")[0])
    depth = 64 if narrow else 32
    form = ProductForm(1, kind, depth // factors if factors else 0)
    product = Product(form, _M, N, formats[left], formats[right], result, fine=scale == "ue4m3")
    return _Scaled(product, 4 if narrow else 8, factors)


def _refuses(instruction: Instruction) -> str | None:
    return None if parse(instruction.full_opcode) else "no such form"


@warp_operation(
    f"mma.sync.aligned.{{m16n8k32,m16n8k64}}.row.col.kind::{_KINDS}",
    f"mma.sync.aligned.kind::{_KINDS}",
    refuses=_refuses,
)
def multiply_scaled(warps: Warps) -> None:
    """`mma.sync…kind::K{.block_scale} d, a, b, c{, scales of a, {byte, thread}, scales of b, {byte, thread}}`."""
    form = parse(warps.instruction.full_opcode)
    assert form is not None
    warps = whole_warps(warps)
    if not len(warps.members):
        return
    d, a, b, c, *rest = warps.instruction.operands
    product, result_bits = form.product, 32 if form.product.result == "f32" else 16
    left = _matrix(warps, a, fragment_order("a", _M, product.depth, form.bits), form.bits, product.a)
    right = _matrix(warps, b, fragment_order("b", product.depth, N, form.bits), form.bits, product.b)
    order = fragment_order("c", _M, N, result_bits)
    addend = _elements(warps, c, order, result_bits).astype(np.uint32)
    scales = _scale_factors(warps, rest, form) if form.factors else None
    if form.factors and scales is None:
        return
    found = np.empty((len(left), _M * N), np.uint64)
    for warp, (one, other, held) in enumerate(zip(left, right, addend, strict=True)):
        mine = None if scales is None else (scales[0][warp], scales[1][warp])
        across = other.reshape(product.depth, N).T
        bits = multiply(product, one.reshape(_M, -1), np.ascontiguousarray(across), held.reshape(_M, N), mine)
        found[warp] = bits.ravel()
    write_registers(warps, d, _packed(found, order, result_bits))


def _packed(values: Array, order: Array, bits: int) -> Array:
    """uint64 registers (w, registers, 32) from elements (w, M x N)."""
    elements = np.empty((len(values), len(order)), np.uint64)
    elements[:, order] = values
    return pack(elements.reshape(len(values), -1, 32 // bits, WARP), bits)


def _elements(warps: Warps, operand: Operand, order: Array, bits: int) -> Array:
    """uint64 elements (w, rows x columns) of a matrix."""
    found = unpack(read_registers(warps, operand), bits)
    elements: Array = found.reshape(-1, len(order)).take(order, axis=1)
    return elements


def _matrix(warps: Warps, operand: Operand, order: Array, bits: int, kind: object) -> Array:
    """Bit patterns of a format from the 8 bits that each may take."""
    assert isinstance(kind, Format)
    held = _elements(warps, operand, order, bits)
    return unpadded(held, kind) if bits == 8 else held.astype(np.uint8)


def _scale_factors(warps: Warps, operands: list[Operand], form: _Scaled) -> tuple[Array, Array] | None:
    """uint8 (w, 16, factors) of A and (w, 8, factors) of B; None and a finding for a selector that PTX lacks."""
    rows, columns, found = np.arange(_M), np.arange(N), []
    for data, selector, pairs in ((operands[0], operands[1], True), (operands[2], operands[3], False)):
        assert isinstance(selector, Vector)
        byte, thread = (int(warps.wave.read(part, warps.members[0, :1], np.uint16)[0]) for part in selector.elements)
        if byte not in range(0, _QUAD, form.factors) or thread not in range(2 if pairs else _QUAD):
            message = f"`{warps.instruction.full_opcode}`: scale factors from byte {byte} of thread {thread} of a quad"
            warps.wave.report(FaultKind.INVALID_OPERAND, message, warps.members[0, :1], warps.instruction)
            return None
        lanes = _QUAD * (rows % N) + 2 * thread + rows // N if pairs else _QUAD * columns + thread
        words = read_registers(warps, data)[:, 0, lanes].astype(np.uint32)
        found.append(np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1, _QUAD)[..., byte : byte + form.factors])  # noqa: E501  # fmt: skip
    return found[0], found[1]
