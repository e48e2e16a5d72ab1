"""Numbers as text: a share in percent, a factor, an interval; "–" for what is not known."""

from __future__ import annotations

from cutesmith.evals.scores.costs import Costs
from cutesmith.evals.scores.estimators import Interval
from cutesmith.evals.scores.summaries import Score

UNKNOWN = "–"


def share(value: float | None) -> str:
    """0.905 as "90.5 %", 0.9 as "90 %"."""
    return UNKNOWN if value is None else f"{round(100 * value, 1):g} %"


def factor(value: float | None) -> str:
    """1.768 as "1.77×"."""
    return UNKNOWN if value is None else f"{value:.2f}×"


def share_interval(bounds: Interval | None) -> str:
    """ "75–100 %"; "" for none."""
    return f"{round(100 * bounds[0], 1):g}–{round(100 * bounds[1], 1):g} %" if bounds else ""


def factor_interval(bounds: Interval | None) -> str:
    """ "1.40–2.30×"; "" for none."""
    return f"{bounds[0]:.2f}–{bounds[1]:.2f}×" if bounds else ""


def share_score(score: Score) -> str:
    """ "90 % [75–100 %]"."""
    return f"{share(score.value)} [{share_interval(score.interval)}]" if score.interval else share(score.value)


def factor_score(score: Score) -> str:
    """ "1.77× [1.40–2.30×]"."""
    return f"{factor(score.value)} [{factor_interval(score.interval)}]" if score.interval else factor(score.value)


def dollars(value: float | None, costs: Costs) -> str:
    """ "$0.12", "at least" before it where some tokens have no price."""
    if value is None:
        return UNKNOWN
    return f"{'at least ' if costs.unpriced else ''}${value:,.2f}"


def plain(value: float | None, unit: str = "") -> str:
    """Three significant digits with thousands separated."""
    if value is None:
        return UNKNOWN
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {unit}".strip()
