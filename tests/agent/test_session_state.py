"""Which kernel is delivered: the fastest verified one, whatever came after it."""

from __future__ import annotations

from cutesmith.agent.outcome import AddNote
from cutesmith.agent.session_state import SessionState
from cutesmith.agent.texts.lessons import failed_ideas, lessons_of
from tests.agent.events import VERIFY, event, judged, reply, text, timed, tool

EMULATED = {**VERIFY, "status": "verified on the emulated GPU"}
COMPILED = {**VERIFY, "status": "compiled"}
WRONG = {**VERIFY, "status": "wrong_result", "exit_code": 1}
REJECTED = {"stage": "benchmark", "status": "rejected", "exit_code": 8, "summary": "T1", "timings": []}


def state_of(*effects, line=1):
    return SessionState.of([tool(n, f"t{n}", line=line, effects=e) for n, e in enumerate(effects)])


def test_the_fastest_verified_kernel_wins_over_later_and_faster_wrong_ones():
    state = state_of(
        [judged("slow", VERIFY), judged("slow", timed(20))],
        [judged("fast", VERIFY), judged("fast", timed(10))],
        [judged("last", VERIFY), judged("last", timed(15))],
        [judged("wrong", WRONG), judged("wrong", timed(1))],
    )
    assert state.best().sha256 == "fast" and state.best().median_us == 10
    assert [kernel.sha256 for kernel in state.verified()] == ["fast", "last", "slow"]


def test_a_timed_kernel_wins_over_an_untimed_one_and_without_times_the_latest_wins():
    assert state_of([judged("a", VERIFY)], [judged("b", VERIFY)]).best().sha256 == "b"
    assert state_of([judged("a", VERIFY), judged("a", timed(9))], [judged("b", VERIFY)]).best().sha256 == "a"


def taking(cases, declined=0):
    """A pass of so many cases, some of which the kernel declined."""
    return {**VERIFY, "cases": [{"passed": True}] * cases, "declined": declined}


def test_a_kernel_that_declines_cases_replaces_none_that_takes_them_all_however_fast_it_is():
    whole = [judged("whole", taking(16)), judged("whole", timed(20))]
    quick = [judged("quick", taking(16, declined=3)), judged("quick", timed(2))]
    assert state_of(whole, quick).best().sha256 == "whole" == state_of(quick, whole).best().sha256
    assert state_of([judged("early", taking(16))], [judged("late", taking(16, 1))]).best().sha256 == "early"
    assert state_of([judged("d", {**taking(16), "status": EMULATED["status"]})], quick).best().sha256 == "quick"


def test_between_lines_that_nothing_else_tells_apart_more_evidence_wins_and_in_a_line_the_later_kernel():
    first, second = {"line": 1}, {"line": 2}

    def verified(seq, sha, line, cases=16, seconds=1.0):
        return tool(seq, f"t{seq}", effects=[judged(sha, {**taking(cases), "seconds": seconds})], **line)

    events = [verified(0, "a", first), verified(1, "b", first), verified(2, "c", second, cases=12)]
    order = [kernel.sha256 for kernel in SessionState.of(events).verified()]
    assert order == ["b", "a", "c"]
    again = verified(3, "c", second, cases=12, seconds=2.0)  # with draws of its own: 24 cases in all
    assert SessionState.of([*events, again]).best().sha256 == "c"
    once_more = verified(3, "c", second, cases=12)  # what `finish` says once more is not evidence
    assert SessionState.of([*events, once_more]).best().sha256 == "b"
    equal = [verified(0, "a", second), verified(1, "b", first)]
    assert [kernel.sha256 for kernel in SessionState.of(equal).verified()] == ["b", "a"]


def test_a_verified_kernel_wins_over_an_emulated_and_that_over_a_compiled_one():
    assert state_of([judged("a", VERIFY)], [judged("b", EMULATED)], [judged("c", COMPILED)]).best().sha256 == "a"
    assert state_of([judged("b", EMULATED)], [judged("c", COMPILED)]).best().sha256 == "b"
    assert state_of([judged("c", COMPILED)]).best().state == "compiled"
    assert state_of([judged("d", WRONG)]).best() is None


