"""An exception of a kernel file as an exit code, the DSL's own error code and message, and the file's line."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cutesmith.errors import ContractError
from cutesmith.problems.loading import LoadError
from cutesmith.sandbox.readable import refusal
from cutesmith.unicode import plain_text
from cutesmith.verdicts import ExitCode

MAX_MESSAGE = 6000


@dataclass(frozen=True, kw_only=True)
class CompileError:
    """What went wrong, for the report of one architecture: `line` is the file's, 0 when no line of it is known."""

    exit_code: ExitCode
    code: str
    message: str
    line: int


def describe_error(error: BaseException, path: Path, *, compiling: bool) -> CompileError:
    """Classify an exception that running the file raised; `compiling` says whether it left a compilation.

    The DSL's errors and whatever a compilation raises mean "does not compile" (4), a broken contract 2, the rest
    "crashed" (5) with the traceback's tail.
    """
    cause = _own_cause(error)
    if isinstance(cause, ContractError):
        return CompileError(exit_code=ExitCode.USAGE, code="CONTRACT", message=str(cause), line=0)
    if compiling or _is_dsl_error(cause):
        message = _clean(str(cause)) or type(cause).__name__
        code = _code(cause) or type(cause).__name__
        return CompileError(
            exit_code=ExitCode.DOES_NOT_COMPILE, code=code, message=_bounded(message), line=_line(cause, path, message)
        )
    tail = _clean("".join(traceback.format_exception(type(cause), cause, _from_file(cause, path))))
    code = type(cause).__name__
    message = ". ".join(filter(None, (_tail(tail), refusal(cause)[1])))
    return CompileError(exit_code=ExitCode.CRASHED, code=code, message=message, line=_line(cause, path, ""))


def _own_cause(error: BaseException) -> BaseException:
    """What the file itself raised: a loader wraps it and keeps it as the cause."""
    return error.__cause__ if isinstance(error, LoadError) and error.__cause__ is not None else error


def _is_dsl_error(error: BaseException) -> bool:
    from cutlass.base_dsl.common import DSLBaseError

    return isinstance(error, DSLBaseError)


def _code(error: BaseException) -> str:
    named: Any = getattr(error, "code", None) or getattr(error, "error_code", None) or getattr(error, "backend", None)
    return str(named) if named else ""


def _line(error: BaseException, path: Path, message: str) -> int:
    """The line that the DSL names, else the innermost line of the file in the traceback."""
    names = {str(path), str(path.resolve())}
    if getattr(error, "filename", None) in names and isinstance(getattr(error, "line", None), int):
        return int(error.line)  # type: ignore[attr-defined]
    for name in names:
        shown = re.search(re.escape(name) + r'(?:"?:|", line )(\d+)', message)
        if shown:
            return int(shown[1])
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 0 for frame in reversed(frames) if frame.filename in names), 0)


def _from_file(error: BaseException, path: Path) -> TracebackType | None:
    """The traceback from the file's first frame on; all of it when no frame is the file's."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename not in {str(path), str(path.resolve())}:
        frame = frame.tb_next
    return frame or error.__traceback__


def _clean(text: str) -> str:
    return plain_text(text).strip()


def _bounded(text: str) -> str:
    """A long message keeps its head (the DSL says what is wrong there) and its tail."""
    if len(text) <= MAX_MESSAGE:
        return text
    half = MAX_MESSAGE // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _tail(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"…{text[-MAX_MESSAGE:]}"
