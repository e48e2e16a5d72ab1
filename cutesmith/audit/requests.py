"""What an auditing worker is asked, and its replies."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.sandbox.messages import Request
from cutesmith.verdicts import InputKind


@dataclass(frozen=True)
class Start(Request[dict[str, bool]]):
    """Confine the process, and tell which layers of the confinement hold."""


@dataclass(frozen=True)
class Loaded:
    """The inputs of get_inputs(), as `AuditVerdict` has them, the lines of names, and the file's tolerance."""

    inputs: tuple[dict[str, object], ...]
    input_bytes: int
    lines: dict[str, int]
    tolerance: dict[str, float]


@dataclass(frozen=True)
class Load(Request[Loaded]):
    """Run a file, whose text is handed over; `host_bytes` of memory are for its draws."""

    path: str
    source: str
    arch: str
    host_bytes: int


@dataclass(frozen=True)
class Found:
    """One thing that is wrong: a rule of `ADVICE`, and a sentence."""

    rule: str
    message: str


@dataclass(frozen=True)
class CountedWork:
    """Bytes and tensor-core operations by dtype at full size; `flops` is None where counting them needs values."""

    bytes: int
    flops: dict[str, int] | None


@dataclass(frozen=True)
class Tried:
    """What was found, and on what; fields as of `AuditVerdict`."""

    findings: tuple[Found, ...]
    outputs: tuple[dict[str, object], ...]
    output_bytes: int
    work: CountedWork
    sets: tuple[str, ...]
    tried: str
    domain: dict[str, str]
    kinds: tuple[InputKind, ...]


@dataclass(frozen=True)
class Try(Request[Tried]):
    """Call the reference of the loaded file on all that can be drawn."""
