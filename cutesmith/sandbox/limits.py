"""What a worker may use of the machine, and whether it uses more at this moment."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from cutesmith.sandbox.processes import ProcessTree
from cutesmith.sandbox.scratch import content_of
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
        return self._excess_of_files(min(limits.folder_bytes, self.room), limits.files)

    def _excess_of_files(self, most_bytes: int, most_entries: int) -> Excess | None:
        content = content_of(self.folder, most_entries)
        if content.bytes > most_bytes:
            return Excess(f"wrote more than {most_bytes / GIB:.1f} GiB of files", "Keep none: a kernel needs no files.")
        if content.entries > most_entries:
            return Excess(f"made more than {most_entries} files", "Keep none: a kernel needs no files.")
        if content.hidden:
            return Excess("made a folder that nobody can look into", "Make none: a kernel needs no folders.")
        return None

    def kill(self) -> None:
        """End all of its processes."""
        self.tree.kill()
