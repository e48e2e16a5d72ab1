"""Products and sums that the assembler fuses: `mul` and `add` without a rounding modifier may become one `fma`.

The PTX manual leaves it to the optimiser. A GPU therefore rounds once where PTX, read literally, rounds twice (a
softmax of float32 differs by 11 units in the last place). `add.rn` and `mul.rn` are never fused. What ptxas 13.0 does,
seen in its machine code (tests/emulator/program/test_contraction.py asks it again) and in the results of an H100:

- A product is fused with all its uses or with none: every use must be a sum, and one term of it alone.
- The uses are in the block of the product; a product with a constant or a parameter may be used in any block.
- Of two products in one sum the one without other uses is fused, else the first; the other is not fused anywhere.
- `neg` of a product is the product with its sign changed: its uses are uses of the product, and it goes where the
  product is fused; not `neg.bf16x2`, and `neg.ftz` only of a float32 product with `.ftz`. `abs`, `xor` are other uses.
- A float32 sum that is compared with 0 by `lt`, `gt`, `ne`, `equ`, `leu` or `geu` becomes a comparison of its terms: a
  product with another use beside is not fused. (`lt` of a difference is that of its terms for infinities too.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cutesmith.emulator.instructions.roles import reads, writes
from cutesmith.emulator.ptx.syntax import Function, Immediate, Instruction, Label, Operand, Register, with_body

FUSED = "fused"
"""The opcode of a contraction: `fused.add d, a, b, c` is a*b + c, `.subtract_addend` a*b - c,
`.subtract_product` c - a*b, and `.subtract_both` -(a*b) - c."""
_NAMES = {
    (False, False): "add",
    (False, True): "subtract_addend",
    (True, False): "subtract_product",
    (True, True): "subtract_both",
}
"""By whether the product and whether the other term is taken away."""
_TYPES = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
_AS_OF_TERMS = ("lt", "gt", "ne", "equ", "leu", "geu")
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


@dataclass(frozen=True)
class _Signed:
    """What a register holds: a product, named by the register that it was written to, or that with its sign changed."""

    product: str
    kind: tuple[str, ...]
    negative: bool = False


def contracted(function: Function) -> Function:
    """The function with its products fused into the sums that use them, where ptxas does so."""
    everything = list(_placed(function))
    written: dict[str, list[int]] = defaultdict(list)
    for one in everything:
        for name in writes(one.instruction):
            written[name].append(one.place)
    signed, negations = _signed(everything, written)
    uses: dict[str, list[_Placed]] = defaultdict(list)
    for one in everything:
        for name in reads(one.instruction) if one.place not in negations else ():
            uses[_product(name, signed)].append(one)
    constants = {name for one in everything for name in _constants(one.instruction) if len(written[name]) == 1}
    compared = _compared_with_zero(everything, written)
    products = {
        name: one
        for one in everything
        if one.place not in negations
        for name in writes(one.instruction)
        if name in signed
        and not (len(uses[name]) > 1 and compared.intersection(use.place for use in uses[name]))
        and _is_fused(one, name, uses[name], written, constants, signed)
    }
    fused: dict[int, Instruction] = {}
    for one in everything:
        terms = [name for name in _terms(one.instruction, signed) if name in products] if one.is_sum else []
        if len(terms) == 2:
            loser = terms[0] if len(uses[terms[0]]) > 1 == len(uses[terms[1]]) else terms[1]
            _give_up(loser, products, uses, fused)
            terms.remove(loser)
        if terms:
            fused[one.place] = _fused(one.instruction, terms[0], products[terms[0]].instruction, signed)
    gone = {one.place for one in products.values()}
    gone |= {place for place, product in negations.items() if product in products}
    body = (fused.get(place, statement) for place, statement in enumerate(function.body) if place not in gone)
    return with_body(function, body) if gone else function


def _signed(everything: list[_Placed], written: dict[str, list[int]]) -> tuple[dict[str, _Signed], dict[int, str]]:
    """The registers that hold a product or its negation, and where the negations of each product are."""
    signed: dict[str, _Signed] = {}
    negations: dict[int, str] = {}
    for one in everything:
        instruction = one.instruction
        if instruction.opcode not in ("mul", "neg") or instruction.guard is not None:
            continue
        target, *sources = (operand.name if isinstance(operand, Register) else "" for operand in instruction.operands)
        source = signed.get(sources[0])
        if len(written[target]) > 1:
            continue
        if instruction.opcode == "mul" and _is_plain(instruction.modifiers):
            signed[target] = _Signed(target, instruction.modifiers)
        elif instruction.opcode == "neg" and source and _folds(instruction.modifiers, source.kind):
            signed[target] = replace(source, negative=not source.negative)
            negations[one.place] = source.product
    return signed, negations


def _folds(negation: tuple[str, ...], product: tuple[str, ...]) -> bool:
    """Whether ptxas changes the sign of a product of that kind in place of such a `neg`."""
    return (negation == product[-1:] and negation != ("bf16x2",)) or negation == product == ("ftz", "f32")


def _product(name: str, signed: dict[str, _Signed]) -> str:
    """The product that a register holds, negated or not; else the register."""
    return signed[name].product if name in signed else name


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


def _constants(instruction: Instruction) -> Iterator[str]:
    """The registers that a `mov` sets to a number, or a load to a parameter of the kernel."""
    moves = instruction.opcode == "mov" and isinstance(instruction.operands[1], Immediate)
    loads = instruction.opcode == "ld" and instruction.modifiers[0] == "param"
    if instruction.guard is None and (moves or loads):
        yield from writes(instruction)


def _compared_with_zero(everything: list[_Placed], written: dict[str, list[int]]) -> set[int]:
    """Where the float32 sums are that become comparisons of their terms."""
    made = {name: one for one in everything for name in writes(one.instruction) if len(written[name]) == 1}
    found = set[int]()
    for one in everything:
        for name in reads(one.instruction) if _tests_against_zero(one.instruction, made) else ():
            made_by = _without_signs(made.get(name), made)
            if made_by and made_by.is_sum and _is_unguarded_float32(made_by.instruction):
                found.add(made_by.place)
    return found


def _without_signs(one: _Placed | None, made: dict[str, _Placed]) -> _Placed | None:
    """What made a value, its sign or the other one."""
    while one and one.instruction.opcode == "neg" and _is_unguarded_float32(one.instruction):
        source = one.instruction.operands[1]
        before = made.get(source.name) if isinstance(source, Register) else None
        one = before if before and before.place < one.place else None
    return one


def _is_unguarded_float32(instruction: Instruction) -> bool:
    return instruction.guard is None and instruction.modifiers == ("f32",)


def _tests_against_zero(instruction: Instruction, made: dict[str, _Placed]) -> bool:
    """Whether an instruction compares a float32 with 0 in a way that holds for the terms of a difference, too."""
    if instruction.opcode != "setp" or instruction.modifiers[-1] != "f32":
        return False
    return instruction.modifiers[0] in _AS_OF_TERMS and any(_is_zero(each, made) for each in instruction.operands)


def _is_zero(operand: Operand, made: dict[str, _Placed]) -> bool:
    """Whether an operand is 0.0 or -0.0, or a register that holds that."""
    moved = made[operand.name].instruction if isinstance(operand, Register) and operand.name in made else None
    if moved and moved.opcode == "mov" and moved.guard is None:
        operand = moved.operands[1]
    return isinstance(operand, Immediate) and operand.value in (0, 1 << 31)


def _terms(instruction: Instruction, signed: dict[str, _Signed]) -> list[str]:
    return [_product(operand.name, signed) for operand in instruction.operands[1:] if isinstance(operand, Register)]


def _is_fused(
    product: _Placed,
    name: str,
    uses: list[_Placed],
    written: dict[str, list[int]],
    constants: set[str],
    signed: dict[str, _Signed],
) -> bool:
    """Whether every use is a sum that can take the product, whose factors are what they were."""
    instruction, factors = product.instruction, {*reads(product.instruction)}
    sums = all(
        use.is_sum
        and _terms(use.instruction, signed).count(name) == 1
        and _unsaturated(use.instruction) == instruction.modifiers
        for use in uses
    )
    if not uses or not sums or any(use.place < product.place for use in uses):
        return False
    if all(use.block == product.block for use in uses):
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


def _fused(instruction: Instruction, name: str, product: Instruction, signed: dict[str, _Signed]) -> Instruction:
    """A sum with its term of that product replaced by the product."""
    target, *terms = instruction.operands
    place, sign = next(
        (place, signed[term.name])
        for place, term in enumerate(terms)
        if isinstance(term, Register) and _product(term.name, signed) == name
    )
    is_difference = instruction.opcode == "sub"
    takes_away = (is_difference and place == 1) != sign.negative, is_difference and place == 0
    operands = (target, *product.operands[1:], terms[1 - place])
    return replace(instruction, opcode=FUSED, modifiers=(_NAMES[takes_away], *instruction.modifiers), operands=operands)
