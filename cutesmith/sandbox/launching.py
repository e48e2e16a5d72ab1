"""How a worker's process is started: forked from the fork server where possible, else as a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cutesmith.sandbox.shared_fork_server import fork_worker


class WorkerProcess(Protocol):
    """What the two ways have in common; `wait` raises `subprocess.TimeoutExpired`."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, minus the signal's number where one ended it; None while the process lives."""

    def wait(self, timeout: float | None = None) -> int:
        """As `poll`, once the process has ended."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One worker to be: `settings` as `child.py` reads them, and its ends of the three pipes."""

    entry: str
    settings: dict[str, Any]
    scratch: Path
    environment: dict[str, str]
    requests: int
    replies: int
    log: int

    def start(self) -> tuple[WorkerProcess, str]:
        """The process, in a session of its own with no descriptors but its pipes and /dev/null; and why not forked."""
        order = {"entry": self.entry, "settings": self.settings, "environment": self.environment}
        pipes = (self.requests, self.replies, self.log)
        forked = fork_worker({**order, "scratch": str(self.scratch)}, pipes)
        return (self._execute(), forked) if isinstance(forked, str) else (forked, "")

    def _execute(self) -> subprocess.Popen[bytes]:
        arguments = [self.entry, str(self.requests), str(self.replies), json.dumps(self.settings)]
        return subprocess.Popen(
            [sys.executable, "-m", "cutesmith.sandbox.child", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            cwd=self.scratch,
            env=self.environment,
            pass_fds=(self.requests, self.replies),
            start_new_session=True,
        )
