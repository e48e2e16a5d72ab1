"""`DEVLOG.md` beside a kernel: what each design was expected to do, what was changed, what was measured."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.unicode import plain_text

FILE = "DEVLOG.md"
FIELDS = ("prediction", "change", "measurement", "verdict", "note")
TITLE = "# Development log\n\nOne entry a step, oldest first: predict before you measure.\n"


def append_entry(kernel: Path, fields: Mapping[str, str], *, now: datetime | None = None) -> Path:
    """Append one entry for a kernel file to the log beside it, flushed to the disk; returns the log's path.

    `fields`: some of FIELDS, empty ones are left out. Raises UsageError when all are empty, the kernel is missing or
    the log cannot be written.
    """
    log = kernel.parent / FILE
    try:
        digest = hashlib.sha256(kernel.read_bytes()).hexdigest()[:8]  # as checkpoints are named
    except OSError as error:
        raise UsageError(f"{kernel}: {error.strerror}", hint="Name the kernel file that the entry is about.") from error
    entry = render_entry(f"{kernel.name} · {digest}", fields, now or datetime.now(timezone.utc))
    try:
        _append(log, entry)
    except OSError as error:
        raise UsageError(
            f"{log} cannot be written: {error.strerror}", hint="Is the folder read-only or full?"
        ) from error
    return log


def render_entry(subject: str, fields: Mapping[str, str], now: datetime) -> str:
    """One entry as Markdown, its heading naming the subject and the time; UsageError when every field is empty."""
    lines = []
    for name in FIELDS:  # further lines of a field are indented, so that none becomes a heading
        if body := [line.strip() for line in plain_text(fields.get(name, "")).splitlines() if line.strip()]:
            lines.append(f"- {name.capitalize()}: " + "\n  ".join(body))
    if not lines:
        raise UsageError("nothing to note", hint=f"Give at least one of: {', '.join('--' + name for name in FIELDS)}")
    return "\n".join([f"\n## {subject} · {now:%Y-%m-%d %H:%M} UTC\n", *lines]) + "\n"


def _append(log: Path, entry: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND  # one write call: entries of two processes do not mix
    descriptor = os.open(log, flags, 0o644)
    try:
        start = TITLE if os.fstat(descriptor).st_size == 0 else ""
        os.write(descriptor, (start + entry).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
