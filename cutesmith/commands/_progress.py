"""How far a command is, on stderr: bars on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutesmith.runtime.tuning import Progress

LINE_SECONDS = 5.0  # at least between two lines of one stage


@contextmanager
def progress_display(*, quiet: bool = False) -> Iterator[Progress]:
    """A progress bar on stderr when that is a terminal, plain lines otherwise; nothing when `quiet`."""
    if quiet:
        yield lambda stage, done, total, message="": None
        return
    if not sys.stderr.isatty():
        yield Lines()
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TaskID,
            TextColumn,
            TimeElapsedColumn,
        )
    except ImportError:
        yield Lines()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int, message: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, message="")
            line = (message.splitlines() or [""])[0][:80].replace("[", "\\[")  # rich's markup switched off
            bars.update(tasks[stage], completed=done, total=total, message=line)

        yield show


class Lines:
    """A line where a stage ends, where it begins if there is something to say of that, and now and then between."""

    def __init__(self, seconds: float = LINE_SECONDS) -> None:
        self._last, self._seconds = time.monotonic(), seconds

    def __call__(self, stage: str, done: int, total: int, message: str = "") -> None:
        now = time.monotonic()
        if done == total or message or (done and now - self._last >= self._seconds):
            counted = f"{done}/{total} " if done else ""
            print(f"{stage}: {counted}{message}".rstrip(), file=sys.stderr, flush=True)
            self._last = now
