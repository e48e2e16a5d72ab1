"""The processes of one worker, found in /proc however they were started, so that none outlives it.

A descendant may leave the process group, the session and (by a double fork) its parent. It keeps the environment it was
born with, and a watchdog that looked while its parent lived remembers it: any of these marks is enough.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STAT_BYTES = 4096
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
LEAST_MEMORY = 4 << 30  # PyTorch, CUDA and a compiler take 2 to 3 GiB


@dataclass(frozen=True)
class Usage:
    """What a tree of processes holds at this moment, and the CPU seconds (user and system) that it has used so far.

    `runnable`: one of them runs, or would if it had a core or its disk.
    """

    processes: int
    held_bytes: int
    cpu_seconds: float
    runnable: bool


@dataclass(frozen=True)
class _Stat:
    """The fields of /proc/PID/stat that matter here; pid and start (clock ticks) together name a process for good."""

    pid: int
    state: str
    parent: int
    session: int
    start: int
    used: int  # clock ticks of CPU time of its own threads
    waited: int  # and of its children that have ended and were waited for


class ProcessTree:
    """A worker, its descendants, and all processes that carry its mark in the environment."""

    MARK = "WORKER_ID"

    def __init__(self, root: int, token: str) -> None:
        self.root = root
        self._start = entry.start if (entry := _stat(root)) else None
        self._mark = f"{self.MARK}={token}".encode()
        self._seen: dict[tuple[int, int], bool] = {}
        self._used: dict[tuple[int, int], int] = {}  # the last that was seen of each, also of those that have ended
        self._strangers: dict[int, int] = {}  # pids and inodes of their folders: a stranger never becomes a descendant

    def members(self) -> list[int]:
        """Pids of the living, zombies left out."""
        return [entry.pid for entry in self._entries() if entry.state != "Z"]

    def _entries(self) -> list[_Stat]:
        """The processes of the tree, zombies too."""
        pids = {int(name): _inode(name) for name in os.listdir("/proc") if name.isdigit()}
        asked = [pid for pid, inode in pids.items() if self._strangers.get(pid) != inode]
        stats = [entry for entry in map(_stat, asked) if entry is not None]
        # A root that was reaped elsewhere may have given its pid to a stranger.
        found = {entry.pid for entry in stats if (entry.pid, entry.start) == (self.root, self._start)}
        for _ in range(3):  # parents may come after their children in /proc
            found |= {entry.pid for entry in stats if entry.parent in found or self._is_ours(entry)}
        read = {entry.pid for entry in stats} | self._strangers.keys()
        self._strangers = {pid: inode for pid, inode in pids.items() if inode and pid in read and pid not in found}
        return [entry for entry in stats if entry.pid in found]

    def _is_ours(self, entry: _Stat) -> bool:
        if entry.session == self.root:
            return True
        key = (entry.pid, entry.start)
        if key not in self._seen:  # the environment of a process does not change but by exec
            self._seen[key] = False
            with contextlib.suppress(OSError):
                self._seen[key] = self._mark in Path(f"/proc/{entry.pid}/environ").read_bytes().split(b"\0")
        return self._seen[key]

    def usage(self) -> Usage:
        """How many processes there are and the memory they hold, shared pages counted once for each.

        So do files without a name that they have open: memory (memfd_create(2)), or room that no folder shows.
        """
        entries = self._entries()
        members = [entry.pid for entry in entries if entry.state != "Z"]
        unnamed = dict(file for pid in members for file in _unnamed_files(pid))
        held = sum(map(_resident_bytes, members)) + sum(unnamed.values())
        return Usage(len(members), held, self._cpu_seconds(entries), any(entry.state in "RD" for entry in entries))

    def _cpu_seconds(self, entries: list[_Stat]) -> float:
        """At least so many: a child that ends between two looks counts once it is waited for, an orphan never."""
        self._used |= {(entry.pid, entry.start): entry.used for entry in entries}
        return TICK_SECONDS * max(sum(self._used.values()), sum(entry.used + entry.waited for entry in entries))

    def kill(self) -> None:
        """SIGKILL to all, again until none is left: a fork bomb may be quicker than one pass."""
        for attempt in range(50):
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)  # it is gone, or set-uid, which no-new-privileges rules out
            if not self.members():
                return
            time.sleep(0.002 * (attempt + 1))


def fair_memory(most: int) -> int:
    """Bytes of host memory that one worker may hold: `most`, or half of what is available, but always 4 GiB.

    Where only the resident set is watched, as beside a GPU, a worker must be ended before the machine runs out.
    """
    return max(LEAST_MEMORY, min([most, *(size // 2 for size in _available())]))


def _available() -> list[int]:
    """What the system says is available, and what the control group allows in all."""
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max" is not a number
            found.append(int(Path("/sys/fs/cgroup", name).read_text()))
    return found


def _inode(pid: str) -> int:
    """Of the folder in /proc: another one once the pid is that of another process; 0 where there is none.

    With it a look at 124 processes takes 0.36 ms of CPU time, where their states took 1.6.
    """
    try:
        return os.stat(f"/proc/{pid}").st_ino
    except OSError:
        return 0


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(STAT_BYTES)
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold spaces and brackets
    used, waited = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return _Stat(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]), used, waited)


def _unnamed_files(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Device and inode of each open file that has no name, and the bytes that it takes; none where one may not look."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed meanwhile
                status = os.stat(f"{folder}/{name}")
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    yield (status.st_dev, status.st_ino), status.st_blocks * 512


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
