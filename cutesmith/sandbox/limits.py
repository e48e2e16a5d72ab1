"""What a worker may use of the machine, and whether it uses more at this moment."""

from __future__ import annotations

import codecs
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cutesmith.sandbox.processes import ProcessTree
from cutesmith.sandbox.scratch import content_of
from cutesmith.unicode import plain_text
from cutesmith.verdicts import Mechanism

GIB = 1 << 30
LEAST_ROOM = 4 * GIB  # what outputs of the judge's own cases may take, however full the machine is


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds of wall-clock time for a call, bytes, and live processes (itself included).

    `memory_bytes` counts open files without a name too; `file_bytes` is the largest file; `folder_bytes` and `files`
    are of all in the worker's own folder, which may lie in memory.
    """

    wall_seconds: float = 120.0
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


class Watch:
    """Looks at the processes of one worker and at the folder that it may write to."""

    def __init__(self, tree: ProcessTree, folder: Path) -> None:
        self.tree, self.folder = tree, folder
        self.room = max(LEAST_ROOM, shutil.disk_usage(folder).free // 2)  # others need the rest

    def excess(self, limits: Limits) -> Excess | None:
        """What the worker does too much of."""
        usage = self.tree.usage()
        if usage.processes > limits.processes:
            return Excess(f"started more than {limits.processes} processes", "Start none: compute it in one process.")
        if usage.held_bytes > limits.memory_bytes:
            hint = "Return fewer elements from get_inputs(), or hold less at once."
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
