"""Products and sums that the assembler fuses: `mul` and `add` without a rounding modifier may become one `fma`.

The PTX manual leaves it to the optimiser; ptxas does so wherever the product has no other use. An H200 therefore rounds
once where PTX, read literally, rounds twice (a softmax of float32 differs by 11 units in the last place). `add.rn` and
`mul.rn` are never fused. Seen for f32; f64 is taken to be the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cutesmith.emulator.instructions.roles import reads, writes
from cutesmith.emulator.ptx.syntax import Function, Instruction, Label, Register, with_body

FUSED = "fused"
"""The opcode of a contraction: `fused.add d, a, b, c` is a*b + c, `.subtract_addend` a*b - c, and
`.subtract_product` c - a*b."""
_PLAIN = {("f32",), ("ftz", "f32"), ("f64",)}
_ENDS_A_BLOCK = ("bra", "brx", "ret", "exit", "call")


def contracted(function: Function) -> Function:
    """The function with every product that has one use, in a sum of the same block, fused into that sum."""
    instructions = [statement for statement in function.body if isinstance(statement, Instruction)]
    uses = Counter(name for instruction in instructions for name in reads(instruction))
    definitions = Counter(name for instruction in instructions for name in writes(instruction))
    once = {name for name, count in uses.items() if count == 1 and definitions[name] == 1}
    products: dict[str, Instruction] = {}
    factors: dict[str, frozenset[str]] = {}  # the registers that a product of these reads
    gone: set[int] = set()
    body: list[Instruction | Label] = []
    for statement in function.body:
        if isinstance(statement, Label) or statement.opcode in _ENDS_A_BLOCK:
            products.clear()
            body.append(statement)
            continue
        fused, product = _fuse(statement, products)
        gone |= {id(product)} if product is not None else set()
        body.append(fused)
        for name in writes(statement) if products else ():
            products = {key: other for key, other in products.items() if name not in factors[key]}
        plain = statement.opcode == "mul" and statement.modifiers in _PLAIN and statement.guard is None
        if plain and (name := next(iter(writes(statement)), "")) in once:
            products[name], factors[name] = statement, frozenset(reads(statement))
    return with_body(function, (other for other in body if id(other) not in gone)) if gone else function


def _fuse(instruction: Instruction, products: dict[str, Instruction]) -> tuple[Instruction, Instruction | None]:
    """The sum fused with its first operand that is a product, and that product; else as it was."""
    if instruction.opcode not in ("add", "sub") or instruction.modifiers not in _PLAIN or instruction.guard is not None:
        return instruction, None
    target, *terms = instruction.operands
    for place, term in enumerate(terms):
        product = products.get(term.name) if isinstance(term, Register) else None
        if product is not None and product.modifiers == instruction.modifiers:
            how = "add" if instruction.opcode == "add" else ("subtract_addend", "subtract_product")[place]
            operands = (target, *product.operands[1:], terms[1 - place])
            modifiers = (how, *instruction.modifiers)
            return replace(instruction, opcode=FUSED, modifiers=modifiers, operands=operands), product
    return instruction, None
