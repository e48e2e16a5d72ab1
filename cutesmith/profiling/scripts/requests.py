"""What the worker of a script is asked, and what it replies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutesmith.profiling.requests import RunError
from cutesmith.sandbox.messages import Request
from cutesmith.verdicts import ScriptFault, ScriptKernel, ScriptTest


@dataclass(frozen=True, kw_only=True)
class ScriptRan:
    """What came of a script until it ended, or `error` ended it; `error` is None where tests say what went wrong."""

    kernels: tuple[ScriptKernel, ...]
    faults: tuple[ScriptFault, ...]
    tests: tuple[ScriptTest, ...]
    notes: tuple[str, ...]
    confinement: dict[str, bool]
    error: RunError | None


@dataclass(frozen=True, kw_only=True)
class RunScript(Request[ScriptRan]):
    """Run `words` ("FILE ARGS…" or "-m MODULE ARGS…") in `folder`; `readable` files and folders may be read.

    After `seconds` the script is interrupted, and what it did so far is the reply.
    """

    words: tuple[str, ...]
    folder: Path
    readable: tuple[Path, ...]
    arch: str
    seconds: float
