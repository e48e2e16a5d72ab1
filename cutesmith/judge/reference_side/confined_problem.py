"""The reference's side for a problem that is not trusted, such as one that a kernel's own file brings.

The process is confined as a candidate's is before the file runs, and what is refused to it is told as a candidate's.
It may say of its problem what it likes; the verdict says whose problem that is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cutesmith.errors import CandidateError
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Load, Loaded
from cutesmith.problems import contract
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.failures import describe_failure, out_of_host_memory
from cutesmith.sandbox.messages import R, Request
from cutesmith.sandbox.readable import INPUTS
from cutesmith.verdicts import ExitCode

CONFINED = "The problem is confined here as the kernel is."
_REFUSALS = (PermissionError, SystemExit)


class ConfinedProblem:
    """The reference that `make` gives, or one with baselines, whose process is confined when it loads the file.

    `caches`: variables that name folders for what compilers write; with them, programs may be started.
    """

    def __init__(self, make: Callable[[], Reference], caches: Sequence[str] = ()) -> None:
        self.reference, self.caches, self.path = make(), caches, Path()
        self.layers: dict[str, bool] = {}  # of the confinement that hold

    def handle(self, request: Request[R]) -> R:
        """As the reference does; raises CandidateError (CRASHED) for what the confinement refused."""
        if isinstance(request, Load):
            self.layers = self._confine(request)
        with refusals_told(self.path):
            reply = self.reference.handle(request)
        return replace(reply, confinement=self.layers) if isinstance(reply, Loaded) else reply

    def _confine(self, request: Load) -> dict[str, bool]:
        """Inputs are written by this side, outputs only read; both lie beside the scratch folder, and in `exchanges`.

        torch.compile hashes the file whose functions it compiles.
        """
        self.path, exchanges = Path(request.path), [Path.cwd().parent, *map(Path, request.exchanges)]
        contract.hold(self.path)
        return confine(
            readable=[self.path, *(each / "candidate" for each in exchanges), *map(Path, request.readable)],
            writable=[*(each / INPUTS for each in exchanges), *(Path(os.environ[name]) for name in self.caches)],
            programs=bool(self.caches),
        )


@contextlib.contextmanager
def refusals_told(path: Path) -> Iterator[None]:
    """What the confinement refused, or the limits, becomes a CandidateError with its line; all else passes through."""
    try:
        yield
    except CandidateError:
        raise
    except (Exception, SystemExit) as error:
        if (cause := _refused(error)) is None:
            raise
        told = describe_failure(path, cause)
        hint = f"{CONFINED} {told.hint}".strip()
        raise told.reworded(told.message, hint=hint, exit_code=ExitCode.CRASHED) from error


def _refused(error: BaseException | None) -> BaseException | None:
    """The innermost in the chain of causes that is of the confinement or the limits, or ends the process."""
    found = None
    while error is not None:
        found = error if isinstance(error, _REFUSALS) or out_of_host_memory(error) else found
        error = error.__cause__
    return found
