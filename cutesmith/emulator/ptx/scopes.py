"""What a name means at a place of a function: registers, variables, labels, special registers, functions.

Inline assembly opens scopes of its own, whose names get a suffix that no name in PTX has: `p` of scope 3 is `p.3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from cutesmith.emulator.ptx.syntax import Immediate, LabelReference, Operand, Register, SpecialRegister, Symbol, Vector

_SPECIAL = re.compile(
    r"%(?:(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)(?:\.[xyz])|cluster_n?ctarank|is_explicit_cluster"
    r"|laneid|n?warpid|n?smid|gridid|lanemask_(?:eq|le|lt|ge|gt)|clock(?:_hi|64)?|globaltimer(?:_lo|_hi)?"
    r"|pm\d+(?:_64)?|envreg\d+|(?:total|aggr|dynamic)_smem_size|reserved_smem_offset_\w+|current_graph_exec)"
)


@dataclass
class Scope:
    """Names declared between two braces, by what is written; `known` caches what was looked up in here."""

    suffix: str
    parent: Scope | None
    labels: frozenset[str]
    own: dict[str, Operand] = field(default_factory=dict)
    known: dict[str, Operand] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        """The name that the whole function knows it by."""
        return name + self.suffix

    def declare_register(self, name: str, elements: int = 1) -> tuple[str, ...]:
        """Declare a register, or a vector of registers, and give their unique names.

        Elements of a vector are `v.x`, `v.y`, `v.z` and `v.w`, which colours name too.
        """
        if elements == 1:
            self._declare(name, Register(self.unique(name)))
            return (self.unique(name),)
        names = tuple(self.unique(f"{name}.{component}") for component in "xyzw"[:elements])
        parts = tuple(map(Register, names))
        self._declare(name, Vector(parts))
        for part, component, colour in zip(parts, "xyzw", "rgba"):
            self._declare(f"{name}.{component}", part)
            self._declare(f"{name}.{colour}", part)
        return names

    def declare_variable(self, name: str) -> str:
        """Declare a variable and give its unique name."""
        self._declare(name, Symbol(self.unique(name)))
        return self.unique(name)

    def resolve(self, name: str, symbols: Iterable[str]) -> Operand | None:
        """What `name` means here, None for nothing; `symbols` are the module's variables and functions."""
        found: Operand | None = None
        scope: Scope | None = self
        while scope is not None and found is None:
            found = scope.own.get(name)
            if found is None and name in scope.labels:
                found = LabelReference(scope.unique(name))
            scope = scope.parent
        if found is None and name in symbols:
            found = Symbol(name)
        if found is None and _SPECIAL.fullmatch(name):
            found = SpecialRegister(name)
        if found is None and name == "WARP_SZ":
            found = Immediate(32)
        if found is not None:
            self.known[name] = found
        return found

    def _declare(self, name: str, operand: Operand) -> None:
        self.known.pop(name, None)
        self.own[name] = operand

    def declares(self, name: str) -> bool:
        """Whether this scope itself has a register or a variable of that name."""
        return name in self.own
