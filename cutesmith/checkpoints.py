"""Content-addressed checkpoints of a kernel file, in `.cutesmith/checkpoints/` beside it or in another folder.

    objects/<sha256>        the bytes of one version; written once, never changed
    <file name>.jsonl       one line a checkpoint, only ever appended to: time, hash, note, verdict
    <file name>.lock        held by the process that writes

Every file appears by writing a temporary one on the same file system, fsync, rename, fsync of the folder; an index line
counts once its newline is there. So a process killed at any moment, or a full disk, leaves the file as it was or as it
was to be, and every checkpoint that was reported.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import glob
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cutesmith.errors import CutesmithError, UsageError
from cutesmith.verdicts import strict_json

FOLDER = Path(".cutesmith") / "checkpoints"
VERDICT_FIELDS = ("stage", "status", "exit_code", "summary", "median_us")
"""What a checkpoint keeps of the verdict that held for it."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One version of a file: its number (from 1), UTC time (ISO 8601), SHA-256, note, and the verdict that held.

    `key` names what asked for it, "" when nothing did: see `CheckpointStore.keep`.
    """

    number: int
    time: str
    hash: str
    note: str = ""
    verdict: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""


class CheckpointError(CutesmithError):
    """A checkpoint could not be written or read back; the kernel file is untouched."""


class CheckpointStore:
    """The checkpoints of one kernel file; safe against kills, full disks and several writers.

    `folder` is where they lie, on the file system of the kernel file; `.cutesmith/checkpoints/` beside it when None.
    """

    def __init__(self, path: str | Path, *, folder: Path | None = None) -> None:
        self.path = Path(path).resolve()
        self.folder = self.path.parent / FOLDER if folder is None else folder.resolve()
        self.objects = self.folder / "objects"
        self.index = self.folder / f"{self.path.name}.jsonl"

    def backup(self, *, note: str = "", verdict: Mapping[str, Any] | None = None) -> Checkpoint:
        """Keep the file as it is now; UsageError when there is no file, CheckpointError when it cannot be written."""
        with self._writing():
            return self._append(self._current(), note, verdict or {})

    def keep(
        self, data: bytes, *, note: str = "", verdict: Mapping[str, Any] | None = None, key: str = ""
    ) -> Checkpoint:
        """Keep these bytes, whatever the file holds; CheckpointError when they cannot be written.

        With a `key`, the same bytes are kept once for it: a process that was killed in between may ask again.
        """
        digest = hashlib.sha256(data).hexdigest()
        with self._writing():
            there = [c for c in self.checkpoints() if key and (c.key, c.hash) == (key, digest)]
            return there[0] if there else self._append(data, note, verdict or {}, key)

    def revert(self, name: str = "", *, note: str = "") -> Checkpoint:
        """Put a kept version back and return it; what the file holds now is kept first, unless it already is.

        `name` is a number, the first characters of a hash (at least four), or empty for the newest checkpoint that
        differs from the file.
        """
        with self._writing():
            current = self.path.read_bytes() if self.path.exists() else None
            wanted = self.find(name) if name else self._newest_other(current)
            data = self.read(wanted)
            if current is not None and current != data:
                kept = self.checkpoints()
                if not kept or kept[-1].hash != hashlib.sha256(current).hexdigest():
                    self._append(current, note or f"before the return to {wanted.number}", {})
            mode = self.path.stat().st_mode & 0o777 if self.path.exists() else 0o644
            write_atomically(self.path, data, mode=mode, folder=self.folder)
            return wanted

    def checkpoints(self) -> list[Checkpoint]:
        """Every checkpoint, oldest first; a last line that was cut off by a kill is passed over."""
        try:
            text = self.index.read_bytes()
        except FileNotFoundError:
            return []
        complete = text[: text.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n")
        kept: list[Checkpoint] = []
        for line in complete:
            with contextlib.suppress(ValueError):
                fields = json.loads(line)
                if isinstance(fields, dict) and re.fullmatch(r"[0-9a-f]{64}", str(fields.get("hash", ""))):
                    texts = {name: str(fields.get(name, "")) for name in ("time", "hash", "note", "key")}
                    verdict = fields.get("verdict")
                    held = verdict if isinstance(verdict, dict) else {}
                    kept.append(Checkpoint(number=len(kept) + 1, verdict=held, **texts))
        return kept

    def find(self, name: str) -> Checkpoint:
        """The checkpoint of that number, or the newest whose hash starts so; UsageError when there is none."""
        kept = self.checkpoints()
        if name.isdecimal() and 1 <= int(name) <= len(kept):
            return kept[int(name) - 1]
        found = [c for c in kept if len(name) >= 4 and c.hash.startswith(name.lower())]
        if len({c.hash for c in found}) == 1:
            return found[-1]
        wrong = f"{len(found)} checkpoints start with" if found else f"{self.path.name} has no checkpoint"
        raise UsageError(f"{wrong} {name!r}", hint=f"cutesmith checkpoint list {self.path} shows them.")

    def read(self, checkpoint: Checkpoint) -> bytes:
        """The bytes of a checkpoint; CheckpointError when the store lost or changed them."""
        try:
            data = (self.objects / checkpoint.hash).read_bytes()
        except OSError as error:
            raise CheckpointError(f"checkpoint {checkpoint.number} cannot be read: {error}") from error
        if hashlib.sha256(data).hexdigest() != checkpoint.hash:
            raise CheckpointError(f"checkpoint {checkpoint.number} was changed on disk: its hash does not match")
        return data

    def diff(self, old: str = "", new: str = "") -> str:
        """A unified diff from one checkpoint (the newest that differs) to another (the file as it is now)."""
        current = self._current()
        newer = self.read(self.find(new)) if new else current
        older = self.find(old) if old else self._newest_other(newer)
        names = f"{self.path.name} @ {older.number}", f"{self.path.name} @ {new}" if new else self.path.name
        before, after = _lines(self.read(older)), _lines(newer)
        return "".join(difflib.unified_diff(before, after, *names))

    def _newest_other(self, data: bytes | None) -> Checkpoint:
        taken = hashlib.sha256(data).hexdigest() if data is not None else ""
        for checkpoint in reversed(self.checkpoints()):
            if checkpoint.hash != taken:
                return checkpoint
        raise UsageError(
            f"{self.path.name} has no checkpoint that differs from it", hint=f"cutesmith checkpoint backup {self.path}"
        )

    def _current(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}") from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the file's lock; whatever the system refuses becomes a CheckpointError."""
        try:
            self.objects.mkdir(parents=True, exist_ok=True)
            with open(self.folder / f"{self.path.name}.lock", "ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Of the temporary files of writers that were killed: with the lock held, none is in use.
                for leftover in self.folder.glob(f".{glob.escape(self.path.name)}.????????.tmp"):
                    leftover.unlink(missing_ok=True)
                yield
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint of {self.path.name} could not be written: {error.strerror or error}",
                hint=f"Nothing was lost; check space and permissions of {self.folder}.",
            ) from error

    def _append(self, data: bytes, note: str, verdict: Mapping[str, Any], key: str = "") -> Checkpoint:
        digest = hashlib.sha256(data).hexdigest()
        self._write_object(digest, data)
        entry = {
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "hash": digest,
            "note": note,
            "verdict": {name: verdict[name] for name in VERDICT_FIELDS if name in verdict},
            **({"key": key} if key else {}),
        }
        self._append_line(strict_json(entry).encode() + b"\n")
        return Checkpoint(number=len(self.checkpoints()), **entry)  # type: ignore[arg-type]

    def _write_object(self, digest: str, data: bytes) -> None:
        target = self.objects / digest
        try:
            if hashlib.sha256(target.read_bytes()).hexdigest() == digest:
                return
        except FileNotFoundError:
            pass
        write_atomically(target, data, folder=self.folder)

    def _append_line(self, line: bytes) -> None:
        """Append one line, after cutting off what an earlier kill or a full disk left unfinished."""
        descriptor = os.open(self.index, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            size = os.pread(descriptor, os.fstat(descriptor).st_size, 0).rfind(b"\n") + 1
            os.ftruncate(descriptor, size)
            try:
                write_all(descriptor, line, size)
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        _sync_folder(self.folder)


def write_atomically(target: Path, data: bytes, *, mode: int = 0o644, folder: Path | None = None) -> None:
    """Give `target` this content such that it never holds anything but the old or the new, power cuts included.

    The temporary file lies in `folder` of the same file system, else beside the target.
    """
    descriptor, temporary = tempfile.mkstemp(dir=folder or target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        try:
            write_all(descriptor, data, 0)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Within it, other processes that ask for the same folder wait; where it cannot be locked, none waits."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines(keepends=True)


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write every byte to an open file from this offset on."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
