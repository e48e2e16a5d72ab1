"""Limits: what ends a line, and what a turn may not begin for."""

from __future__ import annotations

import pytest

from cutesmith.agent.budget import Limits
from cutesmith.agent.endings import BudgetSpent, NoProgress, TargetReached
from cutesmith.agent.session_state import SessionState
from tests.agent.events import VERIFY, judged, reply, text, timed, tool

THREE = SessionState.of([reply(n, text("x")) for n in range(3)])  # 45 tokens, 1.50 dollars, 3 turns


@pytest.mark.parametrize(
    "limits, spent",
    [
        (Limits(turns=3), "3 of 3 turns"),
        (Limits(tokens=59), "45 of 59 tokens"),
        (Limits(dollars=1.9), "1.50 of 1.90 dollars"),
        (Limits(seconds=99), "100 of 99 seconds"),
    ],
)
def test_a_turn_that_would_pass_a_limit_is_not_begun(limits, spent):
    with pytest.raises(BudgetSpent, match=spent):
        limits.check(1, THREE, 100.0)


@pytest.mark.parametrize(
    "limits", [Limits(turns=4), Limits(tokens=60), Limits(dollars=2.0), Limits(seconds=101), Limits(turns=None)]
)
def test_a_turn_that_fits_is_begun(limits):
    limits.check(1, THREE, 100.0)


def test_turns_are_a_lines_and_dollars_the_sessions():
    Limits(turns=3).check(2, THREE, 0.0)
    with pytest.raises(BudgetSpent, match="dollars"):
        Limits(dollars=1.5).check(2, THREE, 0.0)


def test_patience_begins_with_the_first_verified_kernel():
    limits = Limits(patience=2)
    limits.check(1, THREE, 0.0)
    found = tool(3, "x", effects=[judged("a", VERIFY), judged("a", timed(10))])
    events = [*(reply(n, text("x")) for n in range(3)), found, reply(4, text("x"))]
    limits.check(1, SessionState.of(events), 0.0)
    with pytest.raises(NoProgress, match="2 turns"):
        limits.check(1, SessionState.of([*events, reply(5, text("x"))]), 0.0)


@pytest.mark.parametrize("limits", [Limits(target_speedup=1.2), Limits(target_floor=90.0)])
def test_a_target_is_reached_by_the_slowest_of_the_factors(limits):
    def timed_state(speedups, floor):
        effects = [judged("a", VERIFY), judged("a", timed(10, speedups=speedups, floor=floor))]
        return SessionState.of([tool(0, "x", effects=effects)])

    limits.check(1, timed_state({"eager": 3.0, "torch.compile": 1.1}, 80.0), 0.0)
    limits.check(1, timed_state({}, None), 0.0)
    limits.check(1, timed_state({"eager": 9.0}, 80.0), 0.0)  # a quick timing: torch.compile may be as fast
    with pytest.raises(TargetReached):
        limits.check(1, timed_state({"eager": 3.0, "torch.compile": 1.3}, 91.0), 0.0)


def test_a_line_near_the_floor_ends_after_a_few_turns_without_a_better_kernel():
    def events(share):
        found = tool(3, "x", effects=[judged("a", VERIFY), judged("a", timed(10, floor=share))])
        return [*(reply(n, text("x")) for n in range(3)), found, *(reply(n, text("x")) for n in range(4, 7))]

    Limits().check(1, SessionState.of(events(80.0)), 0.0)
    Limits().check(1, SessionState.of(events(97.0)[:-1]), 0.0)
    with pytest.raises(NoProgress, match="97.0 % of the floor is reached, and 3 turns"):
        Limits().check(1, SessionState.of(events(97.0)), 0.0)
