"""Folders for what a judging writes: gone when it ends, however a candidate left them, and after a killed judge too.

A folder stands beside a file that its judge holds locked. The next judge that makes one there removes those that are
not held any longer: in /dev/shm they would take memory of the machine until it is started again.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutesmith.errors import UnavailableError

PREFIX = "kernel-"
HELD, UNNAMED, FILES = "held", "new", "files"
_swept: set[tuple[Path, str]] = set()


class Scratch:
    """A new folder, `path`, until `close`. `where`: in which folder, by default that for temporary files.

    Raises UnavailableError where none can be made.
    """

    def __init__(self, *, where: Path | None = None, prefix: str = PREFIX) -> None:
        place = Path(where or tempfile.gettempdir())
        if (place, prefix) not in _swept:
            _swept.add((place, prefix))
            remove_abandoned(place, prefix)
        try:
            self._home = Path(tempfile.mkdtemp(prefix=prefix, dir=place)).resolve()
            self._lock = _held(self._home)
            self.path = self._home / FILES
            self.path.mkdir()
        except OSError as error:
            hint = "Free room or inodes there, or set TMPDIR to another folder."
            raise UnavailableError(f"no folder for temporary files in {place}: {error.strerror}", hint=hint) from error

    def close(self) -> None:
        """Remove the folder with all that is in it; a second time does nothing."""
        if self._lock < 0:
            return
        _remove_home(self._home)
        os.close(self._lock)
        self._lock = -1


@contextlib.contextmanager
def scratch_folder(*, where: Path | None = None, prefix: str = PREFIX) -> Iterator[Path]:
    """A new folder for as long as this lasts; arguments and errors as of `Scratch`."""
    with contextlib.closing(Scratch(where=where, prefix=prefix)) as scratch:
        yield scratch.path


def remove_abandoned(place: Path, prefix: str = PREFIX) -> None:
    """Remove this user's scratch folders there whose judge has ended without doing so."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in [entry for entry in entries if entry.name.startswith(prefix)]:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    _remove_unless_held(Path(entry.path))


def remove_folder(folder: Path) -> None:
    """Remove a folder whatever is in it: nested deeper than a path reaches, closed to its owner.

    Links are not followed, also where a process puts them in place meanwhile. What the system does not let go stays.
    """
    with contextlib.suppress(OSError):
        if folder.is_symlink():
            folder.unlink()
    with contextlib.suppress(OSError), _opened(str(folder)) as top:
        names = (f"{secrets.token_hex(8)}-{number}" for number in itertools.count())
        waiting = _emptied(top, top, names)
        while waiting:
            name = waiting.pop()
            with contextlib.suppress(OSError):
                with _opened(name, top) as here:
                    waiting += _emptied(here, top, names)
                os.rmdir(name, dir_fd=top)
    with contextlib.suppress(OSError):
        folder.rmdir()


@dataclass(frozen=True)
class Content:
    """What lies below a folder: bytes on the disk or in memory, files and folders, and whether some cannot be seen."""

    bytes: int
    entries: int
    hidden: bool


def content_of(folder: Path, most_entries: int = 1 << 60) -> Content:
    """What lies below a folder to which a process may be writing; counting ends after so many entries and one."""
    total, count, hidden, waiting = 0, 0, False, [str(folder)]
    links: set[tuple[int, int]] = set()
    while waiting and count <= most_entries:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in itertools.islice(entries, most_entries + 1 - count):
                    count += 1
                    size, folders = _looked_at(entry, links)
                    total += size
                    waiting += folders
        except (FileNotFoundError, NotADirectoryError):
            continue  # taken away meanwhile
        except OSError:
            hidden = True
    return Content(total, count, hidden)


def _held(home: Path) -> int:
    """The descriptor of a file there that has its name once it is locked, so that no other takes it for abandoned."""
    unnamed = home / UNNAMED
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: then no other judge removes the folder
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(home / HELD)
    return descriptor


def _remove_unless_held(home: Path) -> None:
    descriptor = os.open(home / HELD, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_home(home)
    finally:
        os.close(descriptor)


def _remove_home(home: Path) -> None:
    """The lock's file goes last: what a removal that is killed leaves is abandoned, too."""
    remove_folder(home / FILES)
    with contextlib.suppress(OSError):
        (home / HELD).unlink(missing_ok=True)
        (home / UNNAMED).unlink(missing_ok=True)
        home.rmdir()


def _emptied(here: int, top: int, names: Iterator[str]) -> list[str]:
    """Remove the files of an open folder, move its folders into `top`, so that no path is long; their new names."""
    moved = []
    with os.scandir(here) as entries:
        found = list(entries)
    for entry in found:
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                os.rename(entry.name, name := next(names), src_dir_fd=here, dst_dir_fd=top)
                moved.append(name)
            else:
                os.unlink(entry.name, dir_fd=here)
    return moved


@contextlib.contextmanager
def _opened(name: str, beneath: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, opened to its owner first; raises OSError, for a link too."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=beneath)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    finally:
        os.close(handle)
    try:
        yield folder
    finally:
        os.close(folder)


def _looked_at(entry: os.DirEntry[str], links: set[tuple[int, int]]) -> tuple[int, list[str]]:
    """The bytes that an entry takes, a file of several names once, and the folders to be looked into."""
    with contextlib.suppress(FileNotFoundError):
        if entry.is_dir(follow_symlinks=False):
            return 0, [entry.path]
        status = entry.stat(follow_symlinks=False)
        if status.st_nlink > 1:
            if (status.st_dev, status.st_ino) in links:
                return 0, []
            links.add((status.st_dev, status.st_ino))
        return status.st_blocks * 512, []
    return 0, []
