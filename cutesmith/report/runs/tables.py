"""Scores as Markdown, and every kernel as a line of CSV with full precision; and how these texts come to the disk."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cutesmith.checkpoints import write_atomically
from cutesmith.errors import UsageError
from cutesmith.evals.records import KERNEL, LIBRARY
from cutesmith.evals.scores.costs import Costs, costs_of, worked_seconds
from cutesmith.evals.scores.estimators import THRESHOLDS
from cutesmith.evals.scores.outcomes import FAILED, NOT_ATTEMPTED, REJECTED, TIMED, UNJUDGED, UNTIMED, Outcome, Run
from cutesmith.evals.scores.scorecard import Scorecard, run_scorecards
from cutesmith.evals.scores.summaries import Score
from cutesmith.report.runs import wording

KINDS = ("level", "tag", "dtype")


@dataclass(frozen=True)
class ScoredRun:
    """A run with its scores, which are computed once."""

    run: Run

    @cached_property
    def cards(self) -> dict[str, list[Scorecard]]:
        """Of the whole run and of its parts."""
        return run_scorecards(self.run)

    @property
    def whole(self) -> Scorecard:
        """Of all tasks."""
        return self.cards["all"][0]

    @cached_property
    def costs(self) -> Costs:
        """What it took."""
        return costs_of(self.run)


def denominators(card: Scorecard) -> str:
    """Where every task went, in one sentence: nothing that did not run is left out."""
    named = {TIMED: "correct and timed", UNTIMED: "correct but not timed (fast for p = 0 alone)"}
    named |= {FAILED: "not correct", REJECTED: "rejected"}
    named |= {UNJUDGED: "without a verdict (count as not solved)", NOT_ATTEMPTED: "not attempted (count as not solved)"}
    parts = [f"{card.states[state]} {text}" for state, text in named.items() if card.states.get(state)]
    return f"{card.tasks} tasks: {', '.join(parts) or 'none'}"


def remarks(run: Run) -> list[str]:
    """What a reader must know of the data before the numbers."""
    found = []
    if run.damaged:
        first = run.damaged[0]
        found.append(f"{len(run.damaged)} lines of results.jsonl are not results (line {first.number}: {first.reason})")
    if run.superseded:
        found.append(f"{run.superseded} results were made again later; the later one counts")
    if len({machine.device for machine in run.machines}) > 1:
        found.append("judged on several devices: " + ", ".join(sorted({machine.device for machine in run.machines})))
    if any(outcome.attempt.ran_on == "emulator" for outcome in run.outcomes):
        found.append("kernels were verified on the emulated GPU, which times nothing")
    cached = sum(outcome.attempt.cached for outcome in run.outcomes)
    if cached:
        known = "were known of the same kernel, from the cache or this run"
        found.append(f"{cached} results {known}, with the cost and the samples of when they were made")
    if run.tolerance:
        found.append(f"judged by the tolerance {run.tolerance} instead of the tasks' own")
    if not run.facts.tasks:
        found.append("run.json names no tasks: tasks that were never attempted cannot be counted")
    if LIBRARY in run.baselines and any(task.task.libraries is None and task.state != TIMED for task in run.tasks):
        found.append(
            "run.json does not say which tasks a library computes: against library, all that were not timed count"
        )
    return found


def markdown(runs: Sequence[ScoredRun]) -> str:
    """Every score with its interval and its denominator."""
    blocks = ["# Scores: " + ", ".join(_cell(scored.run.name) for scored in runs)]
    for scored in runs:
        blocks += [
            f"## {_cell(scored.run.name)}",
            _about(scored),
            *_whole(scored),
            *_parts(scored),
            *_at_k(scored.whole),
        ]
    blocks.append(METHOD)
    return "\n\n".join(blocks) + "\n"


METHOD = (
    "fast_p: share of all tasks that are correct and more than p times as fast as the baseline (medians of the raw "
    "samples); against library, of the tasks that a library computes, solved or not (the others are counted beside). "
    "Speed-ups: over the tasks with a correct, timed kernel, each once. Brackets: bootstrap 95 % intervals, "
    "tasks drawn again and within each task its timing samples; Wilson's where all tasks have the same result."
)


def _about(scored: ScoredRun) -> str:
    run, costs = scored.run, scored.costs
    machine = run.machines[0].model_dump().items() if run.machines else ()
    lines = [
        f"- {', '.join(run.suites) or 'unnamed suite'}, kernels by {_cell(', '.join(run.sources)) or 'unknown'}",
        "- " + (", ".join(f"{key} {_cell(value)}" for key, value in machine if value) or "no machine named"),
        f"- {denominators(scored.whole)}",
        f"- {price_of_a_win(costs)}",
        *(f"- note: {_cell(remark)}" for remark in remarks(run)),
    ]
    return "\n".join(lines)


def _whole(scored: ScoredRun) -> Iterator[str]:
    card = scored.whole
    yield f"Correct {wording.share_score(card.correct)} of {card.tasks}; of the roofline (median) " + (
        f"{wording.share_score(card.floor)} over {card.floor.over}" if card.floor.over else wording.UNKNOWN
    )
    if card.against:
        rows: list[Sequence[str]] = []
        for entry in card.against.values():
            tasks = f"{entry.tasks}" + (f" ({entry.outside} without it)" if entry.outside else "")
            shares = [wording.share_score(entry.fast[p]) for p in THRESHOLDS]
            means = [wording.factor_score(entry.geometric_mean), wording.factor_score(entry.median)]
            rows.append([entry.baseline, tasks, *shares, *means, str(entry.geometric_mean.over), str(entry.untimed)])
        yield markdown_table(AGAINST, rows)


def took(costs: Costs) -> str:
    """Minutes, tokens and dollars of a solved task, as far as anything was spent."""
    return spent(costs, costs.wins) if costs.wins else wording.UNKNOWN


def spent(costs: Costs, tasks: int) -> str:
    """Minutes, tokens and dollars of all attempts over so many tasks, as far as anything was spent."""
    parts = [wording.plain(costs.minutes / tasks, "min")]
    if costs.tokens:
        parts.append(wording.plain(costs.tokens / tasks, "tokens"))
    if costs.dollars is not None:
        parts.append(wording.dollars(costs.dollars / tasks, costs))
    return ", ".join(parts)


def price_of_a_win(costs: Costs) -> str:
    """What a solved task took, in one sentence."""
    if not costs.wins:
        return f"Nothing was solved; all attempts together took {spent(costs, 1)}."
    return f"A solved task took {took(costs)}, failed attempts included."


FAST = [f"fast_{p:g}" for p in THRESHOLDS]
AGAINST = ("against", "tasks", *FAST, "geometric mean", "median", "over", "untimed")


def _parts(scored: ScoredRun) -> Iterator[str]:
    baselines = scored.run.baselines
    for kind in KINDS:
        head = (kind, "tasks", "correct", *(f"fast_1, {name}" for name in baselines))
        head = (*head, *(f"geometric mean, {name}" for name in baselines), "of the roofline")
        rows: list[Sequence[str]] = []
        for card in scored.cards[kind]:
            fast = [wording.share_score(card.against[name].fast[1.0]) for name in baselines]
            means = [wording.factor_score(card.against[name].geometric_mean) for name in baselines]
            correct, floor = wording.share_score(card.correct), wording.share_score(card.floor)
            rows.append([card.name, str(card.tasks), correct, *fast, *means, floor])
        if rows:
            yield markdown_table(head, rows)


def _at_k(card: Scorecard) -> Iterator[str]:
    if len(card.pass_at) > 1:
        rows = [
            [str(k), wording.share_score(passed), wording.factor_score(card.best_at.get(k, NO_SCORE)), str(passed.over)]
            for k, passed in card.pass_at.items()
        ]
        yield markdown_table(("k", "pass@k", "best@k", "tasks with k samples"), rows)


NO_SCORE = Score(value=None)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells cannot end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """Text that ends neither a cell nor a line and is not HTML."""
    flat = " ".join(text.split())
    return "".join(f"&#{ord(sign)};" if sign in "|<>&`" else sign for sign in flat)


COLUMNS = """
run task level tags dtypes source sample outcome stage status exit_code rule correct ran_on kernel_us samples eager_us
compile_us library_us speedup_eager speedup_compile speedup_library floor_us floor_kind floor_share flops bytes dollars
input_tokens output_tokens seconds device driver finished summary kernel
""".split()
_BASELINES = {"eager": "eager", "compile": "torch.compile", "library": "library"}


def csv_text(runs: Iterable[Run]) -> str:
    """One line a kernel, one a task without any; numbers are unrounded, unknown ones empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for run in runs:
        for task in run.tasks:
            own = {"run": _text(run.name), "task": _text(task.task.id), "level": task.task.level}
            own |= {"tags": _text(" ".join(task.task.tags)), "dtypes": _text(" ".join(task.task.dtypes))}
            rows = [_row(outcome) for outcome in task.outcomes] or [{"outcome": NOT_ATTEMPTED}]
            writer.writerows({**own, **row} for row in rows)
    return text.getvalue()


