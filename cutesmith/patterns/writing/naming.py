"""Names in a generated kernel: arguments keep theirs unless Python, the DSL or the template needs the word."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cutesmith.patterns.graph.attributes import TensorCode
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS

KERNEL_NAME = "kernel_fn"
"""The function that a section gives to the file: what it needs stays."""

KERNEL_MARK = "# ---- kernel: "
"""What the line of a section begins with that says what its kernel computes."""

SHARED_NAMES = frozenset(
    "torch cutlass cute math functools NamedTuple const_expr range_constexpr "
    "BFloat16 Boolean Float16 Float32 Float64 Float8E4M3FN Float8E5M2 Int8 Int16 Int32 Int64 Uint8 "
    "plan layouts stream key found launch thread block at c v kernel_fn reference_fn get_inputs specialise Plan "
    "TYPES LAUNCHERS note".split()
) | frozenset(SPECIAL_FUNCTIONS)
"""What every template imports or binds, so that an argument of the problem needs another name."""


@dataclass(frozen=True)
class Parameter:
    """A number that a kernel takes: its name and DSL type."""

    name: str
    type: str


def safe_names(names: Sequence[str], reserved: Collection[str]) -> list[str]:
    """The names, changed where they are reserved, are not identifiers, or were met before."""
    chosen: list[str] = []
    for place, name in enumerate(names):
        stem = name if name.isidentifier() else f"input_{place}"
        if stem in reserved or keyword.iskeyword(stem):
            stem = f"{stem}_in"
        chosen.append(fresh_name(stem, {*chosen, *names[place + 1 :], *reserved}))
    return chosen


def fresh_name(stem: str, taken: Collection[str]) -> str:
    """`stem`, or `stem_1`, `stem_2`, …: the first that is not taken."""
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    return name


def as_stored(code: TensorCode, dtype: str) -> TensorCode:
    """A tensor as `kernel_fn` passes it to a launch: bool travels as bytes."""
    return code.then("{0}.view(torch.uint8)") if dtype == "bool" else code


class ViewNames:
    """The names of viewed arguments, and in `lines` the statements of `kernel_fn` that make them."""

    def __init__(self, taken: Collection[str]) -> None:
        self.lines: list[str] = []
        self._taken = set(taken)
        self._names: dict[TensorCode, str] = {}

    def name(self, code: TensorCode) -> str:
        """The name of what is made of an argument: the argument's own where that is all."""
        if not code.steps:
            return code.name
        if code not in self._names:
            self._names[code] = self.another(code, f"{code.name}_view")
        return self._names[code]

    def another(self, code: TensorCode, stem: str, taken: Collection[str] = ()) -> str:
        """A new name for what is made of an argument, `stem` with a number where that is taken."""
        line = self.expression(code)
        name = fresh_name(stem, {*self._taken, *taken})
        self._taken.add(name)
        self.lines.append(f"{name} = {line}")
        return name

    def expression(self, code: TensorCode) -> str:
        """The code in one expression; what a step needs more than once gets a name before."""
        text = code.name
        for at, step in enumerate(code.steps):
            if at and step.count("{0}") > 1:
                text = self.name(TensorCode(code.name, code.steps[:at]))
            text = step.format(text)
        return text
