"""`cutesmith generate … --agent`: how a session with a model is begun, watched and resumed."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

from cutesmith.agent.display.screen import Screen
from cutesmith.agent.display.screen_live import open_screen
from cutesmith.agent.display.screen_view import plain
from cutesmith.agent.endings import Finished
from cutesmith.agent.models.anthropic_model import DEFAULT_EFFORT, DEFAULT_MODEL, AnthropicModel
from cutesmith.agent.models.model import Model
from cutesmith.agent.models.openai_model import OpenAIModel
from cutesmith.agent.models.prices import SOURCE, price_of
from cutesmith.agent.models.replay_model import ReplayModel
from cutesmith.agent.models.scripted_model import read_script
from cutesmith.agent.problems.problem import AcceptedProblem, accept_file
from cutesmith.agent.problems.request import accept_request
from cutesmith.agent.run_session import run_session
from cutesmith.agent.session import PROBLEM, Session, new_session, resumed_session
from cutesmith.agent.session_target import target_of
from cutesmith.agent.settings import Settings
from cutesmith.agent.transcript import FILE, read_transcript
from cutesmith.commands._agent_options import settings_of
from cutesmith.commands._run import INTERRUPTED, free_folder, report
from cutesmith.errors import UsageError
from cutesmith.patterns.generation.target import describe_environment
from cutesmith.problems.sources import InputsNeededError, KernelRequest, ProblemSource, resolve
from cutesmith.report.session.session import render_session
from cutesmith.sandbox.confinement import hide_memory
from cutesmith.verbs.generate_verb import AGENTS
from cutesmith.verdicts import AgentVerdict

SAID = 400  # characters of what a model said with `finish`
Result = TypeVar("Result")


def run_agent(options: argparse.Namespace) -> int:
    """Begin or resume a session, and report its verdict."""
    hide_memory()
    try:
        verdict = _run(_resume(options) if options.resume else _begin(options))
    except asyncio.CancelledError:
        print("interrupted before work on a kernel began; where a folder was made, --resume goes on", file=sys.stderr)
        return INTERRUPTED
    return report(verdict, as_json=options.json, lines=summary_lines(verdict))


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run it; the first Ctrl-C (or SIGTERM) ends it gracefully, a second one at once."""

    async def watched() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

        def end_gracefully() -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end_gracefully)
        return await task

    return asyncio.run(watched())


async def _begin(options: argparse.Namespace) -> AgentVerdict:
    """Everything that can be wrong is found out before a folder is made or a token is paid for."""
    if options.problem is None:
        raise UsageError("nothing to generate", hint="Give a sentence or a problem file; or --resume DIR.")
    source, function = _source(options)
    settings = settings_of(options, Settings())
    target = target_of(settings)
    model = await _ready_model(settings)
    given = None
    if isinstance(source, ProblemSource) and not function:
        given = await accept_file(source, target.arch)
    about = {
        "request": source.text if isinstance(source, KernelRequest) else "",
        "function": function,
        "argument": options.problem,
        "confine_problem": options.confine_problem,
        "settings": asdict(settings),
        "environment": describe_environment(target),
    }
    folder = Path(options.out) if options.out else free_folder(f"{source.name}-agent")
    with new_session(folder, **about) as session:
        return await _work(session, options, settings, model, given)


def _source(options: argparse.Namespace) -> tuple[ProblemSource | KernelRequest, dict[str, str]]:
    """What is asked for; a function without inputs too, whose inputs a model will write."""
    try:
        return resolve(options.problem, options.input), {}
    except InputsNeededError as error:
        return error.source, {"source": error.source.source, "origin": error.source.origin}


async def _resume(options: argparse.Namespace) -> AgentVerdict:
    folder = Path(options.resume)
    if options.problem:
        raise UsageError("--resume goes on with its own problem", hint=f"Leave {options.problem!r:.60} out.")
    with resumed_session(folder) as session:
        saved = Settings.of((session.first("session") or {})["settings"])
        settings = settings_of(options, saved)
        return await _work(session, options, settings, await _ready_model(settings), None)


