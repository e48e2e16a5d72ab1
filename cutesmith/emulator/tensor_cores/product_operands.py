"""The operands of a `tcgen05.mma` by name, which depend on its form."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.ptx.syntax import Address, Immediate, Instruction, Operand, Vector
from cutesmith.emulator.tensor_cores.instruction_descriptors import ProductForm


@dataclass(frozen=True)
class ProductOperands:
    """`enable`: whether D is added. `metadata`: of a sparse A. `scales`: the factors of A and of B.

    `disabled`: masks of lanes of D that stay. `shift`: D is added times 2^-shift. `mask`: a zero-column mask.
    """

    d: Address
    a: Operand
    b: Operand
    descriptor: Operand
    enable: Operand
    metadata: Address | None = None
    scales: tuple[Address, Address] | None = None
    disabled: Vector | None = None
    shift: int = 0
    mask: Operand | None = None

    @classmethod
    def of(cls, instruction: Instruction, form: ProductForm) -> ProductOperands:
        """Raises UnsupportedInstruction where an address is not in brackets or an operand is missing."""
        rest = list(instruction.operands)

        def address() -> Address:
            operand = rest.pop(0)
            if not isinstance(operand, Address):
                raise UnsupportedInstruction(instruction, "an address is not in brackets")
            return operand

        try:
            d, a, b = address(), rest.pop(0), rest.pop(0)
            metadata = address() if form.sparse else None
            descriptor = rest.pop(0)
            scales = (address(), address()) if form.block else None
            disabled = rest.pop(0) if isinstance(rest[0], Vector) else None
            enable = rest.pop(0)
        except IndexError:
            raise UnsupportedInstruction(instruction, "operands are missing") from None
        assert disabled is None or isinstance(disabled, Vector)
        last = rest[0] if rest else None
        mask = last if form.stationary else None
        shift = last.value if isinstance(last, Immediate) and not form.stationary else 0
        return cls(d, a, b, descriptor, enable, metadata, scales, disabled, shift, mask)
