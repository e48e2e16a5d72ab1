"""What can go wrong on the way to an example: one kind each, with the exit code that says what to do next."""

from __future__ import annotations

import errno
from pathlib import Path

from cutesmith.errors import CutesmithError
from cutesmith.verdicts import ExitCode

KINDS = {
    "hash_mismatch": ExitCode.WRONG_RESULT,
    "too_large": ExitCode.WRONG_RESULT,
    "exists": ExitCode.USAGE,
    "unsafe_path": ExitCode.USAGE,
    "bad_address": ExitCode.USAGE,
    "timed_out": ExitCode.TIMED_OUT,
    "not_found": ExitCode.UNAVAILABLE,
    "no_network": ExitCode.UNAVAILABLE,
    "broken_off": ExitCode.UNAVAILABLE,
    "server": ExitCode.UNAVAILABLE,
    "not_cached": ExitCode.UNAVAILABLE,
    "not_installed": ExitCode.UNAVAILABLE,
    "disk_full": ExitCode.UNAVAILABLE,
    "not_writable": ExitCode.UNAVAILABLE,
    "not_readable": ExitCode.UNAVAILABLE,
}
"""Every kind of `FetchError` with its exit code: 1 what came is not the example, 6 timed out, 7 not from here."""

_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG}


class FetchError(CutesmithError):
    """An example could not be brought; `kind` is of `KINDS`.

    `retry` says that another attempt may help, `wait` after how many seconds (None: as the back-off says).
    """

    def __init__(
        self, kind: str, message: str, *, hint: str = "", retry: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.exit_code = KINDS[kind]
        self.retry = retry
        self.wait = wait


def writing_error(path: Path, error: OSError) -> FetchError:
    """What an OSError while writing `path` means: a full disk, or a folder that cannot be written."""
    if error.errno in _FULL:
        return FetchError("disk_full", f"{path}: {error.strerror}", hint="Make room there, or give another --out.")
    return FetchError(
        "not_writable", f"{path}: {error.strerror or error}", hint="Give a folder that you may write with --out."
    )
