"""How a worker's process is started: forked from the fork server where possible, else as a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cutesmith.sandbox.child import Program
from cutesmith.sandbox.fork_server_orders import Fork
from cutesmith.sandbox.messages import encode
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
    """One worker to be, and its ends of the three pipes."""

    program: Program
    scratch: Path
    environment: dict[str, str]
    requests: int
    replies: int
    log: int

    def start(self) -> tuple[WorkerProcess, str]:
        """The process, in a session of its own with no descriptors but its pipes and /dev/null; and why not forked."""
        order = Fork(self.program, str(self.scratch), self.environment)
        forked = fork_worker(order, (self.requests, self.replies, self.log))
        return (self._execute(), forked) if isinstance(forked, str) else (forked, "")

    def _execute(self) -> subprocess.Popen[bytes]:
        program = json.dumps(encode(self.program, Program))
        return subprocess.Popen(
            [sys.executable, "-m", "cutesmith.sandbox.child", program, str(self.requests), str(self.replies)],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            cwd=self.scratch,
            env=self.environment,
            pass_fds=(self.requests, self.replies),
            start_new_session=True,
        )
