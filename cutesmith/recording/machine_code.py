"""What the machine code of a kernel loads, and how much of it is on its way at once.

An instruction has 128 bits: the low 12 are its opcode, and 21 high ones its control bits. A load names one of six
scoreboards there, and an instruction that needs a value waits for scoreboards by a mask. Source: "Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking" (arXiv:1804.06826), section 2.1; sm_80 to sm_100a keep the layout: in 60
kernels the registers that nvdisasm prints give the same counts. Where a branch goes was compared with its labels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

LOAD_GLOBAL, LOAD_LOCAL, STORE_LOCAL, SET_MAX_REGISTERS = 0x981, 0x983, 0x387, 0x9C8
_WGMMA = (0x1F0, 0x1F3)  # HGMMA, and QGMMA of 8 bits, by their low 9: the others say where the left operand is
_WARPGROUP, _IS_WAIT = 0x9C5, 47  # what surrounds wgmma: this bit tells WARPGROUP.DEPBAR from WARPGROUP.ARRIVE
_BRANCHES = (0x947, 0x547)  # BRA, and BRA.U by a uniform predicate
_BYTES = (1, 1, 2, 2, 4, 8, 16, 32)  # of a load by the three bits of its type: u8, s8, u16, s16, 32, 64, 128, 256
_TYPE, _SCOREBOARD, _WAITS = 9, 46, 52  # where they begin in the upper 64 bits
_SCOREBOARDS = 6
_TARGET, _TARGET_BITS = 34, 48  # of a branch, from the next instruction; sm_90 has 8 lower bits at 16


@dataclass(frozen=True)
class GlobalLoads:
    """Instructions that load global memory into registers, and how many of them are issued before one is waited for.

    `in_flight` is the most in the order of the code; `bytes_in_flight` are what a thread asks for by these.
    """

    count: int = 0
    in_flight: int = 0
    bytes_in_flight: int = 0


@dataclass(frozen=True)
class MachineCode:
    """The instructions of one kernel as pairs of 64-bit words, the lower first."""

    words: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, code: bytes) -> MachineCode:
        return cls(tuple(struct.iter_unpack("<QQ", code[: len(code) // 16 * 16])))

    def count(self, opcode: int) -> int:
        """How many instructions have this opcode."""
        return sum(low & 0xFFF == opcode for low, _ in self.words)

    def wgmma(self) -> int:
        """How many wgmma of floats there are."""
        return sum(low & 0x1FF in _WGMMA for low, _ in self.words)

    def wgmma_waits(self) -> int:
        """How many instructions wait for wgmma."""
        return sum(low & 0xFFF == _WARPGROUP and low >> _IS_WAIT & 1 for low, _ in self.words)

    def in_loops(self, *opcodes: int, sm: int) -> int:
        """How many instructions with one of these opcodes lie between a branch back and its target."""
        inside = {place for begin, end in self._loops(sm) for place in range(begin, end + 1)}
        return sum(self.words[place][0] & 0xFFF in opcodes for place in inside)

    def _loops(self, sm: int) -> Iterator[tuple[int, int]]:
        """First and last instruction of each loop, but for the branch to itself behind the end of the code."""
        for place, (low, high) in enumerate(self.words):
            if low & 0xFFF in _BRANCHES:
                bits = (high << 64 | low) >> _TARGET & (1 << _TARGET_BITS) - 1
                words = bits - (bits >> _TARGET_BITS - 1 << _TARGET_BITS)  # of 32 bits
                target = place + 1 + ((words << 8 | low >> 16 & 0xFF) if sm >= 90 else words) // 4
                if 0 <= target < place:
                    yield target, place

    def global_loads(self) -> GlobalLoads:
        """The loads of global memory; a loop counts once."""
        most = max(self._in_flight(), key=lambda sizes: (len(sizes), sum(sizes)), default=())
        return GlobalLoads(self.count(LOAD_GLOBAL), len(most), sum(most))

    def _in_flight(self) -> Iterator[tuple[int, ...]]:
        """At each wait for loads, the bytes of every load that is on its way."""
        under_way: list[list[int]] = [[] for _ in range(_SCOREBOARDS)]
        for low, high in self.words:
            waited = [number for number in range(_SCOREBOARDS) if high >> (_WAITS + number) & 1 and under_way[number]]
            if waited:
                yield tuple(size for sizes in under_way for size in sizes)
            for number in waited:
                under_way[number].clear()
            if low & 0xFFF == LOAD_GLOBAL and (number := high >> _SCOREBOARD & 7) < _SCOREBOARDS:
                under_way[number].append(_BYTES[high >> _TYPE & 7])
