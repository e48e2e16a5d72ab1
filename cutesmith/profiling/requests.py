"""What an emulating worker and the process under ncu are asked, and what they reply."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutesmith.judge.transfer.requests import Value
from cutesmith.sandbox.child import Raised
from cutesmith.sandbox.messages import Request
from cutesmith.verdicts import EmulatedLaunch, ExitCode, TraceStep


@dataclass(frozen=True)
class Start(Request[None]):
    """Import the libraries, which takes seconds that are not the file's."""


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """What to trace: a warp of a block (flat index) of a launch, and the lane whose values are shown."""

    block: int = 0
    warp: int = 0
    lane: int = 0
    launch: int = 0
    steps: int = 2000


@dataclass(frozen=True)
class Prepared:
    """The inputs, and how many elements they have, for the case that the call does not end."""

    inputs: str
    size: str


@dataclass(frozen=True, kw_only=True)
class Prepare(Request[Prepared]):
    """Load a kernel file and make its inputs.

    `sources` are the texts of the files by their paths, since a confined process may not read them. `problem` gives
    `get_inputs` where the kernel file has none; `full`: inputs keep their rows. `orders`: see emulator's Settings.
    """

    path: Path
    problem: Path | None = None
    sources: dict[str, str]
    arch: str
    full: bool = False
    profile: bool = False
    trace: TraceRequest | None = None
    seed: int = 0
    orders: int = 1


@dataclass(frozen=True)
class RunError:
    """What ended the run."""

    exit_code: ExitCode
    message: str
    hint: str
    log_tail: str


@dataclass(frozen=True, kw_only=True)
class Emulated:
    """What the launches did until `error` ended the run; fields as of `EmulateVerdict`."""

    inputs: str
    full_inputs: str
    tensor_bytes: int
    output_elements: int
    shrunk: float  # how many times the bytes of `inputs` those of `get_inputs()` are; 1 where nothing was shrunk
    launches: tuple[EmulatedLaunch, ...]
    trace: tuple[TraceStep, ...]
    traced: str
    confinement: dict[str, bool]
    error: RunError | None


@dataclass(frozen=True)
class Emulate(Request[Emulated]):
    """Call `kernel_fn` of the prepared file."""


@dataclass(frozen=True, kw_only=True)
class ProfileFile:
    """A kernel file to call under ncu, its inputs as written tensors, and the limits of the process."""

    path: Path
    device: str
    inputs: tuple[Value, ...]
    file_bytes: int
    cpu_seconds: int


@dataclass(frozen=True)
class Progress:
    """How far the process under ncu has come: a line of its status file, whose last line counts.

    `stage` is what it does. `confinement` is None until the process is confined; the kernel's file is loaded after
    that. `output_bytes` is None until all is done.
    """

    stage: str = ""
    confinement: dict[str, bool] | None = None
    error: Raised | None = None
    output_bytes: int | None = None
