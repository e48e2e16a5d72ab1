"""Which cell of tensor memory each register of a warp holds: the shapes of `tcgen05.ld` and `tcgen05.st`.

PTX ISA, "Memory layout" of the data movement shapes. In units of a cell, with lane t of the warp and register r:

| shape | lane | column |
|---|---|---|
| 32x32b | t | r |
| 16x64b | t / 4 + 8 (t % 2) | 2 r + t / 2 % 2 |
| 16x128b | t / 4 + 8 (r % 2) | 4 (r / 2) + t % 4 |
| 16x256b | t / 4 + 8 (r / 2 % 2) | 8 (r / 4) + 2 (t % 4) + r % 2 |
| 16x32bx2 | t % 16 | r, from the second address on where t >= 16 |

`tcgen05.ld.red` gives each thread of 32x32b, besides its registers, the least or largest of them.
With `.pack::16b` and `.unpack::16b` a register holds the lower halves of two columns.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.ptx.syntax import Instruction

_SHAPES = {"32x32b": (32, 1), "16x64b": (16, 1), "16x128b": (16, 2), "16x256b": (16, 4), "16x32bx2": (16, 1)}
"""Lanes, and registers of `.x1`."""


_INFINITY, _NAN = 0x7F80_0000, 0x7FFF_FFFF


@dataclass(frozen=True)
class Reduction:
    """What `.red` finds of a thread's registers: `largest` or least, of `kind` f32, u32 or s32.

    Of f32: of their absolute values (`absolute`); NaN is left out, or given where there is one (`nan`). -0 is below +0.
    """

    largest: bool
    kind: str
    absolute: bool = False
    nan: bool = False

    @classmethod
    def parse(cls, instruction: Instruction) -> Reduction | None:
        """Of `tcgen05.ld.red.sync.aligned.32x32b.num.op{.abs}{.NaN}.type`; None for another form."""
        match = re.fullmatch(r".*\.(min|max)(\.abs)?(\.NaN)?\.(f32|u32|s32)", ".".join(instruction.modifiers))
        if match is None or (match[4] != "f32" and (match[2] or match[3])):
            return None
        return cls(match[1] == "max", match[4], match[2] is not None, match[3] is not None)

    def of(self, words: Array) -> Array:
        """uint32 (threads,) of uint32 (registers, threads)."""
        if self.kind == "u32":
            found: Array = words.max(axis=0) if self.largest else words.min(axis=0)
            return found
        numbers = (words & np.uint32(0x7FFF_FFFF) if self.absolute else words).view(np.int32)
        if self.kind == "s32":
            signed: Array = numbers.max(axis=0) if self.largest else numbers.min(axis=0)
            return signed.view(np.uint32)
        strange = numbers & 0x7FFF_FFFF > _INFINITY
        ordered = np.where(numbers < 0, numbers ^ 0x7FFF_FFFF, numbers)
        last = np.iinfo(np.int32).min if self.largest else np.iinfo(np.int32).max
        kept = np.where(strange, np.int32(last), ordered)
        best = kept.max(axis=0) if self.largest else kept.min(axis=0)
        none = strange.any(axis=0) if self.nan else strange.all(axis=0)
        value: Array = np.where(none, np.int32(_NAN), np.where(best < 0, best ^ 0x7FFF_FFFF, best))
        return value.view(np.uint32)


@dataclass(frozen=True)
class FragmentShape:
    """A shape, `.num`, and whether registers hold two halves."""

    name: str
    number: int
    packed: bool

    @classmethod
    def parse(cls, instruction: Instruction) -> FragmentShape | None:
        """Of `tcgen05.ld.sync.aligned.shape.num{.pack::16b}.b32`, `ld.red` or `st`; None for any other."""
        words = ".".join(instruction.modifiers[1:])
        match = re.fullmatch(r"sync\.aligned\.(\w+)\.x(\d+)(\.(?:un)?pack::16b)?\.b32", words)
        if Reduction.parse(instruction) is not None:
            match = re.match(r"red\.sync\.aligned\.(32x32b)\.x([2-9]|\d{2,})()\.", words)
        if match is None or match[1] not in _SHAPES:
            return None
        number, most = int(match[2]), 128 // _SHAPES[match[1]][1]
        if number & (number - 1) or not 1 <= number <= most:
            return None
        return cls(match[1], number, bool(match[3]))

    @property
    def lanes(self) -> int:
        """How many lanes it touches."""
        return _SHAPES[self.name][0]

    @property
    def registers(self) -> int:
        """How many registers each thread gives or gets."""
        return self.number * _SHAPES[self.name][1]

    @property
    def split(self) -> bool:
        """Whether the upper threads have an address of their own."""
        return self.name == "16x32bx2"

    @property
    def columns(self) -> int:
        """How many columns it touches from an address on."""
        cells = self.registers * WARP // self.lanes // (2 if self.split else 1)
        return cells * (2 if self.packed else 1)

    def places(self) -> tuple[Array, Array]:
        """int64 (registers, 32): the lane of each register's cell, and its column in cells of a register."""
        return _places(self.name, self.registers)


@functools.cache
def _places(name: str, registers: int) -> tuple[Array, Array]:
    r, t = np.ogrid[:registers, :WARP]
    zero = 0 * r + 0 * t
    lanes, columns = {
        "32x32b": (t, r),
        "16x64b": (t // 4 + 8 * (t % 2), 2 * r + t // 2 % 2),
        "16x128b": (t // 4 + 8 * (r % 2), 4 * (r // 2) + t % 4),
        "16x256b": (t // 4 + 8 * (r // 2 % 2), 8 * (r // 4) + 2 * (t % 4) + r % 2),
        "16x32bx2": (t % 16, r),
    }[name]
    return lanes + zero, columns + zero
