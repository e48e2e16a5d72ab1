"""The instruction table: how each instruction is executed, by the longest dotted prefix of its full opcode.

Native code runs an instruction for one lane (`Native`), or the lanes that reach it are suspended until the machine
executes it for many of them at once (`Suspension`). Every module of `emitters/` and `operations/` adds its instructions
when it is imported; `instruction_set.py` imports them all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.ptx.syntax import Instruction

Emit: TypeAlias = Callable[[Any, Instruction], None]  # (native.emitter.Emitter, instruction)


@dataclass(frozen=True)
class Native:
    """Native code executes the instruction; `emit` writes its LLVM IR."""

    emit: Emit


class Suspension:
    """The instruction suspends its lanes: the kinds are classes of `machine/`, the table holds one instance a form."""


_TABLE: dict[str, Native | Suspension] = {}


def expand(pattern: str) -> list[str]:
    """All texts of a pattern: `{a,b}` stands for either text, `{,x}` for nothing or x, `{{` and `}}` for braces."""
    pieces = re.split(r"\{([^{}]*)\}", pattern.replace("{{", "\1").replace("}}", "\2"))
    choices = [piece.split(",") if index % 2 else [piece] for index, piece in enumerate(pieces)]
    return ["".join(choice).replace("\1", "{").replace("\2", "}") for choice in itertools.product(*choices)]


def register(execution: Native | Suspension, *patterns: str) -> None:
    """Say how instructions are executed whose opcode begins with a text of one of these patterns (see `expand`)."""
    for opcode in itertools.chain.from_iterable(map(expand, patterns)):
        assert opcode not in _TABLE, f"{opcode} is in the table twice"
        _TABLE[opcode] = execution


def native(*patterns: str) -> Callable[[Emit], Emit]:
    """Register a function that emits LLVM IR for these opcodes."""

    def enter(emit: Emit) -> Emit:
        register(Native(emit), *patterns)
        return emit

    return enter


def execution_of(instruction: Instruction) -> Native | Suspension:
    """How the instruction is executed; raises UnsupportedInstruction for an opcode that is not in the table."""
    words = instruction.full_opcode.split(".")
    prefixes = (".".join(words[:count]) for count in range(len(words), 0, -1))
    found = next((_TABLE[prefix] for prefix in prefixes if prefix in _TABLE), None)
    if found is None:
        raise UnsupportedInstruction(instruction)
    return found
