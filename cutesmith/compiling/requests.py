"""What a compiling worker is asked, and its reply."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.sandbox.messages import Request
from cutesmith.verdicts import ArchReport


@dataclass(frozen=True)
class CompiledFile:
    """The report of one architecture, and its machine code.

    `narrow`: how often each opcode stands in it that narrows without need (`compiling.narrowing`). `cubin`: of all
    modules where they are kept, else of those whose machine code is looked at (`compiling.undefined_registers`).
    `calls`: how often the host code called `cute.compile`.
    """

    report: ArchReport
    narrow: dict[str, int]
    ptx: tuple[str, ...] = ()
    cubin: tuple[bytes, ...] = ()
    calls: int = 0


@dataclass(frozen=True, kw_only=True)
class CompileFile(Request[CompiledFile]):
    """Compile one file for one architecture.

    `sources` are the texts of the files by their paths, since a confined process reads only its own; `keep`: the reply
    has the machine code; `variants`: also what `get_input_sets()` needs; `share`: only those calls of `cute.compile`
    are made (`compiling.shares`).
    """

    path: str
    problem: str | None
    arch: str
    keep: bool = False
    variants: bool = True
    share: tuple[int, int] | None = None
    sources: dict[str, str]
