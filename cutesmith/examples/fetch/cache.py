"""Examples that were downloaded before, by their sha256; and how a file is written so that nobody sees half of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path

from cutesmith.checkpoints import write_atomically
from cutesmith.examples.fetch.faults import FetchError
from cutesmith.resources import cache_folder

_TEMPORARY = ".tmp"  # as write_atomically names them
_STALE_SECONDS = 3600.0


def sha256_of(data: bytes) -> str:
    """The hash of some bytes, as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def keep_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` whole or not at all, also when killed; makes the folder. Raises OSError.

    A process that is killed may leave a temporary file (`.NAME….tmp`); the next write there removes it after an hour.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(path.parent)
    write_atomically(path, data)


def _remove_stale(folder: Path) -> None:
    for left in folder.glob(f".*{_TEMPORARY}"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                left.unlink()


class Cache:
    """Downloaded files by content: `examples/<sha256>`, and beside each the ETag of the address it came from."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or cache_folder()) / "examples"

    def get(self, sha256: str) -> bytes | None:
        """The bytes with that hash; None when they are not there, cannot be read, or were changed on disk."""
        try:
            data = self._file(sha256).read_bytes()
        except OSError:
            return None
        return data if sha256_of(data) == sha256 else None

    def etag(self, sha256: str, url: str) -> str:
        """The ETag under which `url` gave these bytes, "" when it is not known."""
        try:
            known = json.loads(self._file(sha256).with_suffix(".json").read_text(encoding="utf-8"))
            return str(known["etag"]) if known["url"] == url else ""
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    def put(self, sha256: str, data: bytes, *, url: str, etag: str) -> str:
        """Keep the bytes; returns "", or why they could not be kept (a cache that is full stops nobody)."""
        try:
            keep_file(self._file(sha256), data)
            note = json.dumps({"url": url, "etag": etag})
            keep_file(self._file(sha256).with_suffix(".json"), note.encode())
        except OSError as error:
            return f"not kept in the cache {self.folder}: {error.strerror or error}"
        return ""

    def _file(self, sha256: str) -> Path:
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise FetchError("unsafe_path", f"{sha256!r} is no sha256", hint="The index is broken: install it again.")
        return self.folder / sha256
