"""Which registers are live where, and what each region loads from and stores to the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cutesmith.emulator.program.bitsets import Numbering
from cutesmith.emulator.program.control_flow import inner_successors, successors
from cutesmith.emulator.program.pieces import Branch, Piece, Region, Stop, Switch
from cutesmith.emulator.program.roles import reads, writes
from cutesmith.emulator.ptx.syntax import Instruction

Edge = tuple[int, int]


@dataclass(frozen=True)
class Effect:
    """What a piece does: reads before it writes, may write, always writes (bit sets)."""

    reads: int
    writes: int
    kills: int


class Liveness:
    """Live registers of every piece as bit sets: `at_start`, and `at_end` before its stop is executed."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        self.numbering = Numbering()
        self.effects = [self._effect(piece) for piece in pieces]
        self._pieces = pieces
        self._stop_reads = [self._at_stop(piece, reads) for piece in pieces]
        self._stop_writes = [self._at_stop(piece, writes) for piece in pieces]
        self.at_start = [0] * len(pieces)
        self.at_end = [0] * len(pieces)
        self._solve()

    def stop_operands(self, piece: int) -> int:
        """Registers that the stop at the end of a piece reads or writes."""
        return self._stop_reads[piece] | self._stop_writes[piece]

    def _at_stop(self, piece: Piece, role: Callable[[Instruction], Iterator[str]]) -> int:
        return self.numbering.mask(role(piece.end.instruction)) if isinstance(piece.end, Stop) else 0

    def _effect(self, piece: Piece) -> Effect:
        first_reads = may = always = 0
        mask = self.numbering.mask
        for instruction in piece.instructions:
            first_reads |= mask(reads(instruction)) & ~always
            written = mask(writes(instruction))
            may |= written
            if instruction.guard is None:
                always |= written
        if isinstance(piece.end, Branch):
            first_reads |= mask((piece.end.guard.register,)) & ~always
        elif isinstance(piece.end, Switch):
            first_reads |= mask((piece.end.register.name,)) & ~always
        return Effect(first_reads, may, always)

    def _solve(self) -> None:
        sources = _sources(self._pieces)
        waiting = list(range(len(self._pieces)))
        queued = set(waiting)
        while waiting:
            number = waiting.pop()
            queued.discard(number)
            live = 0
            for following in successors(self._pieces[number].end):
                live |= self.at_start[following]
            live = live & ~self._stop_writes[number] | self._stop_reads[number]
            self.at_end[number] = live
            effect = self.effects[number]
            live = effect.reads | live & ~effect.kills
            if live != self.at_start[number]:
                self.at_start[number] = live
                fresh = [source for source in sources[number] if source not in queued]
                queued.update(fresh)
                waiting += fresh


def _sources(pieces: tuple[Piece, ...]) -> list[list[int]]:
    sources: list[list[int]] = [[] for _ in pieces]
    for piece in pieces:
        for following in successors(piece.end):
            sources[following].append(piece.number)
    return sources


def back_edges(pieces: tuple[Piece, ...], roots: Iterable[int]) -> frozenset[Edge]:
    """Edges to a piece that a depth-first search has not left yet: every ring without a stop has at least one."""
    found: set[Edge] = set()
    state = [0] * len(pieces)  # 1: on the path, 2: left
    for root in roots:
        path = [(root, iter(inner_successors(pieces[root].end)))] if state[root] == 0 else []
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
                path.append((following, iter(inner_successors(pieces[following].end))))
    return frozenset(found)


class Regions:
    """Makes the regions of a program."""

    def __init__(self, pieces: tuple[Piece, ...], liveness: Liveness, back: frozenset[Edge]) -> None:
        self._pieces, self._liveness = pieces, liveness
        self._back: dict[int, list[int]] = {}
        for source, target in sorted(back):
            self._back.setdefault(source, []).append(target)

    def region(self, entry: int) -> Region:
        """What runs from `entry` to the next stops."""
        members = self._members(entry)
        stores = self._stores(members)
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
            for number in inner_successors(self._pieces[waiting.pop()].end):
                if number not in found:
                    found.add(number)
                    waiting.append(number)
        return sorted(found)

    def _stores(self, members: list[int]) -> dict[int, int]:
        """Registers live where a lane leaves that the region may have written by then."""
        written = self._written(members)
        return {number: self._live_out(number) & written[number] for number in members if self._leaves(number)}

    def _leaves(self, number: int) -> bool:
        return isinstance(self._pieces[number].end, Stop) or number in self._back

    def _live_out(self, number: int) -> int:
        if isinstance(self._pieces[number].end, Stop):
            return self._liveness.at_end[number]
        live = 0
        for target in self._back[number]:
            live |= self._liveness.at_start[target]
        return live

    def _written(self, members: list[int]) -> dict[int, int]:
        """What may have been written at the end of each piece."""
        written = {number: self._liveness.effects[number].writes for number in members}
        changed = len(members) > 1
        while changed:
            changed = False
            for number in members:
                for following in inner_successors(self._pieces[number].end):
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
                for following in inner_successors(self._pieces[number].end):
                    after |= live[following]
                effect = self._liveness.effects[number]
                before = effect.reads | after & ~effect.kills
                changed |= before != live[number]
                live[number] = before
        return live[entry]
