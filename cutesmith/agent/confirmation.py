"""The winner judged again before it is delivered: every case with fresh draws, on a GPU the full benchmark too.

A kernel that passed once may have been lucky in its draws, or know that it is judged. What fails here is not delivered;
the next best is asked then. Each answer is an event `judged` with `confirms`, so a session that is killed in between
goes on with the answer that is missing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cutesmith.agent.outcome import RecordVerdict, judgements
from cutesmith.agent.session import Session
from cutesmith.agent.session_state import GRADES, JudgedKernel
from cutesmith.errors import CutesmithError
from cutesmith.verdicts import ExitCode

SECONDS = 600.0  # for all of it; what has no answer by then stays as it was judged before
MOST = {"benchmark": 3, "verify": 3}  # kernels that are asked about
NO_ANSWER = (ExitCode.USAGE, ExitCode.UNAVAILABLE, ExitCode.INTERNAL)
"""Codes that say something of the machine or of us, and nothing of the kernel."""

Verdict = Mapping[str, Any]
Judge = Callable[[JudgedKernel, str], Awaitable[Verdict]]
"""A stage's verdict on a kernel, with fresh draws; raises VerbError when the judge's process gave none."""


async def confirm_best(session: Session, judge: Judge, *, timed: bool, seconds: float = SECONDS) -> None:
    """Verify the best kernel again, with `timed` also benchmark it, until one stands; for at most `seconds`."""
    deadline = time.monotonic() + seconds
    asked: list[tuple[str, str]] = []
    while (wanted := _next(session, asked, timed)) is not None:
        asked.append(wanted)
        sha256, stage = wanted
        await _ask(session, judge, session.state.kernels[sha256], stage, deadline - time.monotonic())


def _next(session: Session, asked: list[tuple[str, str]], timed: bool) -> tuple[str, str] | None:
    """The best kernel and what is still to be asked about it: its time first, as that may make another the best."""
    best = session.state.best()
    if best is None:
        return None
    benchmark = ["benchmark"] if timed and not best.is_compared else []
    verify = ["verify"] if best.grade > GRADES["compiled"] and not best.confirmed else []
    for stage in benchmark + verify:
        often = sum(other == stage for _, other in asked)
        if (best.sha256, stage) not in asked and often < MOST[stage]:
            return best.sha256, stage
    return None


async def _ask(session: Session, judge: Judge, kernel: JudgedKernel, stage: str, seconds: float) -> None:
    """Record what the judge says; without an answer the kernel stays what it is, and the event says why."""
    verdict: Verdict | None = None
    try:
        verdict = await asyncio.wait_for(judge(kernel, stage), max(seconds, 0.0))
        text = str(verdict["summary"])
        passed = verdict["stage"] == "verify" and verdict["exit_code"] == ExitCode.PASSED
        lost_its_gpu = passed and GRADES.get(verdict["status"], 0) < kernel.grade  # a pass that counts less
        if verdict["exit_code"] in NO_ANSWER or lost_its_gpu:
            verdict = None
    except asyncio.TimeoutError:  # not the built-in one before Python 3.11
        text = f"{stage}: no answer in the time that the end of a session has"
    except CutesmithError as error:
        text = error.message
    effects = [RecordVerdict(kernel.sha256, kernel.text, verdict)] if verdict else []
    asked = {"confirms": kernel.sha256} if stage == "verify" else {}
    taken = verdict["seconds"] if verdict else 0.0
    session.record("judged", kernel.line, text=text, effects=effects, seconds=taken, **asked)


def refuted(session: Session) -> list[str]:
    """One sentence for each kernel that failed when it was verified again: its hash and what the judge said."""
    failed = []
    for event in session.events:
        failures = [judged for judged in judgements(event) if judged.verdict["exit_code"] != ExitCode.PASSED]
        if event.get("confirms") and failures:
            failed.append(f"{event['confirms'][:8]}: {event['text']}")
    return failed
