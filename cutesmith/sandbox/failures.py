"""Whose fault an exception in a candidate's process is: the candidate's, with its line, or this package's own."""

from __future__ import annotations

import contextlib
import errno
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from cutesmith.errors import CandidateError, ContractError, CutesmithError, UnavailableError
from cutesmith.sandbox.readable import refusal
from cutesmith.verdicts import ExitCode, Mechanism

_EMULATOR = Path(__file__).resolve().parent.parent / "emulator"
_NUMERICS = {"numpy", "llvmlite"}  # the emulator's libraries
# What torch and CUDA say where others have a GPU's memory: to who asks for more, and to who comes (seen on an H200).
_NO_ROOM = ("out of memory", "CUDA-capable device(s) is/are busy or unavailable")
_CUDA_ERROR = re.compile(r"cuda[ _]?error", re.IGNORECASE)
_REPORT = "Please report it with the lines of log_tail."


@contextlib.contextmanager
def own_code() -> Iterator[None]:
    """Whatever is raised inside, beside our typed errors, becomes an internal error: no candidate runs there."""
    try:
        yield
    except (CutesmithError, MemoryError):
        raise
    except Exception as error:
        raise _internal(error) from error


def describe_failure(path: Path, error: BaseException) -> CandidateError:
    """What running the file raised, as an error that its verdict takes.

    DOES_NOT_COMPILE for the DSL's own errors, INTERNAL for what the emulated GPU raised while it executed the kernel,
    CRASHED for all others.
    """
    if _of_the_emulator(error):
        return _internal(error)
    compiles = any(kind.__module__.split(".")[0] == "cutlass" for kind in type(error).__mro__)
    code = ExitCode.DOES_NOT_COMPILE if compiles else ExitCode.CRASHED
    frames = reversed(traceback.extract_tb(error.__traceback__))
    line = next((frame.lineno for frame in frames if Path(frame.filename).name == path.name), None)
    text = str(error).strip() or "(no message)"
    where = f"{path.name}:{line}" if line else path.name
    rule, hint = refusal(error)
    told = _traceback_of(error).replace(str(path), path.name)  # it lies nowhere: `candidate_side.kernel_file.hold_text`
    message = f"{where}: {type(error).__name__}: {text[:2000]}"
    return CandidateError(message, code, hint=hint, log_tail=told, rule=rule, mechanism=mechanism_of(error))


def mechanism_of(error: BaseException) -> Mechanism:
    """Which limit of its process an exception comes from, if any; that of the problem's process for a ContractError."""
    if isinstance(own := getattr(error, "mechanism", None), Mechanism):
        return own
    cause = error.__cause__
    if isinstance(error, ContractError):
        told = isinstance(cause, CandidateError) or (cause is not None and exhausted_memory(cause))
        return mechanism_of(cause) if cause is not None and told else Mechanism.CONTRACT
    if isinstance(error, UnavailableError) and cause and mechanism_of(cause) is Mechanism.GPU_MEMORY:
        return Mechanism.GPU_MEMORY
    if isinstance(error, SystemExit):
        return Mechanism.VANISHED_WORKER
    if memory := exhausted_memory(error):
        return memory
    number = error.errno if isinstance(error, OSError) else None
    known = {errno.EPERM: Mechanism.SYSTEM_CALLS}
    known |= dict.fromkeys((errno.EACCES, errno.EFBIG, errno.EROFS), Mechanism.FILE_ACCESS)
    return known.get(number or 0, Mechanism.EXCEPTION)


def exhausted_memory(error: BaseException) -> Mechanism | None:
    """Which memory ran out, the host's or the GPU's, where what Python, PyTorch or CUDA raised says so."""
    if out_of_host_memory(error):
        return Mechanism.MEMORY_LIMIT
    said = "" if isinstance(error, CutesmithError) else str(error)
    return Mechanism.GPU_MEMORY if any(words in said for words in _NO_ROOM) else None


def lost_context(error: BaseException) -> bool:
    """Whether torch, the driver or the runtime says so ("CUDA error: …", CUDA_ERROR_…, cudaError…), also as a cause."""
    said = "" if isinstance(error, CutesmithError) else str(error)
    cause = error.__cause__ or error.__context__
    return _CUDA_ERROR.search(said) is not None or (cause is not None and lost_context(cause))


def out_of_host_memory(error: BaseException) -> bool:
    """Whether no more memory could be had; PyTorch says so in a plain RuntimeError."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def _of_the_emulator(error: BaseException) -> bool:
    """Whether the emulated GPU's code, or a library that it called, raised it; too little memory is not a bug."""
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    last = next((file for file in reversed(files) if not _NUMERICS & set(file.parts)), Path())
    return last.is_relative_to(_EMULATOR) and not isinstance(error, MemoryError)


def _internal(error: BaseException) -> CandidateError:
    message = f"this is a bug of cutesmith: {type(error).__name__}: {str(error)[:2000]}"
    return CandidateError(message, ExitCode.INTERNAL, hint=_REPORT, log_tail=_traceback_of(error))


def _traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-8000:]
