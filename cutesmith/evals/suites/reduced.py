"""Tasks at smaller sizes: copies whose numbers at module scope are smaller, the smallest that the audit accepts."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from cutesmith.audit.problem_audit import AuditVerdict, ProblemAuditor
from cutesmith.checkpoints import write_atomically
from cutesmith.evals.records import Suite, Task
from cutesmith.problems.contract import content_hash
from cutesmith.problems.smaller_sizes import smaller_sources
from cutesmith.verdicts import ExitCode

AUDIT_SECONDS = 30.0


@dataclass(frozen=True)
class ReducedProblem:
    """A problem's text at smaller sizes: the way that its numbers changed, and what the audit says of it."""

    way: str
    source: str
    verdict: AuditVerdict


def reduce_suite(suite: Suite, folder: Path) -> Suite:
    """The suite with each task's file replaced by a copy at smaller sizes, `folder`/ID.py.

    A copy that is there already, of an earlier part of the run, is taken as it is.
    """
    with ProblemAuditor(timeout=AUDIT_SECONDS) as auditor:
        return replace(suite, tasks=tuple(_reduced_task(task, folder, auditor) for task in suite.tasks))


def _reduced_task(task: Task, folder: Path, auditor: ProblemAuditor) -> Task:
    path = (folder / f"{task.id}.py").absolute()
    if not path.exists():
        found = reduce_problem(task.path, auditor)
        text = f"# {task.path.name} with smaller numbers at module scope: {found.way}.\n{found.source}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    return replace(task, path=path, sha256=content_hash(path))


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
