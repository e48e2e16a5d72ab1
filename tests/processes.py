"""What tests ask about processes, read from /proc."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def status_of(pid: int, name: str) -> str:
    """A field of a process's status; raises OSError for one that is gone."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def running(pid: int) -> bool:
    """Whether it lives; a zombie does not."""
    try:
        return status_of(pid, "State") != "Z"
    except OSError:
        return False


def command_line(pid: int | str) -> str:
    """Empty for a process that is gone, and for a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for what happens soon; a busy machine may need longer."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
