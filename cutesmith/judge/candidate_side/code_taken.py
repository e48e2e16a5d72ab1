"""What of its code a call of `kernel_fn` takes: branches of host code, kernels and launches, and what sizes decide."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from cutesmith.devices import SmVersion
from cutesmith.emulator.faults import own_line
from cutesmith.emulator.positions.conditions import Conditions, Outcome
from cutesmith.emulator.program.calls import without_calls
from cutesmith.emulator.ptx.printer import location_in
from cutesmith.emulator.ptx.syntax import Instruction, Module
from cutesmith.judge.candidate_side.host_branches import Place
from cutesmith.judge.candidate_side.requests import Decision, ExecutedCode, Launched
from cutesmith.recording.cubin import CubinKernel, source_name
from cutesmith.recording.sessions import Launch

MOST_VALUES = 2  # of a constant that are named
MOST_CONSTANTS = 2  # that are named


@dataclass(frozen=True)
class CodeTaken:
    """Branches by line and column, launches, and what sizes decided in kernels, of one call or of many."""

    branches: frozenset[Place] = frozenset()
    launches: frozenset[Launched] = frozenset()
    decisions: frozenset[Decision] = frozenset()

    @classmethod
    def told(cls, code: ExecutedCode) -> CodeTaken:
        """What another process says that it took."""
        return cls(frozenset(code.branches), frozenset(code.launches), frozenset(code.decisions))

    def tell(self) -> ExecutedCode:
        """The same as a reply."""
        return ExecutedCode(tuple(self.branches), tuple(self.launches), tuple(self.decisions))

    def __or__(self, other: CodeTaken) -> CodeTaken:
        """What either takes."""
        either = self.decisions | other.decisions
        return CodeTaken(self.branches | other.branches, self.launches | other.launches, either)

    def beyond(self, other: CodeTaken) -> tuple[str, ...]:
        """What this takes and the other does not, a clause each."""
        launches = sorted(self.launches - other.launches, key=lambda one: (one.name, one.opcodes, one.block))
        known = {(launched.name, launched.opcodes) for launched in other.launches}
        strange = [launched for launched in launches if (launched.name, launched.opcodes) not in known]
        names = {launched.name for launched in other.launches}
        new = _named([launched.name for launched in strange if launched.name not in names])
        changed = [launched for launched in strange if launched.name in names]
        blocks = [_clause(launched) for launched in launches if (launched.name, launched.opcodes) in known]
        lines = sorted({line for line, _ in self.branches - other.branches})
        decided = sorted(
            (d for d in self.undecided(other) if (d.name, d.opcodes) in known), key=lambda d: (d.name, d.line)
        )
        return (
            *([f"{new} is launched"] if new else []),
            *dict.fromkeys(f"{one.name} is compiled into other instructions{other._differ(one)}" for one in changed),
            *dict.fromkeys(blocks),
            *dict.fromkeys(f"{d.name} takes another path at {_where(d)}{other._otherwise(d)}" for d in decided),
            *([f"host code branches to line {', '.join(map(str, lines))}"] if lines else []),
        )

    def _differ(self, launched: Launched) -> str:
        """Constants of that compilation that no launch of its kernel has here, each with those that these have."""
        here = [dict(one.constants) for one in sorted(self.launches, key=repr) if one.name == launched.name]
        values = {name: list(dict.fromkeys(one[name] for one in here if name in one)) for name, _ in launched.constants}
        differ = [
            f"`{name}` is {value}, and {' or '.join(values[name][:MOST_VALUES])} at the sizes that ran"
            for name, value in launched.constants
            if values[name] and value not in values[name]
        ]
        more = f"; and {len(differ) - MOST_CONSTANTS} more" if len(differ) > MOST_CONSTANTS else ""
        return f" (its {'; '.join(differ[:MOST_CONSTANTS])}{more})" if differ else ""

    def _otherwise(self, decision: Decision) -> str:
        """What the condition compares in that call, and in one of this code, where it came out otherwise."""
        opposite = replace(decision, holds=not decision.holds)
        here = next((one.compared for one in self.decisions if one == opposite), ())
        if not (decision.compared and here):
            return ""
        return f", which compares {_pair(decision.compared)}, and {_pair(here)} at the sizes that ran"

    def undecided(self, other: CodeTaken) -> frozenset[Decision]:
        """What came out in kernels of this call, and never in those of the other."""
        return self.decisions - other.decisions


def decisions(
    conditions: Conditions, opcodes: str, launch: Launch, kernel: CubinKernel, sm: SmVersion, path: Path
) -> frozenset[Decision]:
    """What the conditions of a kernel of the file `path` come to in a launch of it."""
    name = source_name(launch.kernel)
    return frozenset(
        _decision(name, opcodes, outcome, conditions.compare, path)
        for outcome in conditions.outcomes(launch, kernel, sm)
    )


def _decision(name: str, opcodes: str, outcome: Outcome, compare: dict[int, Instruction], path: Path) -> Decision:
    location = compare[outcome.number].location
    frame = location_in(location, path)
    text = linecache.getline(frame.file, frame.line).strip() if frame else ""
    line = own_line(location, path)
    return Decision(name, opcodes, outcome.number, outcome.holds, line, text, outcome.compared)


def launched(calls: Iterable[tuple[Launch, CubinKernel, str]]) -> frozenset[Launched]:
    """The launches of one call, in their order, each with its kernel and `opcodes_of` that."""
    alone = (
        Launched(source_name(of.kernel), opcodes, of.block, of.cluster, constants=kernel.constants)
        for of, kernel, opcodes in calls
    )
    runs = ((kernel, len(list(run))) for kernel, run in groupby(alone))
    return frozenset(replace(kernel, several=count > 1) for kernel, count in runs)


def opcodes_of(module: Module, kernel: str) -> str:
    """A digest of the opcodes of an entry function, calls inlined."""
    body = without_calls(module, module.functions[kernel]).body
    text = "\n".join(part.full_opcode if isinstance(part, Instruction) else ":" for part in body)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _where(decision: Decision) -> str:
    return f"{decision.line} `{decision.text}`" if decision.text else decision.line


def _pair(compared: tuple[float, ...]) -> str:
    return " with ".join(f"{number:,}" for number in compared)


def _named(names: list[str]) -> str:
    """Each name once, as one list."""
    return ", ".join(dict.fromkeys(names))


def _clause(launched: Launched) -> str:
    threads = "x".join(map(str, launched.block))
    return f"{launched.name} is launched {'several times ' if launched.several else ''}with {threads} threads"
