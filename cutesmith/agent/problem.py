"""The problem of a session: audited before anything is paid for, and shown to people."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread

from cutesmith.errors import ContractError
from cutesmith.problem_sources import ProblemSource


@dataclass(frozen=True, kw_only=True)
class AcceptedProblem:
    """The text of a problem file that passed its audit; `audit` is the verdict as data."""

    source: str
    origin: str
    audit: dict[str, Any]

    def lines(self) -> Iterator[str]:
        """The file and what the audit says of it, for whoever is to accept it."""
        yield from self.source.strip().splitlines()
        yield ""
        for value in self.audit["inputs"]:
            yield f"{value['name']}: {_value(value)}"
        yield f"floor: {self.audit['floor_us']:.1f} µs for reading all inputs and writing all outputs once at 4 TB/s"
        yield from (f"{f['severity']}: {f['message']} {f['fix']}" for f in self.audit["findings"])


def _value(value: dict[str, Any]) -> str:
    return f"{value['dtype']}{value['shape']}" if "shape" in value else str(value["value"])


async def accept_file(source: ProblemSource, arch: str) -> AcceptedProblem:
    """A problem that somebody gave; raises ContractError with the audit's findings when it cannot be used."""
    verdict = await anyio.to_thread.run_sync(audit_text, source.source, source.name, arch, abandon_on_cancel=True)
    if verdict["exit_code"] != 0:
        raise ContractError(f"{source.origin}: {verdict['summary']}", hint=_findings(verdict))
    return AcceptedProblem(source=source.source, origin=source.origin, audit=verdict)


def audit_text(source: str, name: str, arch: str) -> dict[str, Any]:
    """The audit of a problem file's text, as data."""
    from cutesmith.checks.problem_audit import audit_problem

    with tempfile.TemporaryDirectory(prefix="cutesmith-problem-") as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        return audit_problem(path, arch=arch).to_dict()


def _findings(verdict: dict[str, Any]) -> str:
    errors = [f"line {f['line']}: {f['message']} {f['fix']}" for f in verdict["findings"] if f["severity"] == "error"]
    return "\n".join([*errors, verdict["hint"]]).strip()
