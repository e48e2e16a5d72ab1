"""`report.html` of a session: what its events and its result say, gathered for the page of `cutesmith.report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cutesmith.agent.display.screen_view import beginning
from cutesmith.agent.models.prices import PRICES_AS_OF, price_of
from cutesmith.agent.outcome import AddNote, effects_of
from cutesmith.agent.session_state import GRADES, JudgedKernel, SessionState
from cutesmith.agent.transcript import Event, worked_seconds
from cutesmith.report.path_chart import PathChart, path_chart
from cutesmith.report.session.kernels import RUNGS, History
from cutesmith.report.session.page import KernelRow, LineRow, Note, Round, SessionPage, render_page
from cutesmith.report.session.turns import dollars, shown_turns, transcript_entries, turn_id, words
from cutesmith.report.stages import KINDS
from cutesmith.report.trimming import TextBudget, cut_middle
from cutesmith.verdicts import AgentVerdict

PAGE_BYTES = 2_800_000
TITLE = 110  # characters
LONGEST_SUMMARY = 8000  # characters, which is what the longest argument of `finish` has
LONGEST_SOURCE = 400_000  # characters of a file that is shown


def render_session(events: Sequence[Event], result: AgentVerdict | None, session_name: str) -> str:
    """The whole page of a session, finished or not, for its events and its verdict (None without one).

    Raises UnavailableError without jinja2.
    """
    history, texts = History.of(events), TextBudget()
    shown, turns_left_out = shown_turns(events)
    kernels = history.rows(texts, {turn_id(*turn) for turn in shown})
    entries = list(transcript_entries(events, shown, texts))
    first, problem = _latest(events, "session"), str(_latest(events, "problem").get("source") or "")
    best = history.state.best()
    source = cut_middle(best.text, LONGEST_SOURCE) if best else ""
    lines = _lines(events, history.state, kernels)
    request = str(first.get("request") or "").strip().partition("\n")[0]
    title = request or Path(str(first.get("argument") or session_name)).name
    tries = f"the best of {len(lines)} lines of work" if len(lines) > 1 else "one line of work"
    executed = len(history.state.executed())
    passed = sum(kernel.grade > GRADES["compiled"] for kernel in history.state.executed())
    page = SessionPage(
        title=title if len(title) <= TITLE else title[: TITLE - 1] + "…",
        request=texts.keep(str(first.get("request") or first.get("argument") or session_name)),
        status=result.status if result else "unfinished",
        kind=KINDS.get(result.status, "bad") if result else "fair",
        summary=cut_middle(result.summary if result else "The session has no result yet.", LONGEST_SUMMARY),
        facts=facts(events, result, history),
        about=[text for text in (result.model, _ending(result, history.state)) if text] if result else [],
        best_of=f"{tries}: {len(history.kernels)} kernels were judged, {executed} executed, {passed} verified",
        path=_path(history, best),
        rungs=RUNGS,
        lines=lines,
        rounds=[_round(event, texts) for event in events if event["kind"] == "round"],
        kernels=kernels,
        notes=[note for event in events for note in _notes(event, texts)],
        entries=entries,
        turns=history.replies,
        problem=cut_middle(problem, LONGEST_SOURCE),
        source=source,
        settings=_settings(first.get("settings") or {}),
        environment=first.get("environment") or {},
        texts=texts,
        left_out={
            "turns": turns_left_out,
            "kernels": len(history.kernels) - len(kernels),
            "source": int(best is not None and source != best.text),
        },
    )
    texts.settle(0)  # rendered once without long texts, to measure how much room is left for them
    texts.settle(PAGE_BYTES - len(render_page(page).encode()))
    return render_page(page)


def _latest(events: Sequence[Event], kind: str) -> Event:
    return next((event for event in reversed(events) if event["kind"] == kind), {})


def facts(events: Sequence[Event], result: AgentVerdict | None, history: History) -> list[tuple[str, str]]:
    """The numbers that a reader looks for first, as (label, value)."""
    state = history.state
    usage = state.usage
    executed = state.executed()
    passed = sum(kernel.grade > GRADES["compiled"] for kernel in executed)
    judged = ("kernels that were executed were verified", f"{passed} of {len(executed)}")
    compiled = ("kernels compiled, none executed", str(len(state.verified())))
    return [
        *_speed(state.best()),
        *([judged] if executed else [compiled] if state.verified() else []),
        *([("verified again at the end", "passed")] if result and result.confirmed else []),
        *([("that ranked before it failed then", f"{len(result.refuted)}")] if result and result.refuted else []),
        *([("times rejected as a cheat", str(state.rejected))] if state.rejected else []),
        ("turns", f"{history.replies:,}"),
        ("wall time", _duration(worked_seconds(events))),
        _price(state, result.model if result else ""),
        (f"tokens in, {_short(usage.cache_read_tokens)} from the cache", _short(usage.total - usage.output_tokens)),
        ("tokens out", _short(usage.output_tokens)),
    ]


def _ending(result: AgentVerdict, state: SessionState) -> str:
    """Why the session is over, in the words of the delivered kernel's line if that ended so, else of another.

    The name alone where the summary says the words already.
    """
    name, best = result.ending, state.best()
    ended = sorted(state.endings.items(), key=lambda item: best is not None and item[0] == best.line)
    reasons = [str(event.get("reason") or "") for _, event in ended if event.get("ending") == name]
    is_news = bool(reasons and reasons[-1]) and reasons[-1] not in result.summary
    return cut_middle(f"{name}: {reasons[-1]}" if is_news else name, LONGEST_SUMMARY)


def _speed(best: JudgedKernel | None) -> list[tuple[str, str]]:
    if best is None or best.median_us is None:
        return []
    factors = sorted((factor, name) for name, factor in (best.benchmark.get("speedups") or {}).items() if factor)
    share = best.benchmark.get("floor_percent")
    return [
        ("median time", f"{best.median_us:,.1f} µs"),
        *((f"against {name}", f"{factor:.2f}×") for factor, name in factors[:3]),
        *([("of the measured floor", f"{share:.1f} %")] if share else []),
    ]


def _price(state: SessionState, model: str) -> tuple[str, str]:
    dated = f", prices of {PRICES_AS_OF}" if price_of(model) else ""
    if state.unpriced:
        return (f"spent at least{dated}; some replies have no known price", dollars(state.dollars))
    return (f"spent{dated}", dollars(state.dollars) or "$0.00")


def _short(tokens: int) -> str:
    return f"{tokens:,}" if tokens < 10_000 else f"{tokens / 1000:,.0f}k" if tokens < 1e6 else f"{tokens / 1e6:,.4g}M"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes >= 60
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )


def _path(history: History, best: JudgedKernel | None) -> PathChart | None:
    """The chart, with the baselines and the floor that the best kernel was timed with."""
    timings = (best.benchmark.get("timings") or ()) if best else ()
    baselines = {str(timing["name"]): timing["median_us"] for timing in timings[1:] if timing.get("median_us")}
    return path_chart(
        history.marks(),
        turns=history.replies,
        baselines=baselines,
        floor_us=best.benchmark.get("floor_us") if best else None,
    )


def _lines(events: Sequence[Event], state: SessionState, kernels: Sequence[KernelRow]) -> list[LineRow]:
    rows = {kernel.sha256: kernel for kernel in kernels}
    spent: dict[int, float] = {}
    for event in events:
        if event["kind"] == "reply":
            spent[int(event["line"])] = spent.get(int(event["line"]), 0.0) + (event.get("dollars") or 0.0)
    begun = {int(event["line"]): beginning(event) for event in events if event["kind"] == "line"}
    return [_line(line, origin, state, rows, spent.get(line, 0.0)) for line, origin in sorted(begun.items())]


def _line(line: int, origin: str, state: SessionState, rows: Mapping[str, KernelRow], spent: float) -> LineRow:
    best, ending = state.best(line), state.endings.get(line, {})
    return LineRow(
        line=line,
        origin=origin,
        turns=state.turns.get(line, 0),
        ending=str(ending.get("ending") or ""),
        reason=cut_middle(str(ending.get("reason") or ""), LONGEST_SUMMARY),
        best=rows.get(best.sha256) if best else None,
        dollars=spent,
    )


def _round(event: Event, texts: TextBudget) -> Round:
    kept, dropped = words(event.get("kept")), words(event.get("dropped"))
    lessons = event.get("lessons")
    text = "\n".join(map(str, lessons)) if isinstance(lessons, (list, tuple)) else str(lessons or "")
    return Round(number=str(event.get("round", "")), kept=kept, dropped=dropped, lessons=texts.keep(text))


def _notes(event: Event, texts: TextBudget) -> list[Note]:
    fields = [effect.fields for effect in effects_of(event) if isinstance(effect, AddNote)]
    return [
        Note(
            line=int(event["line"]),
            turn=int(event.get("turn") or 0),
            time=str(event["time"])[:16].replace("T", " ") + " UTC",
            fields=[(str(name), texts.keep(str(text))) for name, text in note.items() if text],
        )
        for note in fields
    ]


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was asked for, without what was left open; limits as "turns 60, dollars 5"."""
    given = {name: value for name, value in settings.items() if value not in (None, "", {}, [])}
    return [(name, _setting(value)) for name, value in given.items() if _setting(value)]


def _setting(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item:g}" for name, item in value.items() if isinstance(item, (int, float)))
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
