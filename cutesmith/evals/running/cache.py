"""Outcomes of earlier runs by key: KEY.json holds an attempt and its verdicts. A damaged file is no entry."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cutesmith.checkpoints import write_atomically
from cutesmith.evals.records import Attempt
from cutesmith.verdicts import ExitCode, strict_json

DEFAULT_CACHE = Path("~/.cache/cutesmith/evals")
UNSETTLED = (ExitCode.TIMED_OUT, ExitCode.UNAVAILABLE, ExitCode.INTERNAL)
"""Depends on how busy the machine was, or says nothing of the kernel."""
CLOCK_RULE = "T4"  # so does the comparison of two clocks


@dataclass(frozen=True)
class Remembered:
    """One entry."""

    attempt: Attempt
    verdicts: dict[str, Any]


class Cache:
    """Entries in a folder; None for no folder: nothing is found and nothing kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def find(self, key: str) -> Remembered | None:
        """The entry of that key."""
        if self.folder is None:
            return None
        try:
            known = json.loads(self._path(key).read_bytes())
            attempt = Attempt.model_validate(known["attempt"])
            verdicts = dict(known["verdicts"])
        except (OSError, ValueError, TypeError, KeyError, ValidationError):
            return None
        return Remembered(attempt, verdicts) if attempt.key == key else None

    def keep(self, attempt: Attempt, verdicts: dict[str, Any]) -> None:
        """Remember an outcome, if it would be the same again; a cache that cannot be written is none."""
        unsettled = attempt.exit_code in UNSETTLED or attempt.rule == CLOCK_RULE
        if self.folder is None or unsettled or attempt.cached:
            return
        path = self._path(attempt.key)
        data = {"attempt": attempt.model_dump(mode="json"), "verdicts": verdicts}
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, strict_json(data).encode())

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key}.json"
