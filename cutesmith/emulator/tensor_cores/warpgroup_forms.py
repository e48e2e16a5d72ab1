"""The forms of `wgmma.mma_async`: shapes, types and operands (PTX ISA, "wgmma.mma_async")."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Operand, Vector, bits_of
from cutesmith.emulator.tensor_cores.descriptors import Major, OperandTile
from cutesmith.emulator.tensor_cores.multiplication import FAMILIES, Multiplication
from cutesmith.emulator.tensor_cores.sparsity import selectors

ROWS = 64
"""Rows of A, C and D: 16 for each warp of a warpgroup."""
DEPTH_BITS = 256
"""Bits of a row of A that one instruction multiplies, of every type: half of k where A is sparse."""

_FORM = re.compile(
    r"wgmma\.mma_async(?P<sparse>\.sp)?\.sync\.aligned\.m64n(?P<n>\d+)k(?P<k>\d+)(?P<satfinite>\.satfinite)?"
    r"\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)(?P<bitwise>\.and\.popc)?"
)
_RESULTS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "fp8": ("f16", "f32"), "8-bit": ("s32",), "b1": ("s32",),
}  # fmt: skip
_FLOAT_COLUMNS = frozenset(range(8, 257, 8))
_INTEGER_COLUMNS = frozenset((8, 24, *range(16, 257, 16)))


@dataclass(frozen=True)
class WarpgroupForm:
    """A form as its opcode names it, and how many immediates follow scale-d: signs, then transposition bits."""

    product: Multiplication

    @property
    def negates(self) -> bool:
        """Whether signs of A and B are operands: of floating-point types."""
        return self.product.result != "s32"

    @property
    def transposes(self) -> bool:
        """Whether transposition bits are operands: of 16-bit types."""
        return self.product.family in ("f16", "bf16")

    @property
    def result_registers(self) -> int:
        """Registers of D in each thread."""
        return self.product.n * ROWS // 128 * bits_of(self.product.result) // 32


@dataclass(frozen=True)
class WarpgroupMultiply:
    """An instruction, its operands sorted: `a` is a vector of registers or the register of a descriptor.

    `scale_d` is a predicate (or a literal). `negate_a`, `negate_b`: whether products are negated. `tile_a`, `tile_b`:
    what the descriptors describe. `metadata`, `selector`: of a sparse A.
    """

    form: WarpgroupForm
    d: Vector
    a: Operand
    b: Operand
    scale_d: Operand
    negate_a: bool
    negate_b: bool
    tile_a: OperandTile
    tile_b: OperandTile
    metadata: Operand | None = None
    selector: int = 0

    @property
    def a_in_registers(self) -> bool:
        """Whether A comes from registers."""
        return isinstance(self.a, Vector)


@functools.cache
def parse_form(opcode: str) -> WarpgroupForm | None:
    """The form that a full opcode names; None where there is no such form."""
    match = _FORM.fullmatch(opcode)
    if match is None or match["a"] not in FAMILIES or match["b"] not in FAMILIES:
        return None
    family, n, k, sparse = FAMILIES[match["a"]], int(match["n"]), int(match["k"]), match["sparse"] is not None
    fits = (
        family in _RESULTS
        and FAMILIES[match["b"]] == family
        and (match["a"] == match["b"] or family in ("fp8", "8-bit"))
        and match["d"] in _RESULTS[family]
        and k * bits_of(match["a"]) == DEPTH_BITS * (2 if sparse else 1)
        and not (sparse and family == "b1")
        and n in (_INTEGER_COLUMNS if match["d"] == "s32" else _FLOAT_COLUMNS)
        and (match["satfinite"] is None or family == "8-bit")
        and (match["bitwise"] is not None) == (family == "b1")
    )
    if not fits:
        return None
    satfinite, operation = match["satfinite"] is not None, "and" if family == "b1" else ""
    product = Multiplication(ROWS, k, match["a"], match["b"], match["d"], satfinite, operation, n, sparse)
    return WarpgroupForm(product)


def parse_multiply(instruction: Instruction) -> WarpgroupMultiply:
    """A `wgmma.mma_async`, read; raises UnsupportedInstruction by name."""
    form = parse_form(instruction.full_opcode)
    if form is None:
        raise UnsupportedInstruction(instruction, "no such shape and types")
    d, a, b, *rest = instruction.operands
    metadata, selector = _sparse_operands(instruction, form, rest) if form.product.sparse else (None, 0)
    scale_d, *literals = rest
    in_registers = isinstance(a, Vector)
    expected = 2 * form.negates + (2 - in_registers) * form.transposes
    values = [literal.value for literal in literals if isinstance(literal, Immediate)]
    if not isinstance(d, Vector) or len(values) != len(literals) or len(values) != expected:
        raise UnsupportedInstruction(instruction, f"{expected} constants follow the predicate of the accumulator")
    if len(d.elements) != form.result_registers or (isinstance(a, Vector) and len(a.elements) != 4):
        raise UnsupportedInstruction(instruction, f"D has {form.result_registers} registers, A 4")
    signs, transposed = values[: 2 * form.negates], values[2 * form.negates :]
    if set(signs) - {1, -1} or set(transposed) - {0, 1}:
        raise UnsupportedInstruction(instruction, "signs are 1 or -1, transposition bits 0 or 1")
    majors = [Major(bit) for bit in transposed]
    major_a, major_b = ([Major.K] * (2 - len(majors)) + majors)[:2]
    product = form.product
    negative = [sign != 1 for sign in signs] or [False, False]
    return WarpgroupMultiply(
        form, d, a, b, scale_d, negative[0], negative[1],
        OperandTile(ROWS, product.stored, bits_of(product.a), major_a),
        OperandTile(product.n, product.k, bits_of(product.b), major_b),
        metadata, selector,
    )  # fmt: skip


def _sparse_operands(instruction: Instruction, form: WarpgroupForm, rest: list[Operand]) -> tuple[Operand, int]:
    """Take metadata and sparsity selector from the operands that follow B."""
    metadata, selector = rest.pop(0), rest.pop(0)
    known = selectors(form.product.k, bits_of(form.product.a))
    if not isinstance(selector, Immediate) or selector.value not in known:
        raise UnsupportedInstruction(instruction, f"the sparsity selector is a constant below {len(known)}")
    return metadata, selector.value
