"""The values of one block's threads at a given step of the loops that count with literals."""

from __future__ import annotations

from collections.abc import Iterable

from cutesmith.compiling.engines.thread_values import Held, ThreadValues, Value
from cutesmith.emulator.program.basic_blocks import Branch, Program
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.recording.host_calls import Triple
from cutesmith.recording.sessions import Launch

_MOST_STEPS = 64
_COMPARISONS = ("ne", "lt", "lo", "gt", "hi", "ge", "hs", "eq")


class LoopSteps(ThreadValues):
    """As `ThreadValues`, but a register that a loop adds a constant to has its value at step number `step`.

    Where it enters its loop with what another loop counts, that one is at its first step.
    """

    def __init__(self, program: Program, launch: Launch, block: Triple, step: int = 0) -> None:
        super().__init__(program, launch, block)
        self._plain, self._step = ThreadValues(program, launch, block), step
        self._first: LoopSteps = LoopSteps(program, launch, block) if step else self

    def counts(self, name: str) -> tuple[Instruction, int] | None:
        """How a register enters its loop, and what each step adds to it; None for any other register."""
        definitions = self._definitions.get(name, [])
        if len(definitions) < 2 or any(definition.guard is not None for definition in definitions):
            return None
        entering, added = list[Instruction](), set[int]()
        for definition in definitions:
            held = self._plain._result(name, definition)
            if isinstance(held, Value) and held.terms == ((name, 1),) and held.one is not None:
                added.add(held.one)
            else:
                entering.append(definition)
        return (entering[0], added.pop()) if len(entering) == len(added) == 1 else None

    def steps(self, register: str) -> int | None:
        """How many steps a loop makes that goes on while a comparison of its counter with a literal holds."""
        definitions = self._definitions.get(register, [])
        if len(definitions) != 1 or definitions[0].opcode != "setp" or definitions[0].modifiers[0] not in _COMPARISONS:
            return None
        counter, bound = (self._plain.number(operand) for operand in definitions[0].operands[1:3])
        if len(counter.terms) != 1 or counter.terms[0][1] != 1 or not bound.whole or bound.one is None:
            return None
        found = self.counts(counter.terms[0][0])
        start = self._result(counter.terms[0][0], found[0]) if found else None
        if found is None or not found[1] or not isinstance(start, Value) or not start.whole or start.one is None:
            return None
        return max((bound.one - start.one) // found[1], 1)

    def _defined(self, name: str) -> Held:
        found = self.counts(name)
        held = self._first._result(name, found[0]) if found else None
        if found is None or not isinstance(held, Value):
            return super()._defined(name)
        return Value(held.known + self._step * found[1], held.terms)


def steps_of(program: Program, values: LoopSteps, loop: Iterable[int]) -> range:
    """The steps of a loop, given as its basic blocks: all where it counts to a literal, else the first alone."""
    ends = [program.basic_blocks[number].end for number in loop]
    counted = {values.steps(end.guard.register) for end in ends if isinstance(end, Branch)}
    known = [count for count in counted if count is not None]
    return range(min(known[0], _MOST_STEPS)) if len(known) == 1 else range(1)