def _row(outcome: Outcome) -> Mapping[str, object]:
    attempt, kernel = outcome.attempt, outcome.times.get(KERNEL)
    names = ("stage", "status", "rule", "ran_on", "floor_kind", "finished", "summary", "kernel", "source")
    numbers = ("sample", "exit_code", "correct", "floor_us", "flops", "bytes")
    speedups = {key: outcome.speedup(name) if outcome.correct else None for key, name in _BASELINES.items()}
    return {
        **{name: _text(getattr(attempt, name)) for name in names},
        **{name: getattr(attempt, name) for name in numbers},
        **{f"{key}_us": outcome.median_us(name) for key, name in _BASELINES.items()},
        **{f"speedup_{key}": value if value == value else None for key, value in speedups.items()},
        **{name: getattr(attempt.cost, name) for name in ("dollars", "input_tokens", "output_tokens")},
        **{name: _text(getattr(attempt.machine, name)) for name in ("device", "driver")},
        "outcome": outcome.outcome,
        "kernel_us": outcome.median_us(),
        "samples": len(kernel.samples) if kernel else 0,
        "floor_share": outcome.floor_share(),
        "seconds": worked_seconds(outcome),
    }


def _text(text: str) -> str:
    """One line that no spreadsheet takes for a formula."""
    flat = " ".join(text.split())
    return f"'{flat}" if flat[:1] in ("=", "+", "-", "@") else flat


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write every text as UTF-8, folders on the way made; raises UsageError for what the disk does not take."""
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode("utf-8", "replace"))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", hint="Name another place: --out") from error