def test_a_kernel_that_is_rejected_or_wrong_later_is_no_longer_delivered():
    good = [judged("good", VERIFY), judged("good", timed(20))]
    cheat = [judged("cheat", VERIFY), judged("cheat", timed(2))]
    assert state_of(good, cheat).best().sha256 == "cheat"
    after = state_of(good, cheat, [judged("cheat", REJECTED)])
    assert after.best().sha256 == "good" and after.rejected == 1
    assert state_of(good, [judged("good", WRONG)]).best() is None


def test_what_was_found_wrong_once_is_not_right_when_it_passes_later():
    good = [judged("good", VERIFY)]
    lucky = [judged("lucky", VERIFY)], [judged("lucky", WRONG)], [judged("lucky", VERIFY)]
    assert state_of(good, *lucky).best().sha256 == "good"
    cheat = [judged("cheat", VERIFY), judged("cheat", REJECTED), judged("cheat", timed(2))]
    assert state_of(good, cheat).best().sha256 == "good"


def test_where_nothing_is_timed_only_verifying_makes_a_kernel_later():
    a, b = [judged("a", EMULATED)], [judged("b", EMULATED)]
    asked = [judged("a", {**VERIFY, "stage": stage, "status": "passed"}) for stage in ("lint", "compile", "profile")]
    assert state_of(a, b, asked).best().sha256 == "b"
    assert state_of(a, b, asked, a).best().sha256 == "a"


def test_losing_the_best_kernel_is_no_improvement():
    events = [reply(0, text("a")), tool(1, "x", effects=[judged("a", VERIFY)]), reply(2, text("b"))]
    state = SessionState.of([*events, tool(3, "y", effects=[judged("a", WRONG)])])
    assert state.best() is None and state.last_improvement == {1: 1}


def test_a_timing_that_fails_takes_no_time_away_and_one_that_condemns_does():
    late = {"stage": "benchmark", "status": "timed_out", "exit_code": 6, "summary": "", "timings": []}
    timed_before = [judged("a", VERIFY), judged("a", timed(9, speedups={"eager": 2.0}))]
    state = state_of(timed_before, [judged("a", late)])
    assert state.best().median_us == 9 and not state.best().is_compared
    assert state_of(timed_before, [judged("a", timed(8, speedups={"torch.compile": 1.0}))]).best().is_compared
    assert state_of([judged("a", VERIFY)], [judged("a", late)]).best().median_us is None
    assert state_of(timed_before, [judged("a", REJECTED)]).best() is None


def test_what_was_spent_and_when_a_line_last_improved():
    state = SessionState.of(
        [
            reply(0, text("a")),
            tool(1, "x", effects=[judged("a", VERIFY), judged("a", timed(20))]),
            reply(2, text("b")),
            reply(3, text("c"), line=2, dollars=None),
            reply(4, text("d")),
            event(5, "ended", ending="finished", reason=""),
        ]
    )
    assert state.turns == {1: 3, 2: 1} and state.last_improvement == {1: 1}
    assert state.dollars == 1.5 and state.unpriced and state.usage.total == 60
    assert list(state.endings) == [1]


def test_a_kernel_belongs_to_the_line_that_had_it_first():
    state = SessionState.of(
        [
            event(0, "judged", 0, effects=[judged("draft", VERIFY), judged("draft", timed(5))]),
            tool(1, "x", line=1, effects=[judged("mine", VERIFY), judged("mine", timed(9))]),
        ]
    )
    assert state.best().sha256 == "draft" and state.best(1).sha256 == "mine" and state.best(2) is None


def test_ideas_that_failed_on_any_line_are_remembered_with_what_the_judge_said():
    slower = [AddNote({"change": "two rows a block"}, "b"), judged("b", VERIFY), judged("b", timed(14))]
    wrong = [AddNote({"change": "cp.async without a wait"}, "c"), judged("c", {**WRONG, "summary": "case 2 differs"})]
    good = [AddNote({"change": "wider loads"}, "a"), judged("a", VERIFY), judged("a", timed(10))]
    events = [tool(0, "a", effects=good), tool(1, "b", effects=slower), tool(2, "c", line=2, effects=wrong)]
    state = SessionState.of(events)
    assert failed_ideas(state) == [
        "- line 1: two rows a block: 14.00 µs, 10.00 µs before it",
        "- line 2: cp.async without a wait: verify wrong_result, case 2 differs",
    ]
    assert "### Ideas that failed\n- line 1: two rows" in lessons_of(events, state, [1, 2])
