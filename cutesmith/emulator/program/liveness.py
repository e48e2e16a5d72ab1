"""Which registers are live where, and what each region loads from and stores to the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import compress
from operator import or_

from cutesmith.emulator.instructions.roles import reads, writes
from cutesmith.emulator.program.basic_blocks import BasicBlock, Branch, Region, SuspensionPoint, Switch
from cutesmith.emulator.program.control_flow import inner_successors, successors
from cutesmith.emulator.ptx.syntax import Instruction

Edge = tuple[int, int]
_DIGITS = bytes(byte & 1 for byte in range(256))  # "0" and "1" to 0 and 1


class Numbering:
    """Sets of registers as Python integers: union and intersection of thousands of names in nanoseconds."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._names: list[str] = []
        self._sets: dict[int, frozenset[str]] = {}

    def mask(self, names: Iterable[str]) -> int:
        """The set of these registers."""
        mask = 0
        for name in names:
            if name not in self._bits:
                self._bits[name] = 1 << len(self._names)
                self._names.append(name)
            mask |= self._bits[name]
        return mask

    def names(self, mask: int) -> frozenset[str]:
        """The registers of a set."""
        found = self._sets.get(mask)
        if found is None:
            found = self._sets[mask] = frozenset(self.ordered(mask))
        return found

    def ordered(self, mask: int) -> list[str]:
        """The registers of a set, in the order of their first use."""
        return list(compress(self._names, f"{mask:b}"[::-1].encode().translate(_DIGITS)))


@dataclass(frozen=True)
class Effect:
    """What a basic block does: reads before it writes, may write, always writes (bit sets)."""

    reads: int
    writes: int
    kills: int


class Liveness:
    """Live registers of every basic block as bit sets: `at_start`, and `at_end` before its suspension point."""

    def __init__(self, basic_blocks: tuple[BasicBlock, ...]) -> None:
        self.numbering = Numbering()
        self.effects = [self._effect(basic_block) for basic_block in basic_blocks]
        self._basic_blocks = basic_blocks
        self._point_reads = [self._at_point(basic_block, reads) for basic_block in basic_blocks]
        self._point_writes = [self._at_point(basic_block, writes) for basic_block in basic_blocks]
        self.at_start = [0] * len(basic_blocks)
        self.at_end = [0] * len(basic_blocks)
        self._solve()

    def point_operands(self, basic_block: int) -> int:
        """Registers that the suspension point at the end of a basic block reads or writes."""
        return self._point_reads[basic_block] | self._point_writes[basic_block]

    def _at_point(self, basic_block: BasicBlock, role: Callable[[Instruction], Iterator[str]]) -> int:
        end = basic_block.end
        return self.numbering.mask(role(end.instruction)) if isinstance(end, SuspensionPoint) else 0

    def _effect(self, basic_block: BasicBlock) -> Effect:
        first_reads = may = always = 0
        mask = self.numbering.mask
        for instruction in basic_block.instructions:
            first_reads |= mask(reads(instruction)) & ~always
            written = mask(writes(instruction))
            may |= written
            if instruction.guard is None:
                always |= written
        if isinstance(basic_block.end, Branch):
            first_reads |= mask((basic_block.end.guard.register,)) & ~always
        elif isinstance(basic_block.end, Switch):
            first_reads |= mask((basic_block.end.register.name,)) & ~always
        return Effect(first_reads, may, always)

    def _solve(self) -> None:
        sources: list[list[int]] = [[] for _ in self._basic_blocks]
        for basic_block in self._basic_blocks:
            for following in successors(basic_block.end):
                sources[following].append(basic_block.number)
        waiting = list(range(len(self._basic_blocks)))
        queued = set(waiting)
        while waiting:
            number = waiting.pop()
            queued.discard(number)
            live = 0
            for following in successors(self._basic_blocks[number].end):
                live |= self.at_start[following]
            live = live & ~self._point_writes[number] | self._point_reads[number]
            self.at_end[number] = live
            effect = self.effects[number]
            live = effect.reads | live & ~effect.kills
            if live != self.at_start[number]:
                self.at_start[number] = live
                fresh = [source for source in sources[number] if source not in queued]
                queued.update(fresh)
                waiting += fresh


def back_edges(basic_blocks: tuple[BasicBlock, ...], roots: Iterable[int]) -> frozenset[Edge]:
    """Edges to a basic block that a depth-first search has not left yet: every cycle in a region has one."""
    found: set[Edge] = set()
    state = [0] * len(basic_blocks)  # 1: on the path, 2: left
    for root in roots:
        path = [(root, iter(inner_successors(basic_blocks[root].end)))] if state[root] == 0 else []
        state[root] = max(state[root], 1)
        while path:
            number, rest = path[-1]
            following = next(rest, None)
            if following is None:
                state[number] = 2
                path.pop()
            elif state[following] == 1:
                found.add((number, following))
            elif state[following] == 0:
                state[following] = 1
                path.append((following, iter(inner_successors(basic_blocks[following].end))))
    return frozenset(found)


class Regions:
    """Makes the regions of a program."""

    def __init__(self, basic_blocks: tuple[BasicBlock, ...], liveness: Liveness, back: frozenset[Edge]) -> None:
        self._basic_blocks, self._liveness = basic_blocks, liveness
        self._back: dict[int, list[int]] = {}
        for source, target in sorted(back):
            self._back.setdefault(source, []).append(target)

    def region(self, entry: int) -> Region:
        """What runs from `entry` to the next suspension points."""
        members = self._members(entry)
        written = self._written(members)
        stores: dict[int, int] = {}
        for number in members:
            if isinstance(self._basic_blocks[number].end, SuspensionPoint):
                stores[number] = self._liveness.at_end[number] & written[number]
            elif number in self._back:
                live = reduce(or_, (self._liveness.at_start[target] for target in self._back[number]))
                stores[number] = live & written[number]
        names = self._liveness.numbering.names
        return Region(
            entry,
            tuple(members),
            names(self._loads(entry, members, stores)),
            {number: names(mask) for number, mask in stores.items()},
            frozenset((number, target) for number in members for target in self._back.get(number, ())),
        )

    def _members(self, entry: int) -> list[int]:
        found, waiting = {entry}, [entry]
        while waiting:
            for number in inner_successors(self._basic_blocks[waiting.pop()].end):
                if number not in found:
                    found.add(number)
                    waiting.append(number)
        return sorted(found)

    def _written(self, members: list[int]) -> dict[int, int]:
        """What may have been written at the end of each basic block."""
        written = {number: self._liveness.effects[number].writes for number in members}
        changed = len(members) > 1
        while changed:
            changed = False
            for number in members:
                for following in inner_successors(self._basic_blocks[number].end):
                    merged = written[following] | written[number]
                    changed |= merged != written[following]
                    written[following] = merged
        return written

    def _loads(self, entry: int, members: list[int], stores: dict[int, int]) -> int:
        """What is read, or stored unwritten on some path, before the region writes it."""
        live = dict.fromkeys(members, 0)
        changed = True
        while changed:
            changed = False
            for number in reversed(members):
                after = stores.get(number, 0)
                for following in inner_successors(self._basic_blocks[number].end):
                    after |= live[following]
                effect = self._liveness.effects[number]
                before = effect.reads | after & ~effect.kills
                changed |= before != live[number]
                live[number] = before
        return live[entry]
