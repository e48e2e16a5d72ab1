"""Which threads may come to an instruction, and which instructions lie between two others."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

import numpy as np

from cutesmith.compiling.engines.thread_values import ThreadValues, Value
from cutesmith.emulator.instructions.roles import reads, writes
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.program.basic_blocks import Branch, Program
from cutesmith.emulator.program.control_flow import successors
from cutesmith.emulator.ptx.syntax import Instruction, Register, SpecialRegister, parts

_VARIES = frozenset(("elect", "atom", "vote", "match", "activemask"))


@dataclass(frozen=True)
class Place:
    """An instruction by its basic block and its index there."""

    basic_block: int
    index: int


class Reach:
    """The threads of a block over the control flow of a kernel; a branch that is not known goes both ways."""

    def __init__(self, program: Program, values: ThreadValues) -> None:
        self._program, self._values = program, values
        self._blocks = program.basic_blocks
        self._edges = {block.number: successors(block.end) for block in self._blocks}
        self._at_start = self._spread()
        self._tainted = self._varying()
        self._splits = self._splitting()

    def threads(self, place: Place) -> Array:
        """Those that may execute the instruction, bool (threads,)."""
        instruction = self._blocks[place.basic_block].instructions[place.index]
        found: Array = self._at_start[place.basic_block]
        if instruction.guard is None:
            return found
        truth = self._values.truth(instruction.guard.register)
        return found & ~(truth.yes if instruction.guard.negated else truth.no)

    def before(self, place: Place, waits: Iterable[Place]) -> Array:
        """Those that may execute the instruction without having passed one of these waits, bool (threads,)."""
        shut = {wait.basic_block: wait for wait in waits}
        at_start = self._spread(shut)
        earlier = shut.get(place.basic_block)
        if earlier is not None and earlier.index < place.index:
            return np.zeros(self._values.threads, bool)
        found: Array = self.threads(place) & at_start[place.basic_block]
        return found

    def blocks_until_over(self, wait: Place) -> bool:
        """Whether the wait is repeated until it succeeds: its basic block ends in a branch back on its result."""
        block, instruction = self._blocks[wait.basic_block], self._instruction(wait)
        end, result = block.end, instruction.operands[0]
        if not isinstance(end, Branch) or not isinstance(result, Register):
            return False
        if instruction.guard is not None or end.guard.register != result.name:
            return False
        number = end.taken if end.guard.negated else end.otherwise
        while number != wait.basic_block:
            following = self._edges[number]
            if self._blocks[number].instructions or len(following) != 1:
                return False
            (number,) = following
        return True

    def together(self, place: Place) -> bool:
        """Whether lanes of a warp that may come there come at once: no unknown branch parts them."""
        guard = self._instruction(place).guard
        if guard is not None and not self._is_known(guard.register):
            return False
        parting = (Place(number, len(self._blocks[number].instructions)) for number in self._splits)
        return not any(self.leads(start, place) and self.avoids(start, (), (place,)) for start in parting)

    def is_uniform(self, atom: str) -> bool:
        """Whether an atom of a value is surely the same in all lanes of a warp."""
        return atom not in self._tainted and not atom.startswith(("%tid", "%laneid"))

    def always(self, place: Place) -> bool:
        """Whether the instruction has no guard that is unknown."""
        guard = self._instruction(place).guard
        return guard is None or self._is_known(guard.register)

    def _instruction(self, place: Place) -> Instruction:
        return self._blocks[place.basic_block].instructions[place.index]

    def leads(self, start: Place, goal: Place, without: Iterable[Place] = ()) -> bool:
        """Whether an elected thread can come from one to the other without passing some places."""
        return self.avoids(start, (goal,), without, ends=False)

    def avoids(self, start: Place, goals: Iterable[Place], passing: Iterable[Place], *, ends: bool = True) -> bool:
        """Whether an elected thread can come from `start` to a goal, or (`ends`) to the end, around `passing`."""
        goal_places, shut = set(goals), set(passing)
        seen: set[int] = set()
        waiting = [Place(start.basic_block, start.index + 1)]
        while waiting:
            at = waiting.pop()
            block = self._blocks[at.basic_block]
            for index in range(at.index, len(block.instructions)):
                here = Place(at.basic_block, index)
                if here in goal_places:
                    return True
                if here in shut:
                    break
            else:
                if not self._edges[at.basic_block] and ends:
                    return True
                for following in self._taken(at.basic_block):
                    if following not in seen:
                        seen.add(following)
                        waiting.append(Place(following, 0))
        return False

    def repeats(self, place: Place, without: Iterable[Place]) -> bool:
        """Whether the instruction can be executed again without passing one of these."""
        return self.leads(place, place, without)

    def _taken(self, number: int) -> tuple[int, ...]:
        """Where an elected thread goes on: the first lane of a warp, where a known branch parts the lanes."""
        end, here = self._blocks[number].end, self._at_start[number]
        if not isinstance(end, Branch) or not here.any():
            return self._edges[number]
        yes, no = self._outcome(end)
        first = here & (np.arange(len(here)) % WARP == 0) if (yes | no)[here].all() else here
        first = first if first.any() else here
        ways = ((end.taken, not no[first].all()), (end.otherwise, not yes[first].all()))
        return tuple(following for following, open_ in ways if open_)

    def _outcome(self, end: Branch) -> tuple[Array, Array]:
        """For which threads a branch is surely taken, and surely not."""
        truth = self._values.truth(end.guard.register)
        return (truth.no, truth.yes) if end.guard.negated else (truth.yes, truth.no)

    def _spread(self, shut: Container[int] = ()) -> dict[int, Array]:
        """The threads that may come to each basic block, without passing through those that are `shut`."""
        count = self._values.threads
        found = {block.number: np.zeros(count, bool) for block in self._blocks}
        found[0] = np.ones(count, bool)
        waiting = [0]
        while waiting:
            number = waiting.pop()
            if number in shut:
                continue
            for following, threads in self._leaving(number, found[number]):
                if (threads & ~found[following]).any():
                    found[following] = found[following] | threads
                    waiting.append(following)
        return found

    def _leaving(self, number: int, threads: Array) -> list[tuple[int, Array]]:
        end = self._blocks[number].end
        if not isinstance(end, Branch):
            return [(following, threads) for following in self._edges[number]]
        yes, no = self._outcome(end)
        return [(end.taken, threads & ~no), (end.otherwise, threads & ~yes)]

    def _is_known(self, register: str) -> bool:
        truth = self._values.truth(register)
        return bool((truth.yes | truth.no).all())

    def _splitting(self) -> tuple[int, ...]:
        """Basic blocks that end in an unknown branch which may part the lanes of a warp."""
        ends = ((block.number, block.end) for block in self._blocks)
        return tuple(
            number
            for number, end in ends
            if isinstance(end, Branch)
            and end.guard.register in self._tainted
            and not self._is_known(end.guard.register)
        )

    def _varying(self) -> set[str]:
        """Registers that may differ between lanes: they come from a thread's number, from what it loads, …"""
        found: set[str] = set()
        before = -1
        while before != len(found):
            before = len(found)
            for instruction in self._program.instructions:
                if self._varies(instruction, found):
                    found.update(name for name in writes(instruction) if not self._shared(name))
        return found

    def _varies(self, instruction: Instruction, tainted: set[str]) -> bool:
        words = instruction.modifiers
        if instruction.opcode in _VARIES or (instruction.opcode == "ld" and words[:1] != ("param",)):
            return True
        if any(name in tainted for name in reads(instruction)):
            return True
        special = (p for operand in instruction.operands for p in parts(operand) if isinstance(p, SpecialRegister))
        return any(register.name.startswith(("%tid", "%laneid")) for register in special)

    def _shared(self, name: str) -> bool:
        """Whether a register is known to be the same in all lanes of a warp."""
        held = self._values.held(Register(name))
        if not isinstance(held, Value) or not held.whole:
            return False
        first = np.arange(len(held.known)) // WARP * WARP
        return bool((held.known == held.known[first]).all())
