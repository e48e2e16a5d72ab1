"""`cutesmith audit FILES…`: whether problem files are worth solving, found by trying their references on a CPU."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cutesmith.audit.problem_audit import AuditVerdict, ProblemAuditor
from cutesmith.commands._run import command, command_parser, report
from cutesmith.errors import UsageError
from cutesmith.verdicts import ExitCode, InputKind, Verdict

DESCRIPTION = """\
Try problem files before work on them begins: the reference runs, gives the same for the same inputs, depends on every
input, gives finite results, runs in float64, and no result depends on the order of equal values; get_inputs() draws
other values each time, with sizes that a GPU is busy with and that fit; what the function reads, writes and multiplies
at full size. The table has two floors of its time: the bytes at a copy's rate, and the products at the peak of the
tensor cores, by the data sheet of the usual GPU of --arch. The later one counts.

Everything is tried on a CPU, on fewer rows where there are many. A folder stands for all *.py below it. All files share
one confined process, so audit what you do not trust alone. Exit code 0: no errors (warnings may be there); 2: a problem
cannot be used; 6: one did not end in time; with several files, the code of the first that failed."""

MOST_REASON = 200  # characters of what a reference raised

EXAMPLES = (
    "cutesmith audit problem.py",
    "cutesmith audit evals/tasks --json > audits.json",
)


@dataclass(frozen=True, kw_only=True)
class AuditsVerdict(Verdict):
    """The audits of all files, in the order in which they were named; the exit code of the first that failed."""

    stage: ClassVar[str] = "audits"

    problems: tuple[AuditVerdict, ...] = ()


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser("audit", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("files", nargs="+", metavar="FILE", help="problem files, or folders of them")
    parser.add_argument("--arch", metavar="SM", help="what the problem is to be solved for (default: sm_90a)")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds of CPU time a file (default: %(default)g)"
    )
    options = parser.parse_args(argv)
    if not options.timeout > 0:
        raise UsageError(f"--timeout {options.timeout:g}: it must be more than 0 seconds")
    files: list[Path] = []
    for path in map(Path, options.files):
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        if not found:
            raise UsageError(f"{path} holds no *.py", hint="Give problem files, or a folder of them.")
        files += found
    verdict = audit_files(files, arch=options.arch, timeout=options.timeout)
    return report(verdict, as_json=options.json, lines=_lines(verdict))


def audit_files(files: Sequence[Path], *, arch: str | None = None, timeout: float = 60.0) -> AuditsVerdict:
    """Audit the files one after the other in one confined child; raises UsageError for an unknown architecture."""
    begin, problems = time.monotonic(), []
    with ProblemAuditor(arch=arch, timeout=timeout) as auditor:
        for number, path in enumerate(files, start=1):
            _progress(f"{number} of {len(files)}: {path.name}")
            problems.append(auditor.audit(path))
    _progress("")
    failed = [verdict for verdict in problems if not verdict.passed]
    warned = sum(bool(verdict.warnings) for verdict in problems if verdict.passed)
    first = f"; the first: {failed[0].summary}" if failed else ""
    return AuditsVerdict(
        exit_code=failed[0].exit_code if failed else ExitCode.PASSED,
        summary=f"{len(problems) - len(failed)} of {len(problems)} problems can be used, {warned} with warnings{first}",
        problems=tuple(problems),
        seconds=round(time.monotonic() - begin, 3),
    )


def _progress(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _lines(verdict: AuditsVerdict) -> Iterator[str]:
    """A line a problem: what it moves and multiplies at full size, a dash for what is not known; then its findings."""
    width = max(len(_name(problem)) for problem in verdict.problems)
    yield f"{'problem':{width}}  {'MB':>9}  {'GFLOP':>9}  {'µs at 4 TB/s':>12}  {'µs at peak':>10}"
    for problem in verdict.problems:
        work, floor = problem.work, problem.floor_us
        numbers = f"{'–':>9}  {'–':>9}  {'–':>12}  {'–':>10}"
        if work is not None and floor is not None:
            flops = "–" if work.flops is None else f"{sum(work.flops.values()) / 1e9:.4g}"
            peak = "–" if problem.matrix_floor_us is None else f"{problem.matrix_floor_us:.4g}"
            numbers = f"{work.bytes / 1e6:9.4g}  {flops:>9}  {floor:12.4g}  {peak:>10}"
        yield f"{_name(problem):{width}}  {numbers}"
        for finding in problem.findings:
            yield f"    line {finding.line}: {finding.severity} {finding.rule}: {finding.message}. {finding.fix}"
        if problem.domain:
            yield f"    if inputs are always so, write: DOMAIN = {json.dumps(problem.domain)}"
        for kind in problem.kinds if len(verdict.problems) == 1 else ():
            yield from _draws(kind)
        if not problem.passed and not problem.errors:
            told = f"{problem.status}: {problem.summary}\n{problem.hint}".strip()
            yield from (f"    {line}" for line in told.splitlines())
    yield f"{verdict.summary} ({verdict.seconds:.1f} s)"


def _draws(kind: InputKind) -> Iterator[str]:
    """What verify draws for one input beside the file's own, counted, and what it does not, by reasons."""
    count = f"{len(kind.drawn)} more way{'s' * (len(kind.drawn) != 1)}: " if kind.drawn else "no other way"
    yield f"    verify draws `{kind.name}` ({kind.kind}) in {count}{', '.join(kind.drawn)}"
    for why in dict.fromkeys(kind.left_out.values()):
        names = [name for name, reason in kind.left_out.items() if reason == why]
        yield f"        not {', '.join(names)}: {why[:MOST_REASON]}"


def _name(problem: AuditVerdict) -> str:
    return "/".join(Path(problem.path).parts[-2:])
