"""How far a command is, on stderr: bars on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutesmith.runtime.tuning import Progress


@contextmanager
def progress_display(*, quiet: bool = False) -> Iterator[Progress]:
    """A progress bar on stderr when that is a terminal, plain lines otherwise; nothing when `quiet`."""
    if quiet:
        yield lambda stage, done, total, message="": None
        return
    if not sys.stderr.isatty():
        yield _print_step
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
        yield _print_step
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


def _print_step(stage: str, done: int, total: int, message: str = "") -> None:
    """A line where a stage ends, and where it begins if there is something to say of that."""
    if done == total or message:
        counted = f"{done}/{total} " if done else ""
        print(f"{stage}: {counted}{message}".rstrip(), file=sys.stderr, flush=True)
