"""What a tool call comes to: the text that the model reads, and its effects as data.

A tool changes nothing itself. Its effects are written to the transcript together with its text, in one line, and then
applied: so a process that is killed in between finds on resuming what it was about to do, and does it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Effect = Mapping[str, Any]
"""JSON-able; `do` says what:

    {"do": "write", "path": "kernel.py", "text": …}        a file of the work folder gets this text
    {"do": "checkpoint", "path": …, "text": …, "note": …, "verdict": {…}}    this version is kept, with what held for it
    {"do": "note", "fields": {…}}                          an entry of DEVLOG.md (cutesmith.devlog.FIELDS)
    {"do": "judged", "sha256": …, "text": …, "verdict": {…}}    a stage's verdict on this very text of the kernel file

and on line 0, where a request becomes a problem (cutesmith.agent.problems.request):

    {"do": "problem", "source": …, "audit": {…}}            this problem file passed its audit
    {"do": "decline", "reason": …}                          the request is none for a kernel
    {"do": "audit failed", "verdict": {…}}                  a fault of ours, which no other text mends
"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one tool call. `finish` ends the line of work with a verified kernel or a reason."""

    text: str
    is_error: bool = False
    effects: tuple[Effect, ...] = ()
    finish: str = ""


def write(path: str, text: str) -> Effect:
    """A file of the work folder, `path` relative to it, gets this text."""
    return {"do": "write", "path": path, "text": text}


def checkpoint(path: str, text: str, *, note: str, verdict: Mapping[str, Any] | None = None) -> Effect:
    """This version of a file is kept for good."""
    return {"do": "checkpoint", "path": path, "text": text, "note": note, "verdict": dict(verdict or {})}


def note(fields: Mapping[str, str]) -> Effect:
    """An entry of the development log."""
    return {"do": "note", "fields": dict(fields)}


def judged(sha256: str, text: str, verdict: Mapping[str, Any]) -> Effect:
    """A stage's whole verdict (`Verdict.to_dict()`) on the kernel whose text hashes to `sha256`."""
    return {"do": "judged", "sha256": sha256, "text": text, "verdict": dict(verdict)}
