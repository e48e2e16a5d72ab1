"""`cutesmith eval leaderboard`: runs in the order of their fast_1, ties marked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cutesmith.commands._run import command, command_parser, report
from cutesmith.errors import UsageError
from cutesmith.verdicts import ExitCode, Verdict

if TYPE_CHECKING:
    from cutesmith.report.runs.leaderboard import PlainTable

DESCRIPTION = """\
Rank runs by fast_1: the share of all tasks with a correct kernel that is faster than the baseline. Only runs over the
same tasks on the same device stand in one table. A run whose paired 95 % interval does not set it below the first of a
place shares that place, marked with "=".

Prints Markdown; --out FILE.html or FILE.md writes it."""

EXAMPLES = (
    "cutesmith eval leaderboard runs/*",
    "cutesmith eval leaderboard RUN RUN2 --baseline torch.compile --out leaderboard.html",
)


@dataclass(frozen=True, kw_only=True)
class LeaderboardVerdict(Verdict):
    """Tables of {"title", "tasks", "standings"}; a standing has place, tied, name and the numbers of its line."""

    stage: ClassVar[str] = "eval leaderboard"

    tables: tuple[PlainTable, ...] = ()
    out: str = ""


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    from cutesmith.evals.scores.outcomes import BASELINES, FASTEST, read_runs
    from cutesmith.evals.scores.ranking import rank
    from cutesmith.report.runs import leaderboard
    from cutesmith.report.runs.tables import write_texts

    start = time.perf_counter()
    parser = command_parser("eval leaderboard", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs")
    parser.add_argument("--baseline", choices=BASELINES, default=FASTEST, help=f"of fast_1 (default: {FASTEST})")
    parser.add_argument("--out", type=Path, metavar="FILE", help="FILE.html or FILE.md")
    options = parser.parse_args(argv)
    if options.out and options.out.suffix not in leaderboard.FORMS:
        raise UsageError(f"--out {options.out}: its form is not known", hint="Name it FILE.html or FILE.md")
    tables = rank(read_runs(options.folders), options.baseline)
    if options.out:
        write_texts({options.out: leaderboard.FORMS[options.out.suffix](tables, options.baseline)})
    runs = sum(len(table.standings) for table in tables)
    verdict = LeaderboardVerdict(
        exit_code=ExitCode.PASSED,
        summary=f"{runs} runs in {len(tables)} table{'s' * (len(tables) > 1)}",
        seconds=round(time.perf_counter() - start, 3),
        tables=tuple(leaderboard.plain(table, options.baseline) for table in tables),
        out=str(options.out or ""),
    )
    lines = [f"{options.out}: {verdict.summary}"] if options.out else [leaderboard.markdown(tables, options.baseline)]
    return report(verdict, as_json=options.json, lines=lines)