async def _work(
    session: Session, options: argparse.Namespace, settings: Settings, model: Model, given: AcceptedProblem | None
) -> AgentVerdict:
    if session.first("problem") is None:
        await _accept(session, options, settings, model, given)
    with open_screen(quiet=options.quiet, limits=settings.limits) as screen:
        _show(session, screen)
        return await run_session(session, settings, model, render_session)


def _show(session: Session, screen: Screen) -> None:
    """Let a screen see what happened so far, and what will."""
    for event in session.events:
        screen.event(event)
    session.screen = screen


async def _accept(
    session: Session, options: argparse.Namespace, settings: Settings, model: Model, given: AcceptedProblem | None
) -> None:
    """Record the problem; one that a model wrote is shown first."""
    if given is None:
        session.limits = settings.limits
        with open_screen(quiet=options.quiet, limits=settings.limits) as screen:
            _show(session, screen)
            given = await accept_request(session, model, target_of(settings).arch)
        _confirm(session, given, options)
    session.record("problem", source=given.source, origin=given.origin, audit=given.audit)


def _confirm(session: Session, problem: AcceptedProblem, options: argparse.Namespace) -> None:
    """Show a problem that a model wrote, and ask; raises UsageError when it is not accepted."""
    print("\n".join(problem.lines()), file=sys.stderr)
    if options.yes:
        return
    go_on = f"cutesmith generate --resume {session.folder} --yes"
    if not sys.stdin.isatty():
        raise UsageError("no one is there to accept the problem", hint=f"If it is what you meant: {go_on}")
    print("Is this what you meant? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("the problem was not accepted", hint="Say it more precisely, or write the problem file.")


async def _ready_model(settings: Settings) -> Model:
    model = make_model(settings)
    await model.ready()
    return model


def make_model(settings: Settings) -> Model:
    """The model that `--agent` and `--model` name; raises UsageError for what does not exist or has no price."""
    kind, _, rest = settings.agent.partition(":")
    if kind == "script" and rest:
        return read_script(rest)
    if kind == "replay" and rest:
        return ReplayModel(read_transcript(Path(rest) / FILE))
    if settings.agent not in ("claude", "auto") and kind != "openai":
        raise UsageError(f"--agent {settings.agent}: there is no such agent", hint=AGENTS)
    name = settings.model or rest or ("" if kind == "openai" else DEFAULT_MODEL)
    if settings.limits.dollars is not None and price_of(name) is None:
        raise UsageError(f"--max-dollars: the price of {name} is not known", hint=f"Limit tokens instead; {SOURCE}")
    if kind == "openai":
        return OpenAIModel(name, effort=settings.effort)
    return AnthropicModel(name, effort=settings.effort or DEFAULT_EFFORT)


def summary_lines(verdict: AgentVerdict) -> Iterator[str]:
    """The verdict for people: one sentence, each line of work, what it cost, and where the files are."""
    yield plain(verdict.summary)
    if len(verdict.candidates) > 1:
        for line in verdict.candidates:
            median = f"{line.best_median_us:9.2f} µs" if line.best_median_us else " " * 12
            head = f"  line {line.line}  {line.turns:3d} turns"
            yield f"{head}  {line.best_state:16s} {median}  {line.ending}"
    for line in verdict.candidates:
        if line.ending == Finished.name:
            yield f"  line {line.line} says: {shorten(plain(line.reason), SAID, placeholder=' …')}"
    dollars = "price unknown" if verdict.dollars is None else f"{verdict.dollars:.2f} dollars"
    yield f"{verdict.model}: {verdict.turns} turns, {sum(verdict.usage.values()):,} tokens, {dollars}"
    for name in ("kernel.py", "report.html", PROBLEM) if verdict.kernel else ("report.html", PROBLEM):
        yield f"{name.partition('.')[0]}: {Path(verdict.session) / name}"
