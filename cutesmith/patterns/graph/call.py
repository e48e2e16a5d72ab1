"""How a kernel is called, where its arguments are not those of the graph: with options, held numbers, and lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """The parameters, how values are nested in them (`problems.arguments.Nesting`), and the values that are held.

    `names` are those of all values. `held`: the code of each value that is a constant of the kernel, by its place;
    the arguments of the graph are the others.
    """

    parameters: tuple[str, ...]
    nesting: tuple[Any, ...]
    names: tuple[str, ...]
    held: tuple[tuple[int, str], ...]

    @property
    def free(self) -> tuple[str, ...]:
        """The names of the arguments of the graph."""
        held = {place for place, _ in self.held}
        return tuple(name for place, name in enumerate(self.names) if place not in held)

    def statements(self) -> Iterator[str]:
        """What a function of the parameters does first: refuse other options, name each item of a list."""
        places = iter(range(len(self.names)))
        for name, nesting in zip(self.parameters, self.nesting, strict=True):
            yield from self._of_value(name, nesting, places)

    def _of_value(self, name: str, nesting: Any, places: Iterator[int]) -> Iterator[str]:
        if nesting is None:
            yield from self._of_held(name, dict(self.held).get(next(places)))
            return
        items = [f"{name}_{number}" for number in range(len(nesting[1]))]
        yield f"if len({name}) != {len(items)}:"
        yield (
            f'    raise ValueError(f"this kernel was written for {len(items)} items in {name}, not {{len({name})}}; '
            f'generate another for those")'
        )
        yield f"{', '.join(items)}{',' * (len(items) == 1)} = {name}"
        for item, inner in zip(items, nesting[1], strict=True):
            yield from self._of_value(item, inner, places)

    def _of_held(self, name: str, code: str | None) -> Iterator[str]:
        if code is not None:
            told = code.replace("{", "{{").replace("}", "}}").replace("\\", "\\\\").replace('"', '\\"')
            yield f"if {name} is not None:" if code == "None" else f"if {name} != {code}:"
            yield (
                f'    raise ValueError(f"this kernel was written for {name}={told}; '
                f'generate another for {name}={{{name}!r}}")'
            )


def code_of(value: Any) -> str:
    """Python code of an option or a number, which may be infinite."""
    if isinstance(value, list):
        return f"[{', '.join(map(code_of, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(code_of, value))}{',' * (len(value) == 1)})"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return ascii(value) if isinstance(value, str) else repr(value)
