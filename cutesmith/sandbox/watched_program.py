"""Runs a tool that watches a kernel, and whatever it starts, as one tree of processes: bounded in time, memory, number
and output."""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutesmith.sandbox.environment import clean_environment
from cutesmith.sandbox.limits import Limits, LogTail, Watch
from cutesmith.sandbox.processes import ProcessTree

WATCH_SECONDS = 0.1


@dataclass(frozen=True)
class Finished:
    """How a program ended: its exit code, the tail of what it printed, and why it was stopped ("" when it was not).

    `timed_out` tells a stop by the clock from one by the other limits.
    """

    code: int
    output: str
    stopped: str = ""
    timed_out: bool = False


def run_watched(
    command: Sequence[str], *, cwd: Path, limits: Limits, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run a program with a clean environment; everything that it started is gone afterwards.

    Raises OSError when it cannot be started.
    """
    token = secrets.token_hex(8)
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**clean_environment(cwd, environment), ProcessTree.MARK: token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    watch = Watch(ProcessTree(process.pid, token), cwd)
    try:
        return _watch(process, watch, limits)
    finally:
        watch.tree.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _watch(process: subprocess.Popen[bytes], watch: Watch, limits: Limits) -> Finished:
    assert process.stdout is not None
    pipe, log, open_ = process.stdout.fileno(), LogTail(), True
    os.set_blocking(pipe, False)
    deadline, watched = time.monotonic() + limits.call_seconds, 0.0
    while True:
        if open_ and select.select([pipe], [], [], WATCH_SECONDS)[0]:
            open_ = log.drain(pipe, limits.log_bytes)
        elif not open_:
            time.sleep(WATCH_SECONDS)
        if (code := process.poll()) is not None:
            log.drain(pipe, limits.log_bytes)
            return Finished(code, log.text)
        if (now := time.monotonic()) > deadline:
            return Finished(-1, log.text, f"did not finish within {limits.call_seconds:g} s", timed_out=True)
        if now > watched + WATCH_SECONDS:
            watched = now
            if excess := watch.excess(limits):
                return Finished(-1, log.text, excess.what)
