"""What a task of a suite must keep beyond what any problem must: metadata, a float64 form, work that is worth timing.

`audit_task` runs `ProblemAuditor`, to which any warning is allowed; here the ones of `STRICT` are faults.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.audit.problem_audit import BYTES_PER_SECOND, LEAST_US, AuditVerdict, ProblemAuditor
from cutesmith.evals.records import Task
from cutesmith.problems import contract
from cutesmith.timing.roofline import H200, Floor, Work, floor_of

STRICT = frozenset(
    """changes-input no-float64 overflow unused-scalar unused-state constant-output same-values no-sets many-sets
    slow-on-cpu""".split()
)
"""Warnings of the problem audit that a task of ours must not have."""

LEVELS = range(1, 5)
LEAST_SETS = 2


@dataclass(frozen=True, kw_only=True)
class TaskAudit:
    """What the problem audit says of a task, its least time on an H200, and every fault in a sentence."""

    verdict: AuditVerdict
    floor: Floor | None
    faults: tuple[str, ...]


def audit_task(task: Task, auditor: ProblemAuditor) -> TaskAudit:
    """Audit one task; whatever is wrong with it is among the faults."""
    verdict = auditor.audit(task.path)
    work = Work(verdict.work.bytes, verdict.work.flops or {}) if verdict.work else None
    floor = (
        floor_of(work, BYTES_PER_SECOND, H200.peak_flops_per_second) if work else None
    )  # of get_inputs(), at full size
    faults = [*metadata_faults(task), *([] if verdict.passed else [verdict.summary])]
    faults += [f"{found.rule}: {found.message}" for found in verdict.warnings if found.rule in STRICT]
    if verdict.passed and len(verdict.sets) < LEAST_SETS:
        faults.append(f"get_input_sets() has {len(verdict.sets)} of at least {LEAST_SETS} sets")
    if floor is not None and floor.us <= LEAST_US:
        faults.append(f"its floor is {floor.us:.3g} µs on an H200: less than {LEAST_US:g}, where a launch is measured")
    return TaskAudit(verdict=verdict, floor=floor, faults=tuple(faults))


def metadata_faults(task: Task) -> Iterator[str]:
    """What the file does not say of itself."""
    if task.level not in LEVELS:
        yield f"LEVEL is {task.level}, not {LEVELS[0]} to {LEVELS[-1]}"
    if not task.tags:
        yield "no TAGS"
    if not task.dtypes:
        yield "no DTYPES, and no tag that names one"
    text = ast.get_docstring(contract.parse(contract.problem_source(task.path), task.path)) or ""
    if not text.rstrip().endswith("."):
        yield "no docstring of a sentence"
