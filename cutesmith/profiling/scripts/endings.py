"""How a script, or one of its tests, ended: an exception as an exit code and a sentence."""

from __future__ import annotations

import importlib.util
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from cutesmith.errors import CutesmithError
from cutesmith.profiling.requests import RunError
from cutesmith.sandbox.failures import describe_failure
from cutesmith.verdicts import ExitCode

_MOST = 2000
_CONFINED = (
    "A script may read its own folder, what its arguments name and --read; it may write only into its temporary folder "
    "(TMPDIR), starts no process, and has no network."
)
_OF_TORCH = Path(torch.__file__).parent
_CUDA_COMPILER = _OF_TORCH / "utils" / "cpp_extension.py"


class TimeUp(BaseException):
    """The script's time is over; no `except Exception` of its own holds it."""


def ending_of(error: BaseException, script: Path, seconds: float) -> RunError | None:
    """What an exception says of the script: None where it left with success.

    An assertion is a wrong result (1), a package or a part of CUDA that is not here 7, our own errors have their codes,
    the DSL's are 4, and all others 5.
    """
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return None
    if isinstance(error, TimeUp):
        hint = "Give it smaller sizes, or more time (--timeout)."
        return RunError(ExitCode.TIMED_OUT, f"it did not finish within {seconds:g} s", hint, "")
    if isinstance(error, SystemExit):
        return RunError(ExitCode.CRASHED, f"it left with exit code {error.code}", "", "")
    for cause in _causes(error):
        if isinstance(cause, CutesmithError):
            return RunError(cause.exit_code, cause.message, cause.hint, _tail(error))
    if isinstance(error, ModuleNotFoundError) and _is_missing(error.name or ""):
        what = f"it needs the package {error.name}, which is not installed"
        return RunError(ExitCode.UNAVAILABLE, what, f"pip install {(error.name or '').partition('.')[0]}", _tail(error))
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    if _CUDA_COMPILER in files:
        return RunError(ExitCode.UNAVAILABLE, "the script needs CUDA's compiler: `torch.utils.cpp_extension`", "", "")
    if files and files[-1].is_relative_to(_OF_TORCH / "cuda"):
        what = f"PyTorch cannot do this without CUDA: {str(error).strip()[:_MOST]}"
        return RunError(ExitCode.UNAVAILABLE, what, "", _tail(error))
    if isinstance(error, AssertionError):
        return _asserted(error)
    told = describe_failure(script, error)
    kept_out = any(isinstance(cause, (PermissionError, socket.gaierror)) for cause in _causes(error))
    hint = _CONFINED if kept_out else told.hint
    return RunError(told.exit_code, told.message, hint, told.log_tail)


def print_traceback(error: BaseException, script: Path) -> None:
    """On stderr, from the script's own first frame on, as Python would."""
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename) != script:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)


def _asserted(error: AssertionError) -> RunError:
    frames = traceback.extract_tb(error.__traceback__)
    text = str(error).strip()[:_MOST] or f"`{frames[-1].line}`" if frames else str(error)[:_MOST]
    own = next((frame for frame in reversed(frames) if "site-packages" not in Path(frame.filename).parts), None)
    where = f"{Path(own.filename).name}:{own.lineno}: " if own else ""
    return RunError(ExitCode.WRONG_RESULT, f"{where}{text}", "", _tail(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it was raised from or while handling, the latest first."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _is_missing(module: str) -> bool:
    top = module.partition(".")[0]
    return bool(top) and importlib.util.find_spec(top) is None


def _tail(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-8000:]
