"""Which instructions are strong, release or acquire: one byte of flags each, for native code."""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.sanitizer.cells import MAX_SITE
from cutesmith.emulator.sanitizer.layout import Site

_STRONG_ORDERS = frozenset(("relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "sc"))
_RELEASING = frozenset(("release", "acq_rel"))


def site_flags(program: Program) -> Array:
    """uint8 (MAX_SITE + 1,) of Site; an instruction beyond MAX_SITE shares the last, which never races."""
    flags = np.zeros(MAX_SITE + 1, np.uint8)
    for instruction in program.instructions[:MAX_SITE]:
        flags[instruction.number] = _flags(instruction)
    flags[MAX_SITE] = Site.STRONG
    return flags


def _flags(instruction: Instruction) -> Site:
    words = frozenset(instruction.modifiers)
    if "async" in words:
        return Site(0)
    atomic = instruction.opcode in ("atom", "red", "multimem")
    if not atomic and not (instruction.opcode in ("ld", "st") and words & _STRONG_ORDERS):
        return Site(0)
    flags = Site.STRONG
    if atomic or instruction.opcode == "st":
        flags |= Site.WRITES
    if instruction.opcode in ("atom", "ld"):
        flags |= Site.READS
    return flags | Site.RELEASES if words & _RELEASING else flags
