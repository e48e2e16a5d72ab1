"""What a tool call comes to: the text that the model reads, and its effects as data.

A tool changes nothing itself. Its effects are written to the transcript together with its text, in one line, and then
applied: so a process that is killed in between finds on resuming what it was about to do, and does it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Effect:
    """Something that a tool call or the session itself makes happen; `kind` names it in the transcript."""

    kind: ClassVar[str]

    def to_dict(self) -> Mapping[str, Any]:
        """Its JSON in the transcript: `do`, which is the kind, and its fields."""
        return {"do": self.kind, **vars(self)}


@dataclass(frozen=True)
class WriteFile(Effect):
    """A file of the work folder, `path` relative to it, gets this text."""

    kind = "write"
    path: str
    text: str


@dataclass(frozen=True)
class KeepVersion(Effect):
    """This version of a file is kept for good, with the verdict that held for it (empty without one)."""

    kind = "checkpoint"
    path: str
    text: str
    note: str
    verdict: Mapping[str, Any]


@dataclass(frozen=True)
class AddNote(Effect):
    """An entry of DEVLOG.md; `fields` are some of `cutesmith.devlog.FIELDS`.

    `sha256` is of the kernel's text that it was written about: "" without one, and in older transcripts.
    """

    kind = "note"
    fields: Mapping[str, str]
    sha256: str = ""


@dataclass(frozen=True)
class RecordVerdict(Effect):
    """A stage's whole verdict (`Verdict.to_dict()`) on the kernel whose text hashes to `sha256`."""

    kind = "judged"
    sha256: str
    text: str
    verdict: Mapping[str, Any]


@dataclass(frozen=True)
class AcceptProblem(Effect):
    """On line 0: this problem file passed its audit (`AuditVerdict.to_dict()`)."""

    kind = "problem"
    source: str
    audit: Mapping[str, Any]


@dataclass(frozen=True)
class DeclineRequest(Effect):
    """On line 0: the request does not ask for a kernel."""

    kind = "decline"
    reason: str


@dataclass(frozen=True)
class ReportFailedAudit(Effect):
    """On line 0: the audit itself failed, which no other text of the problem changes."""

    kind = "audit failed"
    verdict: Mapping[str, Any]


_CLASSES = (WriteFile, KeepVersion, AddNote, RecordVerdict, AcceptProblem, DeclineRequest, ReportFailedAudit)
_KINDS: Mapping[str, Callable[..., Effect]] = {effect.kind: effect for effect in _CLASSES}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one tool call. `finish` ends the line of work with a verified kernel or a reason.

    `status` is of a verdict that judges nothing, such as the emulated GPU's: "" without one.
    """

    text: str
    status: str = ""
    is_error: bool = False
    effects: tuple[Effect, ...] = ()
    finish: str = ""


def effects_of(event: Mapping[str, Any]) -> list[Effect]:
    """The effects of an event of the transcript."""
    given = event.get("effects", ())
    return [_KINDS[each["do"]](**{name: each[name] for name in each if name != "do"}) for each in given]


def judgements(event: Mapping[str, Any]) -> list[RecordVerdict]:
    """Those of an event's effects that are verdicts."""
    return [effect for effect in effects_of(event) if isinstance(effect, RecordVerdict)]
