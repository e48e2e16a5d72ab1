"""What a session came to: the best kernel is the result, and all is written."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cutesmith.agent.confirmation import refuted
from cutesmith.agent.endings import Finished, Interrupted
from cutesmith.agent.session import KERNEL, Session
from cutesmith.agent.session_state import JudgedKernel
from cutesmith.agent.texts.floor_text import floor_us
from cutesmith.agent.transcript import Event
from cutesmith.patterns.generation.target import Target
from cutesmith.verdicts import AgentLine, AgentVerdict, ExitCode

Render = Callable[[Sequence[Event], AgentVerdict, str], str]
"""The page of a session: its events, its verdict and its name."""


def conclude(session: Session, target: Target, *, problem: str, model: str, interrupted: bool = False) -> AgentVerdict:
    """The session's verdict: the best kernel's, else what went wrong last, else why it ended without one."""
    best, state = session.state.best(), session.state
    ended = [event for event in session.events if event["kind"] == "ended"]
    ending = ended[-1] if ended else {}  # how the last line ended
    if interrupted:
        ending = {"ending": Interrupted.name, "reason": f"go on with --resume {session.folder}"}
    code, summary = _outcome(session, best, ending)
    benchmark, verify = (best.benchmark, best.verdicts.get("verify", {})) if best else ({}, {})
    audit = (session.first("problem") or {}).get("audit") or {}
    return AgentVerdict(
        exit_code=code,
        summary=summary,
        seconds=round(session.seconds, 1),
        session=str(session.folder),
        problem=problem,
        kernel=str(session.folder / KERNEL) if best else "",
        sha256=hashlib.sha256(best.text.encode()).hexdigest() if best else "",
        state=best.state if best else "",
        arch=target.arch,
        cases=dict(Counter(str(case["outcome"]) for case in verify.get("cases", ()) if case.get("outcome"))),
        reduced=str(verify.get("reduced") or ""),
        ending=str(ending.get("ending", "")),
        model=model,
        turns=sum(state.turns.values()),
        usage=vars(state.usage),
        dollars=None if state.unpriced else round(state.dollars, 6),
        median_us=best.median_us if best else None,
        speedups=dict(benchmark.get("speedups", {})),
        floor_us=benchmark.get("floor_us", floor_us(audit, target)),
        floor_percent=benchmark.get("floor_percent"),
        verified=len(_counted(session)),
        confirmed=best.confirmed if best else False,
        refuted=tuple(refuted(session)),
        rejected=state.rejected,
        candidates=tuple(_lines(session)),
    )


def _outcome(session: Session, best: JudgedKernel | None, ending: Mapping[str, Any]) -> tuple[ExitCode, str]:
    name = str(ending.get("ending", "ended"))  # with `finish` the reason is the model's own claim, and stays apart
    reason = name if name == Finished.name else f"{name}: {ending.get('reason', '')}"
    if best is not None:
        count = sum(event["kind"] == "line" for event in session.events) or 1
        speed = "" if best.median_us is None else f", {best.median_us:.2f} µs"
        if speed and (factors := best.benchmark.get("speedups")):
            speed += f", {min(factors.values()):.2f} times the fastest baseline's speed"
        among = f", the best of {len(_counted(session))} kernels on {count} line{'s' * (count > 1)}"
        again = "; verified again with fresh draws" if best.confirmed else ""
        if failed := len(refuted(session)):
            again += f"; {failed} that ranked before it failed when verified again"
        return ExitCode.PASSED, f"{best.state}{speed}{among}{again}; {reason}"
    failures = list(session.state.failures.values())
    if failures:
        worst = failures[-1]
        return ExitCode(worst["exit_code"]), f"no kernel passed; the last: {worst['summary']}; {reason}"
    code = ExitCode.TIMED_OUT if ending.get("ending") == "budget spent" else ExitCode.UNAVAILABLE
    return code, f"no kernel was judged; {reason}"


def _counted(session: Session) -> list[JudgedKernel]:
    """The kernels that were executed and verified; where nothing was executed, those that compiled."""
    passed = session.state.verified()
    return [kernel for kernel in passed if kernel.is_executed] or passed


def _lines(session: Session) -> Iterator[AgentLine]:
    """One entry a line of work, with its best kernel."""
    for event in session.events:
        if event["kind"] != "line":
            continue
        number = int(event["line"])
        best, ending = session.state.best(number), session.state.endings.get(number, {})
        yield AgentLine(
            line=number,
            parent=event["parent"],
            turns=session.state.turns.get(number, 0),
            ending=ending.get("ending", ""),
            reason=ending.get("reason", ""),
            best_sha256=best.sha256 if best else "",
            best_state=best.state if best else "",
            best_median_us=best.median_us if best else None,
        )


def write_result(session: Session, verdict: AgentVerdict, render: Render) -> None:
    """Record the verdict, and write `result.json` and `report.html`."""
    session.record("result", verdict=verdict.to_dict())
    session.write("result.json", verdict.to_json(indent=1) + "\n")
    session.write("report.html", render(session.events, verdict, session.folder.name))
