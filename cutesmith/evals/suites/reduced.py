"""Tasks at smaller sizes: copies whose numbers at module scope are smaller, the smallest that the audit accepts."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from cutesmith.audit.problem_audit import AuditVerdict, ProblemAuditor
from cutesmith.problems.smaller_sizes import smaller_sources
from cutesmith.verdicts import ExitCode

AUDIT_SECONDS = 30.0


@dataclass(frozen=True)
class ReducedProblem:
    """A problem's text at smaller sizes: the way that its numbers changed, and what the audit says of it."""

    way: str
    source: str
    verdict: AuditVerdict


def reduced_text(path: Path) -> str:
    """The text of a problem file's copy at smaller sizes, with a comment that says how it was made."""
    with ProblemAuditor(timeout=AUDIT_SECONDS) as auditor:
        found = reduce_problem(path, auditor)
    return f"# {path.name} with smaller numbers at module scope: {found.way}.\n{found.source}"


def reduce_problem(path: Path, auditor: ProblemAuditor) -> ReducedProblem:
    """The first way whose audit passes, else the first that the reference takes, else the last; a time-out ends it."""
    unfit, found = None, None
    for way, source in smaller_sources(path.read_text(encoding="utf-8")):
        found = ReducedProblem(way, source, _audit_copy(path.name, source, auditor))
        if found.verdict.passed:
            return found
        unfit = unfit or (found if found.verdict.findings else None)
        if found.verdict.exit_code == ExitCode.TIMED_OUT:
            break
    assert found is not None
    return unfit or found


def _audit_copy(name: str, source: str, auditor: ProblemAuditor) -> AuditVerdict:
    """The audit of a file of this name and text."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / name
        copy.write_text(source, encoding="utf-8")
        return auditor.audit(copy)
