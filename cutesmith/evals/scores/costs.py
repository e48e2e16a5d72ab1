"""What a win took: dollars, tokens and minutes of all attempts, also of those that failed, over the solved tasks."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.evals.scores.outcomes import Outcome, Run

NOT_ADDED = ("queued", "compiler")
"""Of an attempt's seconds: waiting for a GPU is not work, and what the compiler took is within its stage already."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Sums over all attempts, and the solved tasks that they bought.

    `dollars` is None when no attempt has a price; `unpriced` attempts used tokens and have none, so that it is a lower
    bound. `minutes` are wall-clock minutes of generating and judging without waiting for a GPU.
    """

    wins: int
    dollars: float | None
    unpriced: int
    tokens: int
    minutes: float

    def per_win(self, total: float | None) -> float | None:
        """A total over the wins; None without a win."""
        return total / self.wins if self.wins and total is not None else None


def costs_of(run: Run) -> Costs:
    """What a run took."""
    outcomes = run.outcomes
    priced = [outcome.attempt.cost.dollars for outcome in outcomes if outcome.attempt.cost.dollars is not None]
    return Costs(
        wins=sum(task.solved for task in run.tasks),
        dollars=sum(priced) if priced else None,
        unpriced=sum(_tokens(o) > 0 and o.attempt.cost.dollars is None for o in outcomes),
        tokens=sum(map(_tokens, outcomes)),
        minutes=sum(worked_seconds(outcome) for outcome in outcomes) / 60,
    )


def _tokens(outcome: Outcome) -> int:
    return outcome.attempt.cost.input_tokens + outcome.attempt.cost.output_tokens


def worked_seconds(outcome: Outcome) -> float:
    """Wall-clock seconds that went into one attempt."""
    return sum(seconds for stage, seconds in outcome.attempt.seconds.items() if stage not in NOT_ADDED)
