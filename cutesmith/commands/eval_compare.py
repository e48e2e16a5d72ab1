"""`cutesmith eval compare`: two runs over the tasks that both have, with paired statistics."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cutesmith.commands._run import command, command_parser, report
from cutesmith.errors import UsageError
from cutesmith.verdicts import ExitCode, Verdict

if TYPE_CHECKING:
    from cutesmith.evals.scores.comparison import Comparison

DESCRIPTION = """\
Compare run B with run A on the tasks that both have: which flipped, with both verdicts; which got faster or slower
beyond noise; the share of correct kernels and the ratio of speed-ups, with paired bootstrap 95 % intervals and sign
tests.

Speed-ups are against a baseline that was timed between the kernel's own samples, so that they do not follow the clock
of the day. Runs of different devices are refused (--across-devices compares them all the same); other versions and
settings that differ are named first."""

EXAMPLES = (
    "cutesmith eval compare RUN RUN2",
    "cutesmith eval compare BARE WHOLE --baseline torch.compile --json",
)


@dataclass(frozen=True, kw_only=True)
class CompareVerdict(Verdict):
    """The comparison, as `evals.scores.comparison.Comparison` describes it; passed whatever it says."""

    stage: ClassVar[str] = "eval compare"

    comparison: Comparison


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    from cutesmith.evals.records import EAGER
    from cutesmith.evals.scores.comparison import NOISE, SKILL, compare_runs
    from cutesmith.evals.scores.outcomes import BASELINES, read_runs
    from cutesmith.report.runs import wording

    start = time.perf_counter()
    parser = command_parser("eval compare", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("first", type=Path, metavar="A", help="the folder of the run that is compared with")
    parser.add_argument("second", type=Path, metavar="B", help="the folder of the run in question")
    parser.add_argument("--baseline", choices=BASELINES, default=EAGER, help="of the speed-ups (default: eager)")
    parser.add_argument(
        "--noise", type=_share, default=NOISE, metavar="X", help=f"a change that says nothing (default: {NOISE})"
    )
    parser.add_argument("--across-devices", action="store_true", help="compare although the devices differ")
    options = parser.parse_args(argv)
    first, second = read_runs([options.first, options.second])
    comparison = compare_runs(first, second, options.baseline, options.noise)
    _refuse(comparison, options.across_devices)
    for name, (before, after) in comparison.different.items():
        if name == SKILL:  # arms of a trial differ on purpose, and the first line says how
            continue
        print(f"warning: {name} differs: {before} | {after}", file=sys.stderr)
    solved, speed = comparison.solved, wording.factor_score(comparison.speed)
    times = f"speed-up {speed} of what it was" if comparison.speed.over else "no times to compare"
    verdict = CompareVerdict(
        exit_code=ExitCode.PASSED,
        summary=f"{comparison.second} against {comparison.first} on {comparison.tasks} tasks: "
        f"{solved['second']} gained, {solved['first']} lost; {times}",
        seconds=round(time.perf_counter() - start, 3),
        comparison=comparison,
    )
    return report(verdict, as_json=options.json, lines=[*_lines(comparison), verdict.summary])


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ArgumentTypeError(f"{text!r} is not a share from 0 to 1, such as 0.03")
    return value


def _refuse(comparison: Comparison, across_devices: bool) -> None:
    if not comparison.tasks:
        raise UsageError(
            f"{comparison.first} and {comparison.second} have no task in common", hint="cutesmith eval report A B"
        )
    if comparison.other_device and not across_devices:
        before, after = comparison.different["device"]
        raise UsageError(
            f"the runs were judged on different devices, {before} and {after}: their times do not compare",
            hint="--across-devices compares the speed-ups all the same",
        )


def _lines(comparison: Comparison) -> Iterator[str]:
    from cutesmith.evals.running.screen import one_line
    from cutesmith.evals.scores.comparison import SKILL
    from cutesmith.report.runs import wording

    solved, share = comparison.solved, comparison.share
    if SKILL in comparison.different:
        words = {"whole": "all of it", "bare": "none of it (--bare)"}
        first, second = (words.get(skill, f"all {skill}") for skill in comparison.different[SKILL])
        yield f"skill: A has {first}, B has {second}"
    yield f"tasks: {comparison.tasks} in both, {comparison.only_first} only in A, {comparison.only_second} only in B"
    yield (
        f"solved: {solved['both']} by both, {solved['first']} by A alone, {solved['second']} by B alone, "
        f"{solved['neither']} by neither (sign test p = {comparison.solved_p:.3g})"
    )
    yield f"share of correct kernels, B less A: {wording.share_score(share)}"
    speed = f"{wording.factor_score(comparison.speed)} over {comparison.speed.over} tasks"
    yield f"speed-up against {comparison.baseline}, B over A: {speed} (sign test p = {comparison.speed_p:.3g})"
    for flip in comparison.flips:
        yield one_line(f"{'gained' if flip.gained else 'lost  '}  {flip.task}")
        yield from (one_line(f"          {letter}: {said}") for letter, said in (("A", flip.before), ("B", flip.after)))
    sure = [change for change in comparison.changes if change.beyond_noise]
    for change in sure:
        word, bounds = "faster" if change.ratio > 1 else "slower", wording.factor_interval(change.interval)
        times = f"{change.before:.2f}× → {change.after:.2f}×, {change.ratio:.2f}× [{bounds}]"
        yield one_line(f"{word}  {change.task}: {times}")
    yield f"{len(comparison.changes) - len(sure)} of {len(comparison.changes)} timed tasks did not change beyond noise"
