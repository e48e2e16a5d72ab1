"""The values of one block's threads at the first step of every loop, where `ThreadValues` leaves an atom."""

from __future__ import annotations

import numpy as np

from cutesmith.compiling.engines.thread_values import Held, ThreadValues, Truth, Value
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import Address, Operand, Register
from cutesmith.recording.host_calls import Triple
from cutesmith.recording.sessions import Launch

_MOST_FOLLOWED = 20_000  # definitions a launch: loops that feed each other are followed again and again


class NotToldError(Exception):
    """What a register holds was not found out."""


class FirstSteps(ThreadValues):
    """As `ThreadValues`, but a register that a loop goes on from has what it enters the loop with.

    That is the definition that does not come back to the register itself. A register that two paths leave different
    values in stays an atom.
    """

    def __init__(self, program: Program, launch: Launch, block: Triple) -> None:
        super().__init__(program, launch, block)
        self._open: set[str] = set()
        self._followed = 0

    def address(self, operand: Address) -> Value:
        """The address in `[base + offset]`; raises NotToldError where following it goes on and on."""
        try:
            base = self.number(operand.base)
        except RecursionError:
            raise NotToldError from None
        return Value(base.known + operand.offset, base.terms)

    def held(self, operand: Operand) -> Held:
        """What an operand is for each thread; raises NotToldError for a register that is being followed."""
        if isinstance(operand, Register) and operand.name not in self._held:
            name = operand.name
            self._followed += 1
            if name in self._open or self._followed > _MOST_FOLLOWED:
                raise NotToldError
            self._open.add(name)
            try:
                self._held[name] = self._defined(name)
            finally:
                self._open.discard(name)
        return super().held(operand)

    def _defined(self, name: str) -> Held:
        definitions = self._definitions.get(name, [])
        if not definitions or any(definition.guard is not None for definition in definitions):
            return self._atom(name)
        entering = list[Held]()
        for definition in definitions:
            try:
                entering.append(self._result(name, definition) or self._atom(name))
            except NotToldError:
                continue
        if not entering:
            raise NotToldError
        return entering[0] if all(_equal(entering[0], other) for other in entering) else self._atom(name)


def _equal(one: Held, other: Held) -> bool:
    if isinstance(one, Value) and isinstance(other, Value):
        return one.terms == other.terms and np.array_equal(one.known, other.known)
    if isinstance(one, Truth) and isinstance(other, Truth):
        return np.array_equal(one.yes, other.yes) and np.array_equal(one.no, other.no)
    return one is other
