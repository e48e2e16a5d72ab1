"""`cutesmith check FILE`: lint, compile, verify, benchmark and backup in one call, up to the first that fails."""

from __future__ import annotations

import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from cutesmith.checkpoints import CheckpointStore
from cutesmith.commands._last_check import compiled_before, judged, keep
from cutesmith.commands._run import command, report, verb_parser
from cutesmith.commands.benchmark import table as benchmark_table
from cutesmith.commands.compile import access_lines
from cutesmith.commands.compile import table as compile_table
from cutesmith.commands.lint import table as lint_table
from cutesmith.commands.verify import require_tolerances
from cutesmith.commands.verify import table as verify_table
from cutesmith.compiling.compilation import DEFAULT_TIMEOUT, compile_kernel
from cutesmith.devices import DEFAULT_ARCH, current_device
from cutesmith.errors import CutesmithError, UsageError
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import verify_kernel
from cutesmith.lint import lint_file
from cutesmith.problems.contract import problem_beside
from cutesmith.recording.cubin import source_name
from cutesmith.timing.benchmark import QUICK_ROUNDS, BenchmarkOptions, benchmark_kernel
from cutesmith.timing.entries import import_for_gpu
from cutesmith.verbs.kernel_verbs import CHECK
from cutesmith.verdicts import (
    BenchmarkVerdict,
    CaseOutcome,
    CheckVerdict,
    CompileVerdict,
    ExitCode,
    LintVerdict,
    VerifyVerdict,
)

DESCRIPTION = """\
Take a kernel file through all stages: lint, compile for one architecture, verify, benchmark, and a checkpoint of what
passed. The first stage that fails ends it, and its details are shown; the exit code is that stage's.

Without a GPU the kernel is verified on the emulated one, and nothing is timed. What the stages' own --json holds is
saved in .cutesmith/checks/ beside the file; where nothing has changed, the next check takes its compile stage from
there. --no-backup writes neither. Each stage has a command of its own with more options: lint, compile, verify,
benchmark, checkpoint."""

EXAMPLES = (
    "cutesmith check kernel.py",
    'cutesmith check kernel.py --note "two rows a block"',
    "cutesmith check kernel.py --quick --json             few derived values, few rounds, no torch.compile",
    "cutesmith check kernel.py --problem problem.py --on emulator",
)

