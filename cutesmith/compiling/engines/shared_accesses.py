"""What a kernel's own instructions write to shared memory and read from it, beside the global addresses of the data.

Addresses are those of the first block, at the steps of loops that count to a literal, else at the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cutesmith.compiling.engines.loop_steps import LoopSteps, steps_of
from cutesmith.compiling.engines.reach import Place, Reach
from cutesmith.compiling.engines.sites import access_bytes, instructions
from cutesmith.compiling.engines.thread_values import Value
from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.instructions.roles import reads, registers_in, writes
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.control_flow import loops
from cutesmith.emulator.ptx.syntax import Address, Immediate, Instruction
from cutesmith.recording.sessions import Launch

_WRITES = ("st", "stmatrix", "atom", "red", "cp")
_ELEMENTWISE = frozenset("mov cvt add sub mul mad fma neg abs min max ex2 lg2 rcp rsqrt sqrt tanh selp".split())
_LEAST_ROW = 32  # bytes: the shortest row of a swizzle
_SPAN = 1024  # bytes after which every swizzle repeats
_CHUNK = 16  # bytes that swizzles move together
_APART = 1 << 20  # more than the steps of a loop
_SWIZZLES = (Swizzle.B128, Swizzle.B128_ATOM_32B, Swizzle.B64, Swizzle.B32, Swizzle.NONE)


@dataclass(frozen=True, eq=False)
class Moved:
    """Accesses of one instruction: int64 (n,) where in `shared` memory, and where in global memory the same bytes are.

    `shared` is None where that is not known; `there` where the bytes do not come from one place in global memory, or go
    to none. Of global addresses with the same number in `group`, int64 (n,), differences are known.
    """

    instruction: Instruction
    size: int
    shared: Array | None = None
    there: Array | None = None
    group: Array | None = None

    def meets(self, start: int, end: int) -> bool:
        """Whether one of the accesses is to these bytes of shared memory, as far as is known."""
        return self.shared is None or bool(((self.shared < end) & (self.shared + self.size > start)).any())


def followed(moves: Sequence[Moved]) -> tuple[Swizzle, ...]:
    """The swizzles by which rows of global memory would lie in order in shared memory, the widest first.

    Empty where the addresses tell nothing: not known, no rows, or too few of them to tell swizzles apart.
    """
    parts = list[tuple[Array, Array, Array]]()
    for number, move in enumerate(moves, 1):
        if move.shared is None or move.there is None or move.group is None:
            return ()
        parts.append((move.shared, move.there, move.group * number * _APART))
    if not parts:
        return ()
    shared, there, group = (np.concatenate(each) for each in zip(*parts, strict=True))
    found = tuple(swizzle for swizzle in _SWIZZLES if _in_rows(swizzle, shared, there, group))
    return found if len(found) < len(_SWIZZLES) and not {Swizzle.NONE, Swizzle.B32} <= {*found} else ()


def is_image(moves: Sequence[Moved]) -> bool:
    """Whether one stretch of global memory is copied as it is: its bytes may have been put in that order before."""
    offsets = np.concatenate([move.shared - move.there for move in moves if move.shared is not None])
    return bool((offsets == offsets[0]).all())


def _in_rows(swizzle: Swizzle, shared: Array, there: Array, group: Array) -> bool:
    """Whether all of a row of shared memory, in the order before the swizzle, comes from a row of global memory."""
    plain, width = swizzle.apply(shared), _LEAST_ROW if swizzle is Swizzle.NONE else swizzle.row
    rows, which = np.unique(np.stack([plain // width, group]), axis=1, return_inverse=True)
    offsets, which = plain - there, which.ravel()
    first = np.full(rows.shape[1], np.iinfo(np.int64).max)
    np.minimum.at(first, which, offsets)
    several = np.ptp(plain // _CHUNK) > 0
    return bool(several and (offsets == first[which]).all())


class SharedAccesses:
    """Finds them in one kernel."""

    def __init__(self, program: Program, launch: Launch, reach: Reach) -> None:
        self._program, self._launch, self._reach = program, launch, reach
        self._by_step: dict[int, LoopSteps] = {}
        self._loops = loops(program.basic_blocks)
        self._definitions: dict[str, list[Instruction]] = {}
        for instruction in program.instructions:
            for name in writes(instruction):
                self._definitions.setdefault(name, []).append(instruction)

    def written(self) -> Iterator[Moved]:
        """All that threads write to shared memory, in the order of the text."""
        for place, one in instructions(self._program):
            words, address = one.modifiers, next((each for each in one.operands if isinstance(each, Address)), None)
            if one.opcode not in _WRITES or not any(word.startswith("shared") for word in words[:4]) or not address:
                continue
            if one.full_opcode.startswith(("cp.async.bulk", "cp.async.mbarrier", "cp.reduce")):
                continue
            loads = self._loads(one) if one.opcode == "st" else frozenset()
            source, size = None, access_bytes(one)
            if one.opcode == "cp":
                source = one.operands[1]
                size = one.operands[2].value if isinstance(one.operands[2], Immediate) else 0
            elif len(loads) == 1 and "global" in (load := next(iter(loads))).modifiers and access_bytes(load) == size:
                source = load.operands[1]
            yield self._moved(place, one, address, source, size or 16)

    def read(self) -> Iterator[Moved]:
        """What threads read of shared memory and store elsewhere, in the order of the text."""
        for place, one in instructions(self._program):
            if one.opcode != "st" or "global" not in one.modifiers:
                continue
            loads = [load for load in self._loads(one) if any(word.startswith("shared") for word in load.modifiers)]
            if len(loads) == 1 and access_bytes(loads[0]) == access_bytes(one):
                yield self._moved(place, loads[0], loads[0].operands[1], one.operands[0], access_bytes(one))

    def _moved(self, place: Place, one: Instruction, here: object, there: object, size: int) -> Moved:
        threads, parts = self._reach.threads(place), list[tuple[Array, Array, Array]]()
        try:
            for step in steps_of(self._program, self._values(0), self._loops.get(place.basic_block, ())):
                shared, source = self._address(here, step), self._address(there, step)
                if shared is None or shared.local_terms and shared.settled < _SPAN:
                    return Moved(one, size)
                known = np.zeros_like(shared.known) if source is None else source.known
                apart = bool(shared.terms or (source is not None and source.terms))
                group = np.full(threads.sum(), 1 + step if apart else 0, np.int64)
                parts.append((shared.known[threads], known[threads], group))
        except RecursionError:
            return Moved(one, size)
        all_shared, all_there, group = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Moved(one, size, all_shared, all_there if there is not None else None, group)

    def _address(self, operand: object, step: int) -> Value | None:
        if not isinstance(operand, Address):
            return None
        base = self._values(step).number(operand.base)
        return Value(base.known + operand.offset, base.terms)

    def _values(self, step: int) -> LoopSteps:
        if step not in self._by_step:
            self._by_step[step] = LoopSteps(self._program, self._launch, (0, 0, 0), step)
        return self._by_step[step]

    def _loads(self, store: Instruction) -> frozenset[Instruction]:
        """The loads that a stored value is computed from element by element; none where something else is in it."""
        found, seen = set[Instruction](), set[str]()
        waiting = [name for operand in store.operands[1:] for name in registers_in(operand)]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            definitions = self._definitions.get(name, [])
            if len(definitions) != 1:
                return frozenset()
            if definitions[0].opcode == "ld" and "param" not in definitions[0].modifiers:
                found.add(definitions[0])
            elif definitions[0].opcode == "ld":
                continue
            elif definitions[0].opcode not in _ELEMENTWISE:
                return frozenset()
            else:
                waiting += reads(definitions[0])
        return frozenset(found)
