"""Where variables, parameters and the frame's registers lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutesmith.emulator.program.abi import SHARED_BASE
from cutesmith.emulator.ptx.syntax import Variable


@dataclass(frozen=True)
class Placement:
    """Byte offsets by name, and the bytes up to the end of the last."""

    offsets: dict[str, int]
    size: int
    align: int


def place(variables: Iterable[Variable], start: int = 0) -> Placement:
    """Variables one after another from `start`, each at its alignment."""
    offsets, end, align = {}, start, 1
    for variable in variables:
        offsets[variable.name] = aligned(end, variable.align)
        end = offsets[variable.name] + variable.size
        align = max(align, variable.align)
    return Placement(offsets, end, align)


def place_shared(variables: list[Variable]) -> tuple[dict[str, int], int, frozenset[str]]:
    """Shared addresses by name, bytes of static variables, names of dynamic ones (all at one address after them)."""
    dynamic = [variable for variable in variables if variable.external and variable.size == 0]
    static = place((variable for variable in variables if variable not in dynamic), SHARED_BASE)
    start = aligned(static.size, max((variable.align for variable in dynamic), default=1))
    addresses = static.offsets | {variable.name: start for variable in dynamic}
    return addresses, static.size - SHARED_BASE, frozenset(variable.name for variable in dynamic)


def aligned(address: int, align: int) -> int:
    """The next multiple of `align`."""
    return -(-address // align) * align


def place_registers(points: list[list[str]], widths: dict[str, int]) -> tuple[dict[str, int], int]:
    """Rows of the frame, and their number; `points` are the sets that are in the frame together, in text order.

    Registers whose first and last points do not overlap share a row; a 128-bit register keeps two for itself.
    """
    last = {name: number for number, names in enumerate(points) for name in names}
    rows: dict[str, int] = {}
    free: list[int] = []
    count = 0
    for number, names in enumerate(points):
        for name in names:
            if name in rows:
                continue
            if widths[name] > 64:
                rows[name], count = count, count + 2
            elif free:
                rows[name] = free.pop()
            else:
                rows[name], count = count, count + 1
        free += sorted({rows[name] for name in names if last[name] == number and widths[name] <= 64}, reverse=True)
    return rows, count
