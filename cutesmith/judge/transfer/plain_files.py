"""Files that others may have put in place, opened without following a link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # the open of a pipe would wait for a writer


def open_plain(path: str | Path) -> int:
    """A descriptor to read the regular file at an absolute path, to which no link leads; raises OSError for all else.

    It is opened folder by folder, so that none can become a link on the way.
    """
    descriptor = _opened(Path(path))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "no regular file", str(path))


def _opened(path: Path) -> int:
    if not path.is_absolute() or ".." in path.parts:
        raise OSError(errno.EINVAL, "no absolute path", str(path))
    place = os.open(path.parts[0], _FOLDER)
    try:
        for part in path.parts[1:-1]:
            place, above = os.open(part, _FOLDER, dir_fd=place), place
            os.close(above)
        return os.open(path.name, _FILE, dir_fd=place)
    finally:
        os.close(place)
