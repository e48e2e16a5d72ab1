"""The problem of a session: audited before anything is paid for, and shown to people."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio.to_thread

from cutesmith.audit.problem_audit import AuditVerdict, ProblemAuditor
from cutesmith.errors import CandidateError, ContractError
from cutesmith.problems.sources import ProblemSource
from cutesmith.verdicts import ExitCode

AUDIT_SECONDS = 60.0
REQUEST = "request"
_SETS_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class AcceptedProblem:
    """A problem file's text that passed its audit; `origin` is a path, `file.py:name`, or "request"."""

    source: str
    origin: str
    audit: Mapping[str, Any]  # AuditVerdict.to_dict()

    def lines(self) -> Iterator[str]:
        """The file and what the audit says of it, for the person who is to accept it."""
        yield from self.source.strip().splitlines()
        yield ""
        yield from describe(self.audit)


async def accept_file(source: ProblemSource, arch: str) -> AcceptedProblem:
    """A problem that a person gave; raises ContractError with the audit's findings when it cannot be used.

    CandidateError (TIMED_OUT): its reference does not end.
    """
    verdict = await audit_text(source.source, source.name, arch)
    if verdict.exit_code in (ExitCode.TIMED_OUT, ExitCode.INTERNAL, ExitCode.UNAVAILABLE):
        raise CandidateError(verdict.summary, verdict.exit_code, hint=verdict.hint, log_tail=verdict.log_tail)
    if not verdict.passed:
        others = [f"{finding.message}. {finding.fix}" for finding in verdict.errors[1:]]  # the first is the summary
        wrong = verdict.summary.removeprefix(f"{source.name}.py: ")
        raise ContractError(f"{source.origin}: {wrong}", hint="\n".join([*others, verdict.hint]).strip())
    return AcceptedProblem(source=source.source, origin=source.origin, audit=verdict.to_dict())


async def audit_text(source: str, name: str, arch: str, *, timeout: float = AUDIT_SECONDS) -> AuditVerdict:
    """The audit of a problem file's text; cancelling it ends its process."""
    with tempfile.TemporaryDirectory(prefix="cutesmith-problem-") as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        auditor = ProblemAuditor(arch=arch, timeout=timeout)

        def audit() -> AuditVerdict:
            with auditor:
                return auditor.audit(path)

        try:
            verdict = await anyio.to_thread.run_sync(audit, abandon_on_cancel=True)
            return replace(verdict, path=path.name)  # the folder is gone when the verdict is read
        finally:
            auditor.stop()


def describe(audit: Mapping[str, Any]) -> Iterator[str]:
    """An audit's dictionary in lines: inputs, outputs, bytes and floor, other sets, warnings."""
    for kind in ("inputs", "outputs"):
        names = [str(entry["name"] or number) for number, entry in enumerate(audit[kind])]
        width = max(map(len, names), default=0)
        yield f"{kind}:"
        for name, entry in zip(names, audit[kind]):
            shape = f"{entry['dtype']}{entry['shape']}  {_size(entry['bytes'])}" if "shape" in entry else entry["value"]
            yield f"  {name:{width}}  {shape}{_allowed(entry)}"
    if audit["floor_us"] is not None:
        total = _size(audit["input_bytes"] + audit["output_bytes"])
        yield f"floor: {audit['floor_us']:,.4g} µs for reading and writing these {total} once at 4 TB/s"
    if audit.get("matrix_floor_us") is not None:
        yield f"floor: {audit['matrix_floor_us']:,.4g} µs for its products at the tensor cores' peak"
    if sets := audit["sets"]:
        more = f" and {len(sets) - _SETS_SHOWN} more" if len(sets) > _SETS_SHOWN else ""
        yield f"also verified on: {'; '.join(sets[:_SETS_SHOWN])}{more}"
    else:
        yield "verified on these shapes alone: there is no get_input_sets()"
    yield from _draws(audit["kinds"])
    for finding in audit["findings"]:
        yield f"{finding['severity']}: {finding['message']}. {finding['fix']}"


def _draws(kinds: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the judge draws beside the file's own inputs, a line for all inputs that it draws in the same ways."""
    names: dict[str, list[str]] = {}
    for kind in kinds:
        ways = ", ".join(kind["drawn"]).replace(f"`{kind['name']}` ", "")
        left_out = f"; not {', '.join(kind['left_out'])}" if kind["left_out"] else ""
        names.setdefault(f"({kind['kind']}) as: {ways}{left_out}", []).append(f"`{kind['name']}`")
    for told, those in names.items():
        yield f"the judge also tries {', '.join(those)} {told}"


def _allowed(entry: Mapping[str, Any]) -> str:
    """What an output may differ by, as the judge has it."""
    if "rtol" not in entry:
        return ""
    beside = " of their root mean square" if entry["atol_of_rms"] else ""
    return f", allowed: {entry['rtol']:.2g} of each value + {entry['atol']:.2g}{beside}"


def _size(count: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"
