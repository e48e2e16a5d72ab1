"""What a worker may use of the machine, and whether it uses more at this moment."""

from __future__ import annotations

import codecs
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cutesmith.sandbox.processes import ProcessTree, Usage
from cutesmith.sandbox.scratch import content_of
from cutesmith.unicode import plain_text
from cutesmith.verdicts import Mechanism

GIB = 1 << 30
PATIENCE = 10  # a call may take so many times its seconds of wall-clock time, as on a machine with a load of 20
LEAST_ROOM = 4 * GIB  # what outputs of the judge's own cases may take, however full the machine is


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds for a call (`Clock.out_of_time` says of what), bytes, and live processes (itself included).

    `memory_bytes` counts open files without a name too; `file_bytes` is the largest file; `folder_bytes` and `files`
    are of all in the worker's own folder, which may lie in memory.
    """

    call_seconds: float = 120.0
    memory_bytes: int = 16 * GIB
    file_bytes: int = 4 * GIB
    folder_bytes: int = 32 * GIB
    files: int = 10_000  # looked at in 0.04 to 0.1 s
    log_bytes: int = 2 << 20
    processes: int = 64


@dataclass(frozen=True)
class Excess:
    """What a worker does too much of, to follow its name in a sentence; what to do; and the limit that it met."""

    what: str
    hint: str
    mechanism: Mechanism = Mechanism.PROCESS_LIMITS


@dataclass(frozen=True)
class Clock:
    """Seconds of CPU time of a worker's processes, seconds in which all of them slept or waited, and the wall's.

    Waiting for a core is neither: so a busy machine takes nothing from a call's time.
    """

    cpu: float
    asleep: float
    wall: float

    def __sub__(self, other: Clock) -> Clock:
        return Clock(self.cpu - other.cpu, self.asleep - other.asleep, self.wall - other.wall)

    def out_of_time(self, seconds: float, *, gpu: bool) -> str:
        """Which limit a call has met that took so long, to follow "did not finish"; "" where it may go on.

        The limit is `seconds` of CPU time, and as many asleep; beside a GPU, whose work takes no CPU time, of
        wall-clock time. PATIENCE times as long on the wall's clock ends it in any case.
        """
        if gpu:
            return f"within {seconds:g} s" if self.wall > seconds else ""
        if self.cpu > seconds:
            return f"within {seconds:g} s of CPU time"
        if self.asleep > seconds:
            return f"within {seconds:g} s (it slept or waited for so long, and used {self.cpu:.3g} s of CPU time)"
        if self.wall > PATIENCE * seconds:
            return f"within {PATIENCE * seconds:g} s of wall-clock time (in which it had {self.cpu:.3g} s of CPU time)"
        return ""


class Watch:
    """Looks at the processes of one worker and at the folder that it may write to."""

    def __init__(self, tree: ProcessTree, folder: Path) -> None:
        self.tree, self.folder = tree, folder
        self._looked = Clock(0.0, 0.0, time.monotonic())
        self.room = max(LEAST_ROOM, shutil.disk_usage(folder).free // 2)  # others need the rest

    @property
    def clock(self) -> Clock:
        """What it was at the last look; the wall's clock as it is now."""
        return replace(self._looked, wall=time.monotonic())

    def _look(self) -> Usage:
        usage, before, now = self.tree.usage(), self._looked, time.monotonic()
        idle = 0.0 if usage.runnable else max(0.0, now - before.wall - (usage.cpu_seconds - before.cpu))
        self._looked = Clock(usage.cpu_seconds, before.asleep + idle, now)
        return usage

    def excess(self, limits: Limits) -> Excess | None:
        """What the worker does too much of."""
        usage = self._look()
        if usage.processes > limits.processes:
            return Excess(f"started more than {limits.processes} processes", "Start none: compute it in one process.")
        if usage.held_bytes > limits.memory_bytes:
            hint = (
                "Return fewer elements from get_inputs(), or hold less at once. If it compiled, a loop is unrolled "
                "too often: make the outer one cutlass.range(n, unroll=1)."
            )
            text = f"used more than {limits.memory_bytes / GIB:.1f} GiB of host memory"
            return Excess(text, hint, Mechanism.MEMORY_LIMIT)
        content, most_bytes = content_of(self.folder, limits.files), min(limits.folder_bytes, self.room)
        if content.bytes > most_bytes:
            return Excess(f"wrote more than {most_bytes / GIB:.1f} GiB of files", "Keep none: a kernel needs no files.")
        if content.entries > limits.files:
            return Excess(f"made more than {limits.files} files", "Keep none: a kernel needs no files.")
        if content.hidden:
            return Excess("made a folder that cannot be looked into", "Make none: a kernel needs no folders.")
        return None


class LogTail:
    """The last bytes of what processes print into a pipe, and how many before them were dropped.

    `follow` is given all of it as it comes, as text without what acts on a terminal.
    """

    def __init__(self, follow: Callable[[str], None] | None = None) -> None:
        self._kept, self.dropped = bytearray(), 0
        self._follow, self._decoder = follow, codecs.getincrementaldecoder("utf-8")(errors="replace")

    def drain(self, pipe: int, most: int) -> bool:
        """Read what is in a pipe that does not block, and keep the last `most` bytes; False once no one can write."""
        for _ in range(64):  # bounded, so that a kernel that prints for ever cannot hold the watchdog
            try:
                part = os.read(pipe, 1 << 20)
            except BlockingIOError:
                return True
            if not part:
                return False
            self._kept += part
            if self._follow is not None:
                self._follow(plain_text(self._decoder.decode(part)))
            if (excess := len(self._kept) - most) > 0:
                del self._kept[:excess]
                self.dropped += excess
        return True

    @property
    def text(self) -> str:
        """What is kept, without what acts on a terminal."""
        return plain_text(bytes(self._kept).decode(errors="replace"))
