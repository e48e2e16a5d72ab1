"""A whole session: the first draft, the lines of work, the closing. Any step may be the first of a resumed one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from cutesmith.agent.closing import Render, conclude, write_result
from cutesmith.agent.confirmation import Judge, confirm_best
from cutesmith.agent.exploration import MakeLine, explore
from cutesmith.agent.loop import Line
from cutesmith.agent.models.model import Model
from cutesmith.agent.opening import draft_kernel, nearest_examples, open_line
from cutesmith.agent.problems.request import is_untrusted
from cutesmith.agent.session import PROBLEM, Session
from cutesmith.agent.session_state import JudgedKernel
from cutesmith.agent.session_target import target_of
from cutesmith.agent.settings import Settings
from cutesmith.agent.texts.floor_text import floor_text
from cutesmith.agent.texts.prompting import bare_prompt, system_prompt
from cutesmith.agent.tools import judging
from cutesmith.agent.tools.judging import Verdict
from cutesmith.agent.tools.toolbox import Toolbox
from cutesmith.agent.tools.workspace import Workbench
from cutesmith.patterns.generation.target import Target
from cutesmith.verdicts import AgentVerdict


async def run_session(session: Session, settings: Settings, model: Model, render: Render) -> AgentVerdict:
    """Work on the session's problem until every line has ended; cancelling it ends early with what is there.

    The session holds its `problem` event already; `render` makes the page of what became of it. Raises TranscriptError
    when the disk takes no more.
    """
    target = target_of(settings)
    session.limits = settings.limits
    interrupted = False
    try:
        await _open_lines(session, settings, target)
        await explore(session, settings, _line_maker(session, settings, model, target))
        await confirm_best(session, _closing_judge(session, settings, target), timed=target.executes)
    except asyncio.CancelledError:  # Ctrl-C: what there is, is the result
        interrupted = True
    problem = session.first("problem") or {}
    origin = str(problem.get("origin", ""))
    verdict = conclude(session, target, problem=origin, model=model.name, interrupted=interrupted)
    write_result(session, verdict, render)
    return verdict


async def _open_lines(session: Session, settings: Settings, target: Target) -> None:
    """The draft and the first messages, as far as they are not there yet."""
    request = str((session.first("session") or {}).get("request", ""))
    draft = next((event for event in session.events if event["kind"] == "judged" and "pattern" in event), None)
    if draft is None and settings.draft and not settings.bare:
        draft = await draft_kernel(session, settings, target)
    begun = sum(event["kind"] == "line" for event in session.events)
    if begun >= settings.candidates:
        return
    examples = [] if settings.bare else await nearest_examples(session, request, target)
    audit = (session.first("problem") or {}).get("audit") or {}
    floor = "" if settings.bare else floor_text(audit, target)
    for number in range(begun + 1, settings.candidates + 1):
        start = session.state.best(0)
        open_line(
            session,
            number,
            of=settings.candidates,
            start=start,
            draft=draft,
            examples=examples,
            floor=floor,
        )


def _line_maker(session: Session, settings: Settings, model: Model, target: Target) -> MakeLine:
    """How a line gets its workbench, tools and system prompt (one prompt for all: it is cached)."""
    request = str((session.first("session") or {}).get("request", ""))
    problem = (session.folder / PROBLEM).read_text(encoding="utf-8")
    if settings.bare:
        system = bare_prompt(problem, target)
    else:
        system = system_prompt(problem, request, target, settings.hidden_pages)

    def make(number: int) -> Line:
        return Line(number, session, model, Toolbox(_workbench(session, settings, target, number)), system)

    return make


def _workbench(session: Session, settings: Settings, target: Target, number: int) -> Workbench:
    workspace = session.workspace(number)
    return Workbench(
        line=number,
        folder=workspace.files.root,
        problem=session.folder / PROBLEM,
        judged=session.folder / "judged",
        checkpoints=workspace.checkpoints,
        state=session.state,
        arch=target.arch,
        settings=settings,
        confine_problem=is_untrusted(session),
        follower=session.follower(number),
    )


def _closing_judge(session: Session, settings: Settings, target: Target) -> Judge:
    """The judge of the result: no line's, and with twice the patience, so that a busy machine refutes no kernel."""
    patient = replace(settings, timeout=2 * settings.timeout)
    bench = replace(_workbench(session, patient, target, 1), follower=session.follower(0))

    async def judge(kernel: JudgedKernel, stage: str) -> Verdict:
        return await judging.judge(bench, stage, judging.snapshot_of(bench, kernel.text))

    return judge