MOST_LINES = 30  # of one stage's details: with a line for each stage they fill a screen
WIDEST = 160
MOST_DECLINED, MOST_WHOLE, MOST_WARNINGS, MOST_KERNELS = 12, 3, 4, 2
_BENEATH: dict[str, Any] = {"initial_indent": " " * 11, "subsequent_indent": " " * 13}
Stage = LintVerdict | CompileVerdict | VerifyVerdict | BenchmarkVerdict
TABLES: dict[str, Callable[[Any], Iterator[str]]] = {
    "lint": lint_table,
    "compile": compile_table,
    "verify": verify_table,
    "benchmark": benchmark_table,
}


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """What is asked of the judge, where it runs, and whether and with which note the file is kept."""

    judge: VerifyOptions = VerifyOptions()
    on: str = "auto"
    backup: bool = True
    note: str = ""


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(CHECK, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    require_tolerances(options.rtol, options.atol)
    if not options.timeout > 0:
        raise UsageError(f"--timeout {options.timeout:g}: it must be more than 0 seconds")
    judge = VerifyOptions(
        rtol=options.rtol,
        atol=options.atol,
        arch=options.arch,
        quick=options.quick,
        timeout=options.timeout,
        confine_problem=options.confine_problem,
        preload=import_for_gpu,
    )
    asked = CheckOptions(judge=judge, on=options.on, backup=not options.no_backup, note=options.note)
    verdict = check_kernel(Path(options.file), asked, options.problem)
    return report(verdict, as_json=options.json, lines=table(verdict))


def check_kernel(path: Path, options: CheckOptions, problem: str | None = None) -> CheckVerdict:
    """Take a kernel file through the stages up to the first that fails, and keep it if none does.

    Raises UsageError and ContractError where a stage cannot even begin.
    """
    begin, data = time.monotonic(), path.read_bytes() if path.is_file() else b""
    gpu = current_device() if options.on in ("auto", "gpu") else None
    arch = gpu.fitting_arch(options.judge.arch) if gpu else options.judge.arch or DEFAULT_ARCH
    key = judged(path, problem, arch)
    before = compiled_before(path, key) if options.backup else None
    stages: list[Stage] = []
    for stage in _stages(path, options, problem, arch, before):
        stages.append(stage)
        if not stage.passed:
            break
    last, verified = stages[-1], next((one for one in stages if isinstance(one, VerifyVerdict)), None)
    untimed = f"nothing was timed: it {_where(verified)}" if last is verified and last.passed else ""
    summary = verified.summary if verified and last.passed else last.summary
    beside = problem_beside(path) if problem is None else None
    verdict = CheckVerdict(
        exit_code=last.exit_code,
        summary=summary,
        path=str(path),
        stages=tuple(stages),
        untimed=untimed,
        judged=key,
        compiled_before=before is not None,
        problem=problem or "",
        unused_problem=str(beside or ""),
    )
    if verdict.passed and options.backup:
        verdict = _kept(verdict, data, options.note)
    verdict = replace(verdict, seconds=round(time.monotonic() - begin, 3))
    return keep(verdict) if data and options.backup else verdict


def _stages(
    path: Path, options: CheckOptions, problem: str | None, arch: str, before: CompileVerdict | None
) -> Iterator[Stage]:
    """The verdicts one after another; the reader stops at one that has something against the kernel."""
    judge = options.judge
    _begins("lint")
    yield lint_file(path, problem=problem is not None)
    _begins("compile")
    yield before or compile_kernel(path, (arch,), problem=problem, timeout=max(DEFAULT_TIMEOUT, judge.timeout))
    _begins("verify")
    verified = verify_kernel(path, judge, problem=problem, on=options.on)
    yield verified
    if verified.ran_on == "gpu":
        _begins("benchmark")
        contest = BenchmarkOptions(arch=judge.arch, timeout=max(BenchmarkOptions.timeout, judge.timeout))
        contest = replace(contest, rounds=QUICK_ROUNDS, compiled=False) if judge.quick else contest
        yield benchmark_kernel(path, contest, problem=problem, confine_problem=judge.confine_problem)


def _begins(stage: str) -> None:
    """Tell a caller of the verb what runs; the verdicts are on stdout, once."""
    print(f"{stage} …", file=sys.stderr, flush=True)


def _where(verified: VerifyVerdict | None) -> str:
    return f"ran on {verified.device}" if verified and verified.device else "was only compiled"


def _kept(verdict: CheckVerdict, data: bytes, note: str) -> CheckVerdict:
    """The verdict with the checkpoint of the text that was judged; why there is none, where it could not be kept."""
    told = {name: value for name, value in verdict.to_dict().items() if name != "stages"}
    timed = [one.timings[0].median_us for one in verdict.stages if isinstance(one, BenchmarkVerdict) and one.timings]
    store = CheckpointStore(verdict.path)
    if store.path.read_bytes() != data:
        text = f"{store.path.name} was edited while it was judged: check it again"
        return replace(verdict, exit_code=ExitCode.USAGE, summary=text)
    try:
        kept = store.keep(
            data, note=note or verdict.status, verdict={**told, **({"median_us": timed[0]} if timed else {})}
        )
    except CutesmithError as error:
        return replace(verdict, exit_code=error.exit_code, summary=f"{verdict.summary}; not kept: {error.message}")
    return replace(verdict, checkpoint=kept.number)


def _declined(verified: VerifyVerdict) -> Iterator[str]:
    """The cases that the kernel refused, as many as the summary counts, and the draws that it refused within others."""
    cases = [case.name for case in verified.cases if case.outcome is CaseOutcome.DECLINED]
    draws = [f"{name} for `{kind.name}`" for kind in verified.kinds for name in kind.declined]
    for names, one, several in ((cases, "case", "cases"), (draws, "draw of an input", "draws of single inputs")):
        shown, rest = names[:MOST_DECLINED], len(names) - MOST_DECLINED
        more = [f"and {rest} more (scripts/verify_kernel.py --verbose)"] if rest > 0 else []
        counted = f"{len(names)} {one if len(names) == 1 else several}"
        if names:
            yield f"{counted} declined by the kernel: {'; '.join(shown + more)}"


def _warnings(linted: LintVerdict) -> Iterator[str]:
    """What lint found and let pass; notes are left out."""
    found = [one for one in linted.findings if one.severity == "warning"]
    for one in found[:MOST_WARNINGS]:
        yield f"line {one.line}: {one.rule}: {one.message} {one.fix}".rstrip()
    if (rest := len(found) - MOST_WARNINGS) > 0:
        yield f"and {rest} more (scripts/lint_kernel.py)"


def _registers(compiled: CompileVerdict) -> Iterator[str]:
    """Registers, spills and their cause, and accesses that touch too many sectors, of the kernels with the most."""
    kernels = [kernel for arch in compiled.archs for kernel in arch.kernels]
    kernels.sort(key=lambda kernel: (-(kernel.spill_store_bytes or 0), -kernel.registers))
    for kernel in kernels[:MOST_KERNELS]:
        stored, loaded = kernel.spill_store_bytes, kernel.spill_load_bytes
        spilled = "no spills" if stored == 0 else f"{stored}/{loaded} B spilled (store/load)"
        spilled = "spills not known" if stored is None else spilled
        yield f"{source_name(kernel.name)}: {kernel.registers} registers a thread, {spilled}"
        yield from (note for note in kernel.notes if stored)
        yield from access_lines(kernel, wasteful=True)
    if (rest := len(kernels) - MOST_KERNELS) > 0:
        yield f"and {rest} more kernels or variants (scripts/compile_kernel.py)"


def _beneath(stage: Stage) -> Iterator[str]:
    """What a reader should know of a stage beside its sentence."""
    if isinstance(stage, LintVerdict) and stage.passed:
        yield from _warnings(stage)
    elif isinstance(stage, CompileVerdict) and stage.passed:
        yield from _registers(stage)
    elif isinstance(stage, VerifyVerdict):
        yield from _declined(stage)


def table(verdict: CheckVerdict) -> Iterator[str]:
    """A line for each stage, then the details of the one that ended it; at most a screen, as wide as the terminal."""
    width = min(WIDEST, get_terminal_size((WIDEST, 24)).columns)
    for stage in verdict.stages:
        again = verdict.compiled_before and stage.stage == "compile"
        took = "as in the last check: nothing changed" if again else f"{stage.seconds:.1f} s"
        line = f"{stage.stage:<11}{stage.status}: {stage.summary.splitlines()[0]} ({took})"
        yield from textwrap.wrap(line, width, subsequent_indent=" " * 11)
        for text in _beneath(stage):
            yield from textwrap.wrap(text, width, **_BENEATH)
    if verdict.untimed:
        yield f"{'benchmark':<11}{verdict.untimed}"
    if verdict.checkpoint:
        yield f"{'backup':<11}checkpoint {verdict.checkpoint}"
    if verdict.saved:
        yield f"{'details':<11}{verdict.saved}"
    if verdict.unused_problem:
        yield f"{'note':<11}{verdict.unused_problem} was not used: --problem {verdict.unused_problem} judges by it"
    last = verdict.stages[-1]
    if not last.passed or last.stage == "benchmark":
        details = list(TABLES[last.stage](last))[:-1]  # the sentence stands above
        failed = [line for line in details if line.startswith("FAIL")][:MOST_WHOLE]
        for line in failed:  # what is wrong comes first, and whole
            yield from textwrap.wrap(line, width, subsequent_indent="     ")
        others = [line for line in details if line not in failed]
        yield from (line[:WIDEST] for line in others[:MOST_LINES])
        if len(others) > MOST_LINES:
            named = [verdict.path, *(["--problem", verdict.problem] if verdict.problem else [])]
            yield f"… {len(others) - MOST_LINES} more lines: python scripts/{last.stage}_kernel.py {shlex.join(named)}"
    closing = Path(verdict.path).name if verdict.passed else verdict.summary
    yield f"{verdict.status}: {closing} ({verdict.seconds:.1f} s)"
