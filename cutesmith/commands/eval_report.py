"""`cutesmith eval report`: the page of one run or of several side by side, with Markdown and CSV beside it."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from cutesmith.commands._run import command, command_parser, report
from cutesmith.errors import UsageError
from cutesmith.verdicts import ExitCode, Verdict

DESCRIPTION = """\
Turn the raw samples of runs into numbers: fast_p, correctness, speed-ups with bootstrap 95 % intervals, pass@k, best@k,
share of the roofline, cost of a win; by level, tag and dtype; a section for every task with kernel, verdicts, samples.

Writes one self-contained page (FILE.html), and FILE.md and FILE.csv beside it. Denominators are all tasks of the run:
what was not attempted, not judged or not timed is counted and shown, never dropped (docs/evals.md)."""

EXAMPLES = (
    "cutesmith eval report RUN",
    "cutesmith eval report RUN RUN2 --out both.html",
    "cutesmith eval report RUN --json",
)


@dataclass(frozen=True, kw_only=True)
class ReportVerdict(Verdict):
    """The files that were written, and of each run its scores: {"name", "all", "level", "tag", "dtype"}."""

    stage: ClassVar[str] = "eval report"

    page: str
    markdown: str
    csv: str
    runs: tuple[dict[str, Any], ...] = ()


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser("eval report", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("folders", nargs="+", metavar="DIR", help="folders of runs (cutesmith eval run --out DIR)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: DIR/report.html, ./report.html for several)"
    )
    verdict, lines = _written(parser.parse_args(argv))
    return report(verdict, as_json="--json" in argv, lines=lines)


def _written(options: Namespace) -> tuple[ReportVerdict, list[str]]:
    from cutesmith.evals.scores.outcomes import read_runs
    from cutesmith.report.runs.page import render_runs
    from cutesmith.report.runs.tables import ScoredRun, csv_text, markdown, write_texts

    start = time.perf_counter()
    page = _page(options)
    runs = [ScoredRun(run) for run in read_runs([Path(folder) for folder in options.folders])]
    texts = {page: render_runs(runs, beside=page.parent), page.with_suffix(".md"): markdown(runs)}
    texts[page.with_suffix(".csv")] = csv_text(scored.run for scored in runs)
    write_texts(texts)
    verdict = ReportVerdict(
        exit_code=ExitCode.PASSED,
        summary=f"{page}: {len(runs)} run{'s' * (len(runs) > 1)}, {sum(len(r.run.tasks) for r in runs)} tasks",
        seconds=round(time.perf_counter() - start, 3),
        **dict(zip(("page", "markdown", "csv"), map(str, texts))),
        runs=tuple({"name": scored.run.name, **scored.cards} for scored in runs),
    )
    return verdict, [line for scored in runs for line in _lines(scored)] + [verdict.summary]


def _page(options: Namespace) -> Path:
    page: Path = options.out or (Path(options.folders[0]) if len(options.folders) == 1 else Path()) / "report.html"
    if page.suffix not in (".html", ".htm"):
        raise UsageError(
            f"--out {page} is not a page", hint="Name it FILE.html; FILE.md and FILE.csv are written beside it"
        )
    return page


def _lines(scored: Any) -> Iterator[str]:
    from cutesmith.report.runs import wording
    from cutesmith.report.runs.tables import denominators, remarks

    card = scored.whole
    yield f"{scored.run.name}: {denominators(card)}"
    for name, entry in card.against.items():
        fast, mean = wording.share_score(entry.fast[1.0]), wording.factor_score(entry.geometric_mean)
        yield f"  against {name:<18} fast_1 {fast:<24} geometric mean {mean} over {entry.geometric_mean.over}"
    yield from (f"  note: {remark}" for remark in remarks(scored.run))
