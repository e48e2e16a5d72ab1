"""How much a session may spend, and when it has enough.

Turns and patience are a line's; tokens, dollars and time are the whole session's. A turn is not begun if it would pass
a limit at the price of the line's last one: so a limit is passed by no more than what a turn costs above the last.
One answer may call tools for hours, though: past the time limit and GRACE, none of them begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutesmith.agent.endings import BudgetSpent, NoProgress, TargetReached
from cutesmith.agent.session_state import SessionState

NEAR_FLOOR, NEAR_TURNS = 95.0, 3  # percent of the floor from which a line ends after so many turns without a better
GRACE = 300.0  # seconds past the time limit in which the last answer's tool calls still begin


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Every limit, None for none. `target_speedup` is against the fastest baseline of a full benchmark, which
    torch.compile takes part in; `target_floor` in percent.
    """

    turns: int | None = 60
    tokens: int | None = None
    dollars: float | None = None
    seconds: float | None = None
    patience: int | None = None  # turns of a line without a better verified kernel, once it has one
    target_speedup: float | None = None
    target_floor: float | None = None

    def told(self) -> str:
        """One sentence that names every limit of spending, "" without any."""
        named = [
            (self.turns, "{:,} answers on a line"),
            (self.tokens, "{:,} tokens in all, read, written and cached"),
            (self.dollars, "{:g} dollars in all"),
            (self.seconds and self.seconds / 60, "{:g} minutes in all"),
            (self.patience, "{:,} answers in a row without a better verified kernel"),
        ]
        limits = [text.format(value) for value, text in named if value is not None]
        return f"The session ends at the latest after {', or '.join(limits)}." if limits else ""

    def check(self, line: int, state: SessionState, seconds: float) -> None:
        """Raise the Ending that is due before this line's next turn, if one is; `seconds` are the session's so far."""
        best = state.best()
        benchmark: Mapping[str, Any] = best.benchmark if best else {}
        speedup = min(benchmark.get("speedups", {}).values(), default=None)
        share = benchmark.get("floor_percent")
        compared = best is not None and best.is_compared  # eager alone is seldom the fastest baseline
        if self.target_speedup is not None and compared and speedup is not None and speedup >= self.target_speedup:
            raise TargetReached(f"{speedup:.2f} times as fast as the fastest baseline")
        if self.target_floor is not None and share is not None and share >= self.target_floor:
            raise TargetReached(f"{share:.1f} % of the roofline")
        turns = state.turns.get(line, 0)
        last = state.last_reply.get(line, {})
        usage = sum(last.get("usage", {}).values())
        _spent("turns", turns, self.turns, 1, "{:.0f} of {:.0f} turns are used")
        _spent("tokens", state.usage.total, self.tokens, usage, "{:,.0f} of {:,.0f} tokens are used")
        _spent("dollars", state.dollars, self.dollars, last.get("dollars") or 0.0, "{:.2f} of {:.2f} dollars are spent")
        _spent("seconds", seconds, self.seconds, 0.0, "{:.0f} of {:.0f} seconds are over")
        waited = turns - state.last_improvement.get(line, turns)
        if share is not None and share >= NEAR_FLOOR and waited >= NEAR_TURNS:
            raise NoProgress(f"{share:.1f} % of the floor is reached, and {waited} turns brought nothing better")
        if self.patience is not None and waited >= self.patience:
            raise NoProgress(f"{waited} turns brought no better verified kernel")

    def check_call(self, seconds: float) -> None:
        """Raise BudgetSpent where not even a tool call that was asked for may begin."""
        if self.seconds is not None and seconds > self.seconds + GRACE:
            _spent(
                "seconds", seconds, self.seconds, 0.0, "{:.0f} of {:.0f} seconds are over; its last calls were not run"
            )


def _spent(name: str, used: float, limit: float | None, next_turn: float, sentence: str) -> None:
    if limit is not None and (used >= limit or used + next_turn > limit):
        raise BudgetSpent(f"{name}: " + sentence.format(used, limit))
