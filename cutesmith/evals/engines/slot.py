"""One slot of this machine: a long-lived child process that runs stages one at a time, replaced when it dies or hangs.

A child that stays saves its imports (measured: docs/evals.md), and all slots of this process have their workers
forked from one fork server. The candidates never run in it: each is in confined workers of its own, so that a
poisoned CUDA context dies with those.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from cutesmith import resources
from cutesmith.errors import CutesmithError
from cutesmith.evals.engines.jobs import Job, StageResult
from cutesmith.sandbox.child import HEADER, write_frame
from cutesmith.sandbox.shared_fork_server import lend_fork_server

# torch.compile in a judge beside others: a pool of its own would be as many processes as there are cores, which import
# PyTorch first, 6 s each on the machine of an H200.
ONE_COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
JOBS_BEFORE_RENEWAL = 100  # whatever leaks in a library ends with the child
LOG_TAIL = 1500
GRACE_SECONDS = 5.0


class LostJobError(CutesmithError):
    """The process that had the job is gone; nothing is known of the kernel."""


class Slot:
    """A name such as "gpu0", the environment of its process, and that process once there is one."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self._environment = {**ONE_COMPILER, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self._served = 0

    def run(self, job: Job) -> StageResult:
        """The job's result; raises LostJobError when the process dies or takes longer than the job may."""
        if self._process is not None and (self._process.poll() is not None or self._served >= JOBS_BEFORE_RENEWAL):
            self.end()
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            write_frame(process.stdin.fileno(), job.model_dump(mode="json"))
            replies, deadline = process.stdout.fileno(), time.monotonic() + job.seconds
            (size,) = HEADER.unpack(_read(replies, HEADER.size, deadline))
            result = StageResult.model_validate_json(_read(replies, size, deadline))
        except (OSError, ValueError) as error:
            raise self._lost(f"{job.stage}: {error}") from error
        self._served += 1
        return result

    def ask_to_end(self) -> None:
        """Let the process clear up after itself; `end` waits for it."""
        if self._process is not None:
            self._process.terminate()

    def end(self) -> None:
        """End the process, by force if it takes long, and whatever it started; any thread may do so."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, self._log):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _start(self) -> subprocess.Popen[bytes]:
        self._served, self._log = 0, tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        path = os.pathsep.join(p for p in (str(resources.PACKAGE.parent), os.environ.get("PYTHONPATH", "")) if p)
        with lend_fork_server(self._environment) as (variables, descriptors):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cutesmith.evals.engines.stage_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**self._environment, **variables, "PYTHONPATH": path},
                pass_fds=descriptors,
                start_new_session=True,
            )
        return self._process

    def _lost(self, what: str) -> LostJobError:
        """End what is left of the process; says how it went and what it said last."""
        process, log = self._process, self._log
        code = process.poll() if process is not None else None
        tail = b""
        with contextlib.suppress(OSError, ValueError):
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL))
            tail = log.read()
        self.end()
        how = "" if code is None else f" (exit code {code})"
        said = tail.decode(errors="replace").strip()
        return LostJobError(f"{self.name}: the judge's process is gone{how}: {what}", hint=said)


def _read(descriptor: int, size: int, deadline: float) -> bytes:
    """So many bytes of a pipe; raises OSError at its end and after the deadline."""
    parts = bytearray()
    while len(parts) < size:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise TimeoutError("it did not answer in time")
        part = os.read(descriptor, min(size - len(parts), 1 << 20))
        if not part:
            raise ConnectionResetError("it ended without an answer")
        parts += part
    return bytes(parts)
