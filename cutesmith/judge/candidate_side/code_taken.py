"""What of its code a call of `kernel_fn` takes: branches of host code, and kernels with how they are launched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from cutesmith.emulator.program.calls import without_calls
from cutesmith.emulator.ptx.syntax import Instruction, Module
from cutesmith.judge.candidate_side.host_branches import Place
from cutesmith.recording.cubin import source_name
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
class CodeTaken:
    """Branches by line and column, and launches, of one call or of many."""

    branches: frozenset[Place] = frozenset()
    launches: frozenset[Launched] = frozenset()

    def __or__(self, other: CodeTaken) -> CodeTaken:
        """What either takes."""
        return CodeTaken(self.branches | other.branches, self.launches | other.launches)

    def beyond(self, other: CodeTaken) -> tuple[str, ...]:
        """What this takes and the other does not, a clause each."""
        launches = sorted(self.launches - other.launches, key=lambda one: (one.name, one.opcodes, one.block))
        known = {(launched.name, launched.opcodes) for launched in other.launches}
        lines = sorted({line for line, _ in self.branches - other.branches})
        return (
            *dict.fromkeys(_clause(launched, known) for launched in launches),
            *([f"host code branches to line {', '.join(map(str, lines))}"] if lines else []),
        )


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


def _clause(launched: Launched, known: set[tuple[str, str]]) -> str:
    if (launched.name, launched.opcodes) not in known:
        return f"another kernel is launched ({launched.name})"
    threads = "x".join(map(str, launched.block))
    return f"{launched.name} is launched {'several times ' if launched.several else ''}with {threads} threads"
