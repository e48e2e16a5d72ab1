"""What of its code a call of `kernel_fn` takes: branches of host code, kernels and launches, and what sizes decide."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from cutesmith.devices import SmVersion
from cutesmith.emulator.faults import own_line
from cutesmith.emulator.positions.conditions import Conditions, Outcome
from cutesmith.emulator.program.calls import without_calls
from cutesmith.emulator.ptx.syntax import Instruction, Module
from cutesmith.judge.candidate_side.host_branches import Place
from cutesmith.recording.cubin import CubinKernel, source_name
from cutesmith.recording.sessions import Launch


@dataclass(frozen=True)
class Launched:
    """A kernel, by its opcodes in their order, and a launch of it; `several` in a row.

    Two compilations that differ in nothing but their constants are the same code.
    """

    name: str
    opcodes: str
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    several: bool = False


@dataclass(frozen=True)
class Decision:
    """A condition of a kernel, known by its name and opcodes, that came out so; `line`: such as "kernel.py:31"."""

    name: str
    opcodes: str
    outcome: Outcome
    line: str = field(default="", compare=False)


@dataclass(frozen=True)
class CodeTaken:
    """Branches by line and column, launches, and what sizes decided in kernels, of one call or of many."""

    branches: frozenset[Place] = frozenset()
    launches: frozenset[Launched] = frozenset()
    decisions: frozenset[Decision] = frozenset()

    def __or__(self, other: CodeTaken) -> CodeTaken:
        """What either takes."""
        either = self.decisions | other.decisions
        return CodeTaken(self.branches | other.branches, self.launches | other.launches, either)

    def beyond(self, other: CodeTaken) -> tuple[str, ...]:
        """What this takes and the other does not, a clause each."""
        launches = sorted(self.launches - other.launches, key=lambda one: (one.name, one.opcodes, one.block))
        known = {(launched.name, launched.opcodes) for launched in other.launches}
        strange = [launched.name for launched in launches if (launched.name, launched.opcodes) not in known]
        names = {launched.name for launched in other.launches}
        new, changed = (_named([n for n in strange if (n in names) is compiled]) for compiled in (False, True))
        blocks = [_clause(launched) for launched in launches if (launched.name, launched.opcodes) in known]
        lines = sorted({line for line, _ in self.branches - other.branches})
        decided = sorted({(d.name, d.line) for d in self.undecided(other) if (d.name, d.opcodes) in known})
        return (
            *([f"{new} is launched"] if new else []),
            *([f"{changed} is compiled into other instructions"] if changed else []),
            *dict.fromkeys(blocks),
            *(f"{name} takes another path at {line}" for name, line in decided),
            *([f"host code branches to line {', '.join(map(str, lines))}"] if lines else []),
        )

    def undecided(self, other: CodeTaken) -> frozenset[Decision]:
        """What came out in kernels of this call, and never in those of the other."""
        return self.decisions - other.decisions


def decisions(
    conditions: Conditions, opcodes: str, launch: Launch, kernel: CubinKernel, sm: SmVersion, path: Path
) -> frozenset[Decision]:
    """What the conditions of a kernel of the file `path` come to in a launch of it."""
    name = source_name(launch.kernel)
    found = conditions.outcomes(launch, kernel, sm)
    lines = {number: own_line(location, path) for number, location in conditions.lines.items()}
    return frozenset(Decision(name, opcodes, outcome, lines[outcome.number]) for outcome in found)


def launched(calls: Iterable[tuple[Launch, str]]) -> frozenset[Launched]:
    """The launches of one call, in their order, each with `opcodes_of` its kernel."""
    alone = (Launched(source_name(of.kernel), opcodes, of.block, of.cluster) for of, opcodes in calls)
    runs = ((kernel, len(list(run))) for kernel, run in groupby(alone))
    return frozenset(replace(kernel, several=count > 1) for kernel, count in runs)


def opcodes_of(module: Module, kernel: str) -> str:
    """A digest of the opcodes of an entry function, calls inlined."""
    body = without_calls(module, module.functions[kernel]).body
    text = "\n".join(part.full_opcode if isinstance(part, Instruction) else ":" for part in body)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _named(names: list[str]) -> str:
    """Each name once, as one list."""
    return ", ".join(dict.fromkeys(names))


def _clause(launched: Launched) -> str:
    threads = "x".join(map(str, launched.block))
    return f"{launched.name} is launched {'several times ' if launched.several else ''}with {threads} threads"
