"""Reads what Nsight Compute prints with `--csv --page raw`: a launch a row, a metric a column, units in the second row.

Format: "Nsight Compute CLI", docs.nvidia.com/nsight-compute/NsightComputeCli (Output Pages, Metrics and Units). The
page `details`, a metric a row, is read as well. Lines of the profiler (`==PROF==`, `==WARNING==`) may stand around it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cutesmith.recording.cubin import source_name

Triple = tuple[int, int, int]

PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNIT = re.compile(r"(?P<prefix>[numkKMGT]?)(?:second|byte|[Hh]z|s)(?:/(?P<per>[numkKMGT]?)(?:second|s))?(?:/.*)?")
_ERROR = "==ERROR=="


@dataclass(frozen=True)
class RawLaunch:
    """One profiled launch: metrics by ncu's names, those with a number, in base units (seconds, bytes, hertz, %).

    `kernel` is the Python name of a kernel of the DSL, `symbol` the name that ncu gives.
    """

    number: int
    kernel: str
    symbol: str
    grid: Triple
    block: Triple
    capability: str = ""  # "9.0"
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RawPage:
    """All launches of a page in their order; `cut` says that its last row is not whole."""

    launches: tuple[RawLaunch, ...] = ()
    cut: bool = False


def read_raw_page(text: str) -> RawPage:
    """The launches of a page; empty for a text that holds no table."""
    launches: dict[int, RawLaunch] = {}
    header: list[str] = []
    units: list[str] = []
    for row in _rows(text):
        if row is None or (header and len(row) != len(header)):
            return RawPage(tuple(launches.values()), cut=True)
        if row[0] == "ID":
            header, units = row, []
        elif header and not units and not row[0]:
            units = row
        elif header and row[0].isdecimal():
            _take(launches, dict(zip(header, row)), dict(zip(header, units)))
    return RawPage(tuple(launches.values()))


def complaints(text: str) -> list[str]:
    """What the profiler said after `==ERROR==`, in order."""
    return [line.removeprefix(_ERROR).strip() for line in text.splitlines() if line.startswith(_ERROR)]


def _rows(text: str) -> Iterator[list[str] | None]:
    """The rows of the table, None for a line that ends inside a cell; other lines than the table's are passed over."""
    for line in text.splitlines():
        if line.startswith('"'):
            try:
                yield next(csv.reader([line], strict=True))
            except csv.Error:
                yield None


def _take(launches: dict[int, RawLaunch], row: dict[str, str], units: dict[str, str]) -> None:
    """Add a row: a whole launch, or one metric of it where a column holds the metric's name."""
    number = int(row["ID"])
    if "Metric Name" in row:
        found = {row["Metric Name"]: _number(row.get("Metric Value", ""), row.get("Metric Unit", ""))}
    else:
        found = {name: _number(value, units.get(name, "")) for name, value in row.items() if "__" in name}
    metrics = {name: value for name, value in found.items() if value is not None}
    if number in launches:
        metrics = {**launches[number].metrics, **metrics}
    launches[number] = RawLaunch(
        number=number,
        kernel=source_name(row.get("Kernel Name", "")),
        symbol=row.get("Kernel Name", ""),
        grid=_triple(row.get("Grid Size", "")),
        block=_triple(row.get("Block Size", "")),
        capability=row.get("CC", ""),
        metrics=metrics,
    )


def _number(text: str, unit: str) -> float | None:
    """`1,234.5` in base units; None for `n/a`, `nan` and words."""
    try:
        value = float(text.replace(",", "").split(" ")[0])
    except ValueError:
        return None
    return value * scale_of(unit) if abs(value) != float("inf") and value == value else None


def scale_of(unit: str) -> float:
    """How many seconds, bytes or hertz a unit is: 1e-6 for "usecond" and "us", 1e3 for "Kbyte/block"; 1 for others."""
    match = _UNIT.fullmatch(unit)
    if match is None:
        return 1.0
    return PREFIXES.get(match["prefix"], 1.0) / PREFIXES.get(match["per"] or "", 1.0)


def _triple(text: str) -> Triple:
    """`(256, 1, 1)`; what is missing is 1."""
    numbers = [int(number) for number in re.findall(r"\d+", text)][:3]
    x, y, z = numbers + [1] * (3 - len(numbers))
    return x, y, z
