"""What a process of a tuning run is asked, and its replies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutesmith.judge.transfer.requests import Value
from cutesmith.runtime.tiling import TiledShape
from cutesmith.sandbox.messages import Request


@dataclass(frozen=True)
class TimerFacts:
    """The timer's name, whether its samples vary from round to round, and whether they are times."""

    timer: str
    repeats: bool
    is_time: bool


@dataclass(frozen=True)
class Start(Request[TimerFacts]):
    """Bring up the device ("cuda", "emulator") and the timer: `module:Class`, or "" for the device's own."""

    device: str
    arch: str
    timer: str


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """The plan: its tilings as `Tiling.to_dict` has them, its sizes, the algorithm's work, and its inputs."""

    tilings: tuple[dict[str, object], ...]
    shape: TiledShape
    flops: int
    bytes: int
    inputs: str


@dataclass(frozen=True, kw_only=True)
class Load(Request[PlanFacts]):
    """Make the plan of a file's function; `inputs` describe written tensors, None: `get_inputs` under `seed`."""

    path: Path
    function: str
    inputs: tuple[Value, ...] | None
    seed: int


@dataclass(frozen=True)
class Compile(Request[float]):
    """Compile the tiling at this place of the plan; the reply is seconds."""

    index: int


@dataclass(frozen=True)
class Prepare(Request[None]):
    """First launches of a compiled tiling."""

    index: int


@dataclass(frozen=True)
class Round(Request[tuple[float, ...]]):
    """One round of launches of a prepared tiling; the reply is samples in microseconds."""

    index: int


@dataclass(frozen=True)
class MachineRates:
    """Bytes a second of a copy, operations a second of a matrix product; None where nothing was measured."""

    copy: float | None = None
    matmul: float | None = None


@dataclass(frozen=True)
class MeasureMachine(Request[MachineRates]):
    """Measure what the device can do: a product only where the plan has some."""
