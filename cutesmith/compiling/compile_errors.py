"""An exception of a kernel file as an exit code, the DSL's own error code and message, and the file's line."""

from __future__ import annotations

import inspect
import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from cutesmith.errors import ContractError, UnavailableError
from cutesmith.problems.loading import LoadError
from cutesmith.sandbox.readable import refusal
from cutesmith.unicode import plain_text
from cutesmith.verdicts import ExitCode

MAX_MESSAGE = 6000


NESTING = (
    "The two operands' shapes, in this order, nest differently. A piece of `cute.zipped_divide(t, (n,))` has the shape "
    "(n,), one of a layout `(n, m)` or a tensor made with the shape n has n: give both the same nesting, such as "
    "`cute.make_rmem_tensor((n,), …)`, or `cute.make_tensor(t.iterator, cute.make_layout((n, m)))` for the division."
)


@dataclass(frozen=True, kw_only=True)
class CompileError:
    """What went wrong, for the report of one architecture: `line` is the file's, 0 when no line of it is known.

    `wants_values`: a tensor without storage was asked for its values.
    """

    exit_code: ExitCode
    code: str
    message: str
    line: int
    wants_values: bool = False


def describe_error(error: BaseException, path: Path, *, compiling: bool) -> CompileError:
    """Classify an exception that running the file raised; `compiling` says whether it left a compilation.

    The DSL's errors and whatever a compilation raises mean "does not compile" (4), a broken contract 2, what no GPU of
    the architecture has 7, the rest "crashed" (5) with the traceback's tail.
    """
    from cutlass.base_dsl.common import DSLBaseError

    # What the file itself raised: a loader wraps it and keeps it as the cause.
    cause = error.__cause__ if isinstance(error, LoadError) and error.__cause__ is not None else error
    if isinstance(cause, ContractError):
        return CompileError(exit_code=ExitCode.USAGE, code="CONTRACT", message=str(cause), line=0)
    if isinstance(cause, UnavailableError):
        line = _line(cause, path, "")
        return CompileError(exit_code=cause.exit_code, code="UNAVAILABLE", message=str(cause), line=line)
    code = type(cause).__name__
    if compiling or isinstance(cause, DSLBaseError):
        message = plain_text(str(cause)).strip() or code
        message = f"{message}\n{NESTING}" if _nests_differently(cause) else message
        named = (getattr(cause, name, None) for name in ("code", "error_code", "backend"))
        code, line = str(next(filter(None, named), code)), _line(cause, path, message)
        if len(message) > MAX_MESSAGE:  # the DSL says what is wrong at the head
            half = MAX_MESSAGE // 2
            left_out = f"… {len(message) - 2 * half} characters left out …"
            message = f"{message[:half]}\n{left_out}\n{message[-half:]}"
        return CompileError(
            exit_code=ExitCode.DOES_NOT_COMPILE,
            code=code,
            message=message,
            line=line,
            wants_values=_wants_values(cause),
        )
    trace = cause.__traceback__  # from the file's first frame on; all of it when no frame is the file's
    while trace is not None and trace.tb_frame.f_code.co_filename not in {str(path), str(path.resolve())}:
        trace = trace.tb_next
    lines = traceback.format_exception(type(cause), cause, trace or cause.__traceback__)
    tail = plain_text("".join(lines)).strip()
    tail = tail if len(tail) <= MAX_MESSAGE else f"…{tail[-MAX_MESSAGE:]}"
    message = ". ".join(filter(None, (tail, refusal(cause)[1])))
    return CompileError(
        exit_code=ExitCode.CRASHED,
        code=code,
        message=message,
        line=_line(cause, path, ""),
        wants_values=_wants_values(cause),
    )


def _nests_differently(error: BaseException) -> bool:
    """Whether the DSL combined two shapes leaf by leaf, and one has a tuple where the other has a number."""
    from cutlass.cute.tuple import transform_leaf

    raised = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)][-1:]
    return isinstance(error, TypeError) and raised == [inspect.unwrap(transform_leaf).__code__]


def _wants_values(error: BaseException) -> bool:
    """Whether torch names the meta device, or the facade says so, also as a cause."""
    from cutesmith.recording.facade import ValuesNeeded

    cause = error.__cause__ or error.__context__
    wanted = isinstance(error, (ValuesNeeded, NotImplementedError)) or "meta" in str(error)
    return wanted or (cause is not None and _wants_values(cause))


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
