"""Products and sums that the assembler fuses: `mul` and `add` without a rounding modifier may become one `fma`.

The PTX manual leaves it to the optimiser. A GPU therefore rounds once where PTX, read literally, rounds twice (a
softmax of float32 differs by 11 units in the last place). `add.rn` and `mul.rn` are never fused. What ptxas 13.0 does,
seen in its machine code (tests/emulator/program/test_contraction.py asks it again) and in the results of an H100:

- A product is fused with all its uses or with none: every use must be a sum, and one term of it alone.
- The uses are in the block of the product; a product with a constant or a parameter may be used in any block.
- Of two products in one sum the one without other uses is fused, else the first; the other is not fused anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cutesmith.emulator.instructions.roles import reads, writes
from cutesmith.emulator.ptx.syntax import Function, Immediate, Instruction, Label, Register, with_body

FUSED = "fused"
"""The opcode of a contraction: `fused.add d, a, b, c` is a*b + c, `.subtract_addend` a*b - c, and
`.subtract_product` c - a*b."""
_TYPES = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
_ENDS_A_BLOCK = ("bra", "brx", "ret", "exit", "call")


@dataclass(frozen=True)
class _Placed:
    """An instruction, where it is, and its basic block."""

    instruction: Instruction
    place: int
    block: int

    @property
    def is_sum(self) -> bool:
        """Whether it may take a product, `.sat` or not."""
        return self.instruction.opcode in ("add", "sub") and _is_plain(_unsaturated(self.instruction))


def contracted(function: Function) -> Function:
    """The function with its products fused into the sums that use them, where ptxas does so."""
    everything = list(_placed(function))
    uses: dict[str, list[_Placed]] = defaultdict(list)
    written: dict[str, list[int]] = defaultdict(list)
    for one in everything:
        for name in reads(one.instruction):
            uses[name].append(one)
        for name in writes(one.instruction):
            written[name].append(one.place)
    constants = {name for one in everything for name in _constants(one.instruction) if len(written[name]) == 1}
    products = {
        name: one
        for one in everything
        if _is_product(one.instruction)
        and len(written[name := next(iter(writes(one.instruction)))]) == 1
        and _is_fused(one, name, uses[name], written, constants)
    }
    fused: dict[int, Instruction] = {}
    for one in everything:
        terms = [name for name in _terms(one.instruction) if name in products] if one.is_sum else []
        if len(terms) == 2:
            loser = terms[0] if len(uses[terms[0]]) > 1 == len(uses[terms[1]]) else terms[1]
            _give_up(loser, products, uses, fused)
            terms.remove(loser)
        if terms:
            fused[one.place] = _fused(one.instruction, terms[0], products[terms[0]].instruction)
    gone = {one.place for one in products.values()}
    body = (fused.get(place, statement) for place, statement in enumerate(function.body) if place not in gone)
    return with_body(function, body) if gone else function


def _placed(function: Function) -> Iterator[_Placed]:
    block = 0
    for place, statement in enumerate(function.body):
        if isinstance(statement, Label):
            block += 1
            continue
        yield _Placed(statement, place, block)
        block += statement.opcode in _ENDS_A_BLOCK


def _is_plain(modifiers: tuple[str, ...]) -> bool:
    """Whether modifiers are those of arithmetic that may be contracted."""
    return modifiers[-1:] != () and modifiers[-1] in _TYPES and modifiers[:-1] in ((), ("ftz",))


def _unsaturated(instruction: Instruction) -> tuple[str, ...]:
    return tuple(word for word in instruction.modifiers if word != "sat")


def _is_product(instruction: Instruction) -> bool:
    return instruction.opcode == "mul" and instruction.guard is None and _is_plain(instruction.modifiers)


def _constants(instruction: Instruction) -> Iterator[str]:
    """The registers that a `mov` sets to a number, or a load to a parameter of the kernel."""
    moves = instruction.opcode == "mov" and isinstance(instruction.operands[1], Immediate)
    loads = instruction.opcode == "ld" and instruction.modifiers[0] == "param"
    if instruction.guard is None and (moves or loads):
        yield from writes(instruction)


def _terms(instruction: Instruction) -> list[str]:
    return [operand.name for operand in instruction.operands[1:] if isinstance(operand, Register)]


def _is_fused(
    product: _Placed, name: str, uses: list[_Placed], written: dict[str, list[int]], constants: set[str]
) -> bool:
    """Whether every use is a sum that can take the product, whose factors are what they were."""
    instruction, factors = product.instruction, {*reads(product.instruction)}
    sums = all(
        use.is_sum
        and _terms(use.instruction).count(name) == 1
        and _unsaturated(use.instruction) == instruction.modifiers
        for use in uses
    )
    if not uses or not sums or any(use.instruction.guard and use.instruction.guard.register == name for use in uses):
        return False
    if all(use.block == product.block and use.place > product.place for use in uses):
        last = max(use.place for use in uses)
        return not any(product.place < place < last for factor in factors for place in written[factor])
    scaled = any(isinstance(operand, Immediate) for operand in instruction.operands[1:]) or bool(factors & constants)
    return scaled and all(len(written[factor]) <= 1 for factor in factors)


def _give_up(
    name: str, products: dict[str, _Placed], uses: dict[str, list[_Placed]], fused: dict[int, Instruction]
) -> None:
    """The product stays: sums that have taken it already are as they were."""
    del products[name]
    for use in uses[name]:
        fused.pop(use.place, None)


def _fused(instruction: Instruction, name: str, product: Instruction) -> Instruction:
    """A sum with its term of that name replaced by the product."""
    target, *terms = instruction.operands
    place = next(place for place, term in enumerate(terms) if isinstance(term, Register) and term.name == name)
    how = "add" if instruction.opcode == "add" else ("subtract_addend", "subtract_product")[place]
    operands = (target, *product.operands[1:], terms[1 - place])
    return replace(instruction, opcode=FUSED, modifiers=(how, *instruction.modifiers), operands=operands)
