"""The folder that a model's file tools reach: nothing outside it is read or written, whatever a path says.

A path is walked name by name from the folder's own descriptor, and no link is followed on the way: what is checked is
what is opened, also when another process changes the folder in between. A file with a second name (a hard link) may
be a file from elsewhere, and is refused like a device.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutesmith.checkpoints import write_atomically
from cutesmith.errors import UsageError

MAX_BYTES = 512 * 1024  # of one file
MAX_FILES = 500
MAX_DEPTH = 12  # names in a path; the deepest example of the index has ten below examples/
MAX_NAME = 120  # bytes
ALLOWED = "Paths are relative to the work folder, such as kernel.py or DEVLOG.md: no .., no hidden names, no links."
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO without a writer must not block


class PathError(UsageError):
    """A path, or what stands there, is not for the file tools; nothing was read or written."""


@dataclass(frozen=True)
class Entry:
    """A file (or folder, its name ending in "/") below the work folder; size in bytes."""

    name: str
    size: int


class ConfinedFolder:
    """Regular text files below one folder. Every method raises PathError for what is not allowed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str) -> str:
        """The text of a file, its line ends as they are."""
        *folders, name = parts_of(path)
        try:
            with self._descend(folders) as folder:
                data = _read(path, name, folder)
            if b"\0" in data:
                raise PathError(f"{path} is a binary file", hint="Only UTF-8 text can be read.")
            return data.decode()
        except OSError as error:
            raise _explained(path, error) from error
        except UnicodeDecodeError as error:
            raise PathError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error

    def exists(self, path: str) -> bool:
        """Whether something stands there, of any kind; False also where a folder on the way is missing."""
        *folders, name = parts_of(path)
        try:
            with self._descend(folders) as folder:
                os.lstat(name, dir_fd=folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _explained(path, error) from error
        return True

    def read_or_none(self, path: str) -> str | None:
        """The text of a file, None where nothing stands."""
        return self.read(path) if self.exists(path) else None

    def write(self, path: str, text: str) -> None:
        """Give a file this text, atomically, and make the folders that it needs; raises OSError for a full disk."""
        *folders, name = parts_of(path)
        data = encoded(path, text)
        try:
            with self._descend(folders, make=True) as folder:
                # Below the descriptor: a folder that is swapped for a link in the meantime changes nothing.
                write_atomically(Path(f"/proc/self/fd/{folder}") / name, data)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR):
                raise _explained(path, error) from error
            raise

    def require_writable(self, path: str, text: str) -> None:
        """Raise PathError where `write` would, or where the folder would hold too many files."""
        there = self.read_or_none(path)
        encoded(path, text)
        if there is None and len(self.entries()) >= MAX_FILES:
            raise PathError(f"{path}: the work folder holds {MAX_FILES} files, and takes no more", hint=ALLOWED)

    def is_folder(self, path: str) -> bool:
        """Whether a folder stands there; the work folder itself is "" or "."."""
        try:
            with self._descend(_parts_or_root(path)):
                return True
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _explained(path, error) from error
            return False

    def entries(self, path: str = "") -> list[Entry]:
        """Files below a folder, by name, at most MAX_FILES; hidden ones, links and devices are left out."""
        parts = _parts_or_root(path)
        try:
            with self._descend(parts) as folder:
                found: list[Entry] = []
                _collect(folder, "".join(f"{part}/" for part in parts), found, MAX_DEPTH - len(parts))
                return sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            raise _explained(path, error) from error

    @contextlib.contextmanager
    def _descend(self, folders: list[str], *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder at the end of these names; no link is followed. Raises OSError."""
        descriptor = os.open(self.root, _FOLDER)
        try:
            for name in folders:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=descriptor)
                below = os.open(name, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)


def parts_of(path: str) -> list[str]:
    """The names of a relative path; raises PathError for one that cannot be in the folder."""
    names = [name for name in path.split("/") if name != "."]
    wrong = ""
    if path.startswith(("/", "~")):
        wrong = "is not a path inside the work folder"
    elif not names or "" in names:
        wrong = "names no file"
    elif any(name.startswith(".") for name in names):
        wrong = "leaves the work folder" if ".." in names else "is hidden"
    elif not path.isprintable() or "\\" in path:
        wrong = "holds characters that no file name here may have"
    elif any(len(name.encode()) > MAX_NAME for name in names) or len(names) > MAX_DEPTH:
        wrong = "is too long"
    if wrong:
        raise PathError(f"{path[:200]!r} {wrong}", hint=ALLOWED)
    return names


def encoded(path: str, text: str) -> bytes:
    """The bytes of a file; raises PathError when there are too many, or when they are not text."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise PathError(f"{path}: the text is not valid Unicode: {error.reason} at {error.start}") from error
    _require_size(path, len(data))
    if b"\0" in data:
        raise PathError(f"{path}: the text holds a NUL character")
    return data


def _parts_or_root(path: str) -> list[str]:
    path = path.rstrip("/") if path.strip("/") else path
    return [] if path in ("", ".") else parts_of(path)


def _read(path: str, name: str, folder: int) -> bytes:
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise PathError(f"{path} is a folder", hint="view_file lists a folder.")
        if not stat.S_ISREG(status.st_mode):
            raise PathError(f"{path} is not a regular file", hint=ALLOWED)
        if status.st_nlink > 1:
            raise PathError(f"{path} is a hard link to a file that may be elsewhere", hint=ALLOWED)
        _require_size(path, status.st_size)
        data = bytearray()
        while len(data) <= MAX_BYTES and (more := os.read(descriptor, MAX_BYTES + 1 - len(data))):
            data += more  # it may grow while it is read
        _require_size(path, len(data))
        return bytes(data)
    finally:
        os.close(descriptor)


def _require_size(path: str, size: int) -> None:
    if size > MAX_BYTES:
        raise PathError(f"{path} has {size} bytes; at most {MAX_BYTES} are allowed", hint="Split it.")


def _collect(folder: int, prefix: str, found: list[Entry], depth: int) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(found) >= MAX_FILES:
                return
            if entry.name.startswith(".") or not entry.name.isprintable():
                continue
            if entry.is_file(follow_symlinks=False):
                found.append(Entry(prefix + entry.name, os.lstat(entry.name, dir_fd=folder).st_size))
            elif entry.is_dir(follow_symlinks=False) and depth > 0:
                try:
                    below = os.open(entry.name, _FOLDER, dir_fd=folder)
                except OSError:  # removed, or swapped for a link, since it was listed
                    continue
                try:
                    _collect(below, f"{prefix}{entry.name}/", found, depth - 1)
                finally:
                    os.close(below)


def _explained(path: str, error: OSError) -> PathError:
    """A sentence for what the system said of a path below the folder."""
    reasons = {
        errno.ENOENT: "does not exist",
        errno.ELOOP: "is a link, or lies behind one",
        errno.ENOTDIR: "lies behind a link or a file",
        errno.EISDIR: "is a folder",
        errno.ENXIO: "is not a regular file",
        errno.ENAMETOOLONG: "is too long",
    }
    reason = reasons.get(error.errno or 0, f"cannot be read: {error.strerror}")
    hint = "view_file with path . lists the work folder." if error.errno == errno.ENOENT else ALLOWED
    return PathError(f"{path} {reason}", hint=hint)
