"""Machine code that is the same for every kernel, kept on disk from one process to the next.

Code of `access` takes 0.33 s to make and 0.01 s to read. Only processes that run no candidate write or read such files,
since every later verdict depends on them. The variable `FOLDER` names the folder to these processes. A file counts if
it is this user's, no one else may write to it, and it is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = "CUTESMITH_CODE_CACHE"  # the variable that names it; without one nothing is kept
_DIGEST = hashlib.sha256
_DIGEST_BYTES = _DIGEST().digest_size
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_FILES = 64  # of a few KB each: one for each version of our code, of LLVM and of the processor


def kept_code(source: str, make: Callable[[], bytes]) -> bytes:
    """The object code of `source`, which names all that it depends on, from disk or as `make` gives it."""
    folder = os.environ.get(FOLDER, "")
    if not folder:
        return make()
    path = Path(folder, f"{_DIGEST(source.encode()).hexdigest()}.o")
    if (code := _read(path)) is None:
        code = make()
        with contextlib.suppress(OSError):  # a full disk, or a home folder that cannot be written
            _write(path, code)
    return code


def _read(path: Path) -> bytes | None:
    """What a file of ours holds; None where there is none, or one that others may have changed, or a part of one."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            for status in (os.fstat(file.fileno()), os.stat(path.parent)):
                if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
                    return None
            digest, code = file.read(_DIGEST_BYTES), file.read()
    except OSError:
        return None
    return code if _DIGEST(code).digest() == digest else None


def _write(path: Path, code: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = sorted(path.parent.glob("*.o"), key=lambda each: each.stat().st_mtime)
    for old in kept[: max(0, len(kept) - MOST_FILES + 1)]:
        old.unlink(missing_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(_DIGEST(code).digest() + code)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
