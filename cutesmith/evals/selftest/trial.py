"""A specimen before the judge: the command that anybody would call, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutesmith import resources
from cutesmith.audit.problem_audit import AuditVerdict
from cutesmith.checkpoints import write_atomically
from cutesmith.evals.selftest.specimens import Specimen
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from cutesmith.verdicts import ExitCode, Mechanism

FOLDER = "verdicts"  # of the outcomes: one JSON file a kernel
NO_END = -1  # the exit code of a command that had to be ended
COMMAND_SECONDS = 900  # a timed-out case is ended by the judge long before
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s'\"/,;:()]+/)+(?=[^\s'\"/,;:()])")  # of an absolute path, up to its name


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the judge made of a specimen: its verdict as JSON, or `summary` of a command that gave none."""

    specimen: Specimen
    exit_code: int
    summary: str
    seconds: float
    verdict: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The verdict in a word."""
        return ExitCode(self.exit_code).name.lower() if self.exit_code in tuple(ExitCode) else str(self.exit_code)

    @property
    def rule(self) -> str:
        """The rule that a failed case names: one that is wanted, else the one that the verdict names.

        Sizes and values are drawn again in each run, so a case of another rule may fail first: shapes that were drawn
        for rule S2 may have equal numbers of elements, which is what rule S4 tries.
        """
        failed = [str(case.get("rule", "")) for case in self.verdict.get("cases", ()) if not case.get("passed", True)]
        named = [str(self.verdict.get("rule", "")), *failed]
        return next((rule for rule in named if rule in self.specimen.rules), named[0])

    @property
    def as_wanted(self) -> bool:
        """Whether the status is one of those wanted and, where a rule is, the rule is."""
        wanted = self.specimen.rules
        ruled = self.status in ("rejected", "wrong_result") and bool(wanted) and not self.specimen.honest
        return self.status in self.specimen.statuses and (not ruled or self.rule in wanted)

    @property
    def short_of_memory(self) -> bool:
        """Whether there was no room on the GPU, which others may have taken."""
        return not self.as_wanted and self.verdict.get("mechanism") == Mechanism.GPU_MEMORY.value

    @property
    def result(self) -> str:
        """ "right"; "WRONG"; "gap": known not to be caught; "closed": a gap no longer, so that its header is wrong."""
        if self.specimen.gap:
            return "closed" if self.as_wanted else "gap"
        return "right" if self.as_wanted else "WRONG"

    @property
    def caught_by(self) -> str:
        """The mechanism that caught it, as the verdict says; empty for what passed."""
        if self.exit_code == ExitCode.PASSED:
            return ""
        if self.verdict.get("stage") == AuditVerdict.stage:
            return Mechanism.PROBLEM_AUDIT.value
        ended = Mechanism.TIME_LIMIT if self.exit_code == NO_END else Mechanism.EXCEPTION
        return str(self.verdict.get("mechanism") or ended.value)

    def row(self) -> dict[str, Any]:
        """What matrix.json holds of it; the sentence names files without their folders on this machine."""
        return {
            "rule": self.specimen.rule,
            "kernel": self.specimen.name,
            "honest": self.specimen.honest,
            "expected": self.specimen.expect,
            "got": f"{self.status} {self.rule}".strip(),
            "result": self.result,
            "caught_by": self.caught_by,
            "gap": self.specimen.gap,
            "seconds": round(self.seconds, 1),
            "sentence": _FOLDERS.sub("", self.summary.replace(str(Path.home()), "~")).strip(),
        }


def command_of(specimen: Specimen, on: str) -> list[str]:
    """The command line that judges a specimen on "compile", "emulator" or "gpu"."""
    command = [sys.executable, "-m", "cutesmith", specimen.command, str(specimen.path), "--json"]
    command += ["--timeout", specimen.timeout, *specimen.options.split()]
    more = {"verify": ["--on", on], "benchmark": ["--quick", "--no-compile-baseline"], "audit": []}
    return [*command, *more[specimen.command]]


def run_one(specimen: Specimen, on: str) -> Outcome:
    """Judge one specimen by a command whose workers are forked from our fork server."""
    begin, code, verdict = time.monotonic(), NO_END, dict[str, Any]()
    with lend_fork_server() as (variables, descriptors):
        child = subprocess.Popen(
            command_of(specimen, on),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=resources.PACKAGE.parent,
            env={**os.environ, **variables},
            pass_fds=descriptors,
        )
    with child:
        try:
            verdict, summary = _read(*child.communicate(timeout=COMMAND_SECONDS))
            code = child.returncode
        except subprocess.TimeoutExpired:
            child.kill()
            summary = f"the command itself did not end within {COMMAND_SECONDS} s"
    seconds = time.monotonic() - begin
    return Outcome(specimen=specimen, exit_code=code, summary=summary, seconds=seconds, verdict=verdict)


def _read(stdout: str, stderr: str) -> tuple[dict[str, Any], str]:
    try:
        verdict = json.loads(stdout)
    except ValueError:
        return {}, (stderr or stdout)[-300:]
    if isinstance(verdict, dict) and verdict.get("problems"):  # an audit of several files, of which there is one
        verdict = verdict["problems"][0]
    return (verdict, str(verdict.get("summary", ""))) if isinstance(verdict, dict) else ({}, stdout[-300:])


def run_all(
    chosen: Sequence[Specimen],
    on: str,
    *,
    jobs: int = 2,
    known: Callable[[Specimen], Outcome | None],
    done: Callable[[Outcome], None],
) -> list[Outcome]:
    """Judge all specimens that `on` can show, `jobs` at once, in their order.

    `known` may give an outcome from before; `done` is told of each as it ends. Who found the GPU's memory taken is
    judged again when the others have ended, alone: a kernel at sizes beyond 32 bits takes 120 GiB of an H200's.
    """

    def judged(specimen: Specimen) -> Outcome:
        outcome = known(specimen) or run_one(specimen, on)
        if not outcome.short_of_memory:
            done(outcome)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(judged, [specimen for specimen in chosen if specimen.can_run(on)]))
    for place, outcome in enumerate(outcomes):
        if outcome.short_of_memory:
            outcomes[place] = run_one(outcome.specimen, on)
            done(outcomes[place])
    return outcomes


def keep(folder: Path, outcome: Outcome, on: str) -> None:
    """Write one outcome with the hash of its kernel and where it was judged, so that an interrupted trial can go on.

    It replaces an older one.
    """
    path = _path(folder, outcome.specimen)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"on": on, "sha256": outcome.specimen.sha256, "exit_code": outcome.exit_code, "summary": outcome.summary}
    record |= {"seconds": round(outcome.seconds, 1), "verdict": outcome.verdict}
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())


def kept(folder: Path, specimen: Specimen, on: str) -> Outcome | None:
    """The outcome of the very same file in the same place; None where there is none that can be read."""
    try:
        record = json.loads(_path(folder, specimen).read_text(encoding="utf-8"))
        if (record["on"], record["sha256"]) != (on, specimen.sha256):
            return None
        named = {name: record[name] for name in ("exit_code", "summary", "seconds", "verdict")}
    except (OSError, ValueError, KeyError, TypeError):  # not there, cut in the middle, or of another kind
        return None
    return Outcome(specimen=specimen, **named)


def _path(folder: Path, specimen: Specimen) -> Path:
    return folder / FOLDER / f"{specimen.name}.json"
