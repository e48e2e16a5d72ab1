"""A file of lines that only grows: one writer at a time, each line on the disk before it counts.

A last line that was cut by a kill is cut off on opening; a line that the disk does not take leaves the file as it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from cutesmith.checkpoints import write_all
from cutesmith.errors import CutesmithError, UsageError
from cutesmith.verdicts import ExitCode

TAIL_BYTES = 1 << 16


class LogWriteError(CutesmithError):
    """A line could not be written: the disk is full or the folder went away. The file is as it was."""

    exit_code = ExitCode.USAGE


class AppendLog:
    """The lines of a file, and the one process that may add to them. Use as a context manager.

    `resume` is the command line that goes on once there is room again: for the hint of an error.
    """

    def __init__(self, path: Path, *, resume: str) -> None:
        self.path, self.resume = path, resume
        self._descriptor = -1

    def __enter__(self) -> AppendLog:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Open for appending; raises UsageError when another process has it open or the file cannot be written."""
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, _end_of_last_line(self._descriptor))
        except BlockingIOError:
            self._close()
            raise UsageError(
                f"{self.path.parent} is in use by another process", hint="Wait for it, or end it."
            ) from None
        except OSError as error:
            self._close()
            raise UsageError(f"{self.path} cannot be written: {error.strerror}", hint="Give another --out.") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def append(self, line: str) -> None:
        """Write one line (without its newline) and flush it to the disk; raises LogWriteError."""
        end = os.fstat(self._descriptor).st_size
        try:
            write_all(self._descriptor, (line + "\n").encode(), end)
            os.fsync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)
            wrong = f"{self.path} cannot be written: {error.strerror}"
            raise LogWriteError(wrong, hint=f"Make room, then go on with {self.resume}") from error

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _end_of_last_line(descriptor: int) -> int:
    """The offset after the last newline of an open file, looked for from its end."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - TAIL_BYTES)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
