"""What the processes of a benchmark are asked, and their replies.

The two of a verification answer `Start`, `Give` and `Take`, too; that of the problem also `Load` and `Judge`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.judge.reference_side.requests import Judged, Tolerances
from cutesmith.judge.transfer.requests import TensorFile, Value
from cutesmith.sandbox.messages import Request
from cutesmith.timing.roofline import Work
from cutesmith.verdicts import Violation


@dataclass(frozen=True)
class Load(Request[None]):
    """Load one kernel file, whose text is handed over, under a name."""

    name: str
    path: str
    source: str


@dataclass(frozen=True)
class Inputs(Request[None]):
    """Take the rotating copies of the inputs from files, and from what was taken."""

    copies: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Collected:
    """A kept output as files."""

    outputs: tuple[TensorFile, ...]
    is_tuple: bool
    violations: tuple[Violation, ...]


@dataclass(frozen=True)
class Collect(Request[Collected]):
    """Write a kept output to a folder."""

    tag: str
    folder: str


@dataclass(frozen=True)
class Changes(Request[tuple[Violation, ...]]):
    """Tell what the candidates changed of their process (rules T2, T4, H1)."""


@dataclass(frozen=True)
class WarmedUp:
    """Estimates of device and host time in microseconds, and the size of the L2 cache."""

    device_us: float
    host_us: float
    l2_bytes: int


@dataclass(frozen=True)
class WarmUp(Request[WarmedUp]):
    """Call a function for the first times."""

    name: str


@dataclass(frozen=True)
class Round(Request[tuple[float, ...]]):
    """Time each launch on fresh values (device microseconds); the output of number `keep` is held back under a tag."""

    name: str
    launches: int
    host_us: float
    shift: int
    keep: int = -1
    tag: str = ""


@dataclass(frozen=True)
class Estimate(Request[float]):
    """Measure the device time of one launch in microseconds, from a few of them."""

    name: str
    host_us: float


@dataclass(frozen=True)
class Host(Request[float]):
    """Measure the host time of one call in microseconds."""

    name: str


@dataclass(frozen=True)
class Burst(Request[None]):
    """Launch back to back, for the parent's own clock."""

    name: str
    launches: int


@dataclass(frozen=True)
class Prepared:
    """The rotating copies, a summary of the inputs, bytes that are read and written, and the algorithm's work."""

    copies: tuple[tuple[Value, ...], ...]
    inputs: str
    read_bytes: int
    written_bytes: int
    work: Work


@dataclass(frozen=True)
class Prepare(Request[Prepared]):
    """Draw the rotating copies of the inputs, one a seed."""

    seeds: tuple[int, ...]
    folder: str


@dataclass(frozen=True)
class Baseline(Request[None]):
    """Make a baseline callable: the reference as it is, compiled in a mode, or a function of another file."""

    name: str
    mode: str = ""
    path: str = ""
    function: str = ""


@dataclass(frozen=True)
class Compare(Request[str]):
    """Tell what is wrong with a baseline's result; empty where it computes what the reference does."""

    name: str
    tolerances: Tolerances


@dataclass(frozen=True)
class MachineRates:
    """Copy bandwidth, the theoretical peak (bytes a second) and matrix products by dtype (FLOP/s), where known."""

    copy: float
    peak: float | None
    matmul: dict[str, float | None]


@dataclass(frozen=True)
class Machine(Request[MachineRates]):
    """Measure this machine."""

    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class Kept:
    """One output held back: its tag, which launch of its round made it, and (shift, launches) of each round so far."""

    tag: str
    launch: int
    rounds: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class JudgeAt(Request[Judged]):
    """Judge an output of a timed launch, on what its inputs had become by then."""

    kept: Kept
    collected: Collected
    tolerances: Tolerances
