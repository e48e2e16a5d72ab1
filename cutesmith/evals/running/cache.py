"""Outcomes of earlier runs by key: KEY.json holds an attempt and its verdicts. A damaged file counts as missing."""

from __future__ import annotations

import contextlib
from pathlib import Path

from cutesmith.checkpoints import write_atomically
from cutesmith.evals.records import Attempt, Record
from cutesmith.evals.stage_verdicts import JudgedKernel
from cutesmith.verdicts import ExitCode, strict_json

DEFAULT_CACHE = Path("~/.cache/cutesmith/evals")
UNSETTLED = (ExitCode.TIMED_OUT, ExitCode.UNAVAILABLE, ExitCode.INTERNAL)
"""Depends on how busy the machine was, or says nothing of the kernel."""
CLOCK_RULE = "T4"  # so does the comparison of two clocks


class Remembered(Record):
    """One entry."""

    attempt: Attempt
    verdicts: JudgedKernel


class Cache:
    """Entries in a folder; None for no folder: nothing is found and nothing kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def find(self, key: str) -> Remembered | None:
        """The entry of that key."""
        if self.folder is None:
            return None
        try:
            known = Remembered.model_validate_json(self._path(key).read_bytes())
        except (OSError, ValueError):
            return None
        return known if known.attempt.key == key else None

    def keep(self, attempt: Attempt, kernel: JudgedKernel) -> None:
        """Remember an outcome, if it would be the same again; a cache that cannot be written keeps nothing."""
        unsettled = attempt.exit_code in UNSETTLED or attempt.rule == CLOCK_RULE
        if self.folder is None or unsettled or attempt.cached:
            return
        path = self._path(attempt.key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, strict_json(Remembered(attempt=attempt, verdicts=kernel).plain()).encode())

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key}.json"
