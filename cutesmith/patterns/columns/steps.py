"""Values of rows in a kernel whose threads have several rows each: what is computed between the visits, and kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutesmith.patterns.rows.kernel import RowsKernel
from cutesmith.patterns.rows.parts import Stage

_ASSIGNED = re.compile(r"^(\w+) = ", re.MULTILINE)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Step:
    """Statements for each row before a visit or at the end: names kept `earlier`, results just `combined`, and `later`.

    `later` are the names that what follows reads; `needs_row`: the statements ask which row it is.
    """

    before: list[str]
    earlier: list[str]
    combined: list[str]
    later: list[str]

    @property
    def defined(self) -> bool:
        """Whether any value is there to be kept."""
        return bool(self.later)

    @property
    def needs_row(self) -> bool:
        """Whether the statements read something by the number of the row."""
        return bool({"row", "read_row"} & set(_WORD.findall("\n".join(self.before))))


def steps_of(kernel: RowsKernel) -> list[Step]:
    """One step before each stage, and one for the values that are returned."""
    befores = [stage.before for stage in kernel.stages] + [kernel.epilogue]
    befores[0] = [*kernel.prologue, *kernel.gathers, *befores[0]]
    steps, known = list[Step](), list[str]()
    for place, before in enumerate(befores):
        combined = kernel.stages[place - 1].names if place else []
        read_here = _words(before)
        read_inside = set(_words_after(kernel, place, befores))
        names = [*known, *combined, *_ASSIGNED.findall("\n".join(before))]
        later = [name for name in dict.fromkeys(names) if name in read_inside]
        steps.append(Step(before, known, [name for name in combined if name in read_here | read_inside], later))
        known = later
    return steps


def _words_after(kernel: RowsKernel, place: int, befores: Sequence[list[str]]) -> Iterator[str]:
    """Every word of what follows the statements before the stage in this place."""
    for stage in kernel.stages[place:]:
        yield from _words(_inside(stage))
    for before in befores[place + 1 :]:
        yield from _words(before)
    yield from _words([store.code for store in kernel.row_stores])


def _inside(stage: Stage) -> list[str]:
    return stage.opening + [line for phase in stage.phases for line in (*phase.body, *phase.after)]


def _words(lines: Sequence[str]) -> set[str]:
    return set(_WORD.findall("\n".join(lines)))
