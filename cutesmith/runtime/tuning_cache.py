"""What tuning measured, kept between runs: one JSON file a question, each appearing whole or not at all.

The question is the kernel's source, the device with its driver and compiler, and the inputs; a file answers exactly
one. Writers never meet: each renames a file of its own into place, and the last one wins. A file that is cut, forged or
of another version is not an answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from cutesmith import resources
from cutesmith.checkpoints import write_atomically
from cutesmith.devices import Device
from cutesmith.verdicts import strict_json

FORMAT = 1
FOLDER = "tuning"
STALE_SECONDS = 3600.0  # a temporary file that was not renamed by then lost its writer
COMPILER_PACKAGES = ("nvidia-cutlass-dsl", "torch", "apache-tvm-ffi")


@dataclass(frozen=True, kw_only=True)
class TuningKey:
    """One question: every field takes part in its hash.

    `sources` are SHA-256 of all kernel texts in the order in which they were tried, `inputs` shapes, strides and
    dtypes in a line, `method` how and how long it is timed.
    """

    sources: tuple[str, ...]
    device: str
    inputs: str
    method: str
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the whole question."""
        return hashlib.sha256(strict_json(self).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """An answer: when it was measured (UTC, ISO 8601), and what."""

    measured: str
    result: Mapping[str, Any]

    @property
    def date(self) -> str:
        """The day, such as "2026-11-21"."""
        return self.measured[:10]


@dataclass(frozen=True)
class TuningCache:
    """Answers in a folder (default: `tuning` in the user's cache folder)."""

    folder: Path = field(default_factory=lambda: resources.cache_folder() / FOLDER)

    def get(self, key: TuningKey) -> Remembered | None:
        """What was measured for this question; None where nothing was, or what is there cannot be trusted."""
        try:
            entry = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(entry, dict) or entry.get("format") != FORMAT or entry.get("digest") != key.digest:
            return None
        measured, result = entry.get("measured"), entry.get("result")
        if not isinstance(measured, str) or not isinstance(result, dict) or entry.get("sum") != _sum(result):
            return None
        return Remembered(measured=measured, result=result)

    def put(self, key: TuningKey, result: object) -> bool:
        """Keep an answer, an object in JSON; False where the folder cannot be written: the next one measures again."""
        measured = datetime.now(timezone.utc).isoformat(timespec="seconds")
        plain = json.loads(strict_json(result))
        entry = {"format": FORMAT, "digest": key.digest, "measured": measured, "sum": _sum(plain)}
        text = strict_json({**entry, "key": key, "result": plain}, indent=1)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in self.folder.glob(".*.tmp"):  # left by writers that were killed
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > STALE_SECONDS:
                        os.unlink(path)
            write_atomically(self._path(key), text.encode())
        except OSError:
            return False
        return True

    def _path(self, key: TuningKey) -> Path:
        return self.folder / f"{key.digest[:32]}.json"


def _sum(result: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


def device_identity(device: Device) -> str:
    """Name, SM and driver of a GPU: a measurement holds for those alone."""
    return f"{device.name}, sm_{device.capability[0]}{device.capability[1]}, driver {device.driver}"


def compiler_versions() -> dict[str, str]:
    """The installed packages that decide what a kernel becomes; "missing" for those that are not there."""
    return {name: package_version(name) for name in COMPILER_PACKAGES}


def package_version(name: str) -> str:
    """The version of an installed package, "missing" without it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def source_hashes(sources: Sequence[str]) -> tuple[str, ...]:
    """SHA-256 of each text."""
    return tuple(hashlib.sha256(source.encode()).hexdigest() for source in sources)
