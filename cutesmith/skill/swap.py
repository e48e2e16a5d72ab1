"""Replacing one folder by another such that a kill at any moment leaves the old one or the new one.

Linux exchanges two folders in one step (`renameat2(RENAME_EXCHANGE)`, man 2 rename). Where the system or the file
system cannot, the old folder is renamed away first; `recover` puts it back if a kill came just then.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_EXCHANGE = 2
_HERE = -100  # AT_FDCWD
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV, errno.EPERM}


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Hold the lock of the folder that holds `target`, after mending what a killed writer left there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent):
        recover(target)
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # file systems without locks: then two writers at once are not kept apart
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def new_folder(target: Path) -> Path:
    """An empty hidden folder beside `target`, on its file system."""
    return Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent))


def replace_folder(staged: Path, target: Path) -> None:
    """Put `staged` in the place of `target`, and remove what stood there; raises OSError."""
    os.chmod(staged, 0o755)  # mkdtemp makes folders private
    if not target.exists():
        os.rename(staged, target)
    elif exchange(staged, target):
        remove(staged)
    else:
        remove(exchange_in_two_steps(staged, target))


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where this system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def exchange_in_two_steps(staged: Path, target: Path) -> Path:
    """Rename `target` away and `staged` into its place; gives the old folder's new path."""
    old = target.parent / f".{target.name}.old-{staged.name.rpartition('-')[2]}"
    os.rename(target, old)
    try:
        os.rename(staged, target)
    except OSError:
        os.rename(old, target)
        raise
    return old


def recover(target: Path) -> None:
    """Finish what a killed writer left: an old folder without successor returns, other leftovers go."""
    for old in sorted(target.parent.glob(f".{target.name}.old-*")):
        if target.exists():
            remove(old)
        else:
            os.rename(old, target)
    for staged in target.parent.glob(f".{target.name}.new-*"):
        remove(staged)


def discard(folder: Path) -> None:
    """Remove a folder such that a kill leaves it whole or not at all: it is renamed to a leftover first."""
    leftover = new_folder(folder)
    leftover.rmdir()  # Windows does not rename onto a folder, even an empty one
    os.rename(folder, leftover)
    remove(leftover)


def remove(folder: Path) -> None:
    """Remove a folder, its SKILL.md first, so that no client takes a half for a skill."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / "SKILL.md")
    shutil.rmtree(folder)
