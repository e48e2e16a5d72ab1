"""From a sentence to a problem file: the model writes it, the audit answers, until it passes or the model declines.

A conversation of the session's own, line 0 of the transcript: what was paid for is never asked for again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from cutesmith.agent.endings import Ending, Finished, ModelFailed
from cutesmith.agent.loop import Line
from cutesmith.agent.models.model import Model, ModelError
from cutesmith.agent.outcome import AcceptProblem, DeclineRequest, Effect, Outcome, ReportFailedAudit, effects_of
from cutesmith.agent.problems.problem import REQUEST, AcceptedProblem, audit_text
from cutesmith.agent.problems.problem_rules import complaints_about_inputs, complaints_about_problem
from cutesmith.agent.session import Session
from cutesmith.agent.texts.prompting import render_prompt
from cutesmith.agent.tools.toolbox import Toolbox
from cutesmith.audit.problem_audit import AuditVerdict
from cutesmith.errors import CandidateError, UsageError
from cutesmith.verdicts import ExitCode

MOST_TRIES = 6
LINE = 0
_SHOWN_LOG = 2000
NUDGES = {
    "max_tokens": "Your answer was cut off at its length limit. Call the tool with a shorter file.",
    "end_turn": "Nothing happens without a tool call: write the file with the tool, or call `decline`.",
}
Check = Callable[[str], Awaitable[AuditVerdict]]
"""What audits a problem file's text."""


async def accept_request(session: Session, model: Model, arch: str, check: Check | None = None) -> AcceptedProblem:
    """The problem that the session's request asks for; goes on where the transcript ends.

    The session's first event holds `request`, a sentence, or `function`, {"source", "origin"}: a problem's text that
    lacks get_inputs, which alone is then written. Raises UsageError when the request is declined or no problem passes,
    ModelError when the model cannot be had, the budget's error when it is spent.
    """
    about = session.first("session") or {}
    request, function = str(about.get("request", "")), about.get("function") or {}
    if not request and not function:
        raise UsageError(f"{session.folder} ended before its problem was read", hint="Start again, without --resume.")
    tools = ProblemTools(session, check or (lambda source: audit_text(source, "problem", arch)), function)
    writing = tools.write_inputs if function else tools.write_problem
    if not any(event["line"] == LINE and event["kind"] == "message" for event in session.events):
        if function:
            source = function["source"].rstrip()
            request = f"Write the inputs for this file ({function['origin']}):\n\n```python\n{source}\n```"
        session.record("message", LINE, text=request)
    system = render_prompt("problem", arch=arch, function=bool(function), tool=writing.__name__, tries=MOST_TRIES)
    await _converse(Line(LINE, session, model, Toolbox.of(writing, tools.decline), system, NUDGES))
    return _result(session, function.get("origin", REQUEST))


def is_untrusted(session: Session) -> bool:
    """Whether the judge confines the problem too: a model wrote it or its inputs, or `--confine-problem` was given."""
    about = session.first("session") or {}
    return any(about.get(name) for name in ("request", "function", "confine_problem"))


async def _converse(line: Line) -> None:
    """Ask and act until a tool ends it; the other endings become errors."""
    try:
        while True:
            await line.act()
            line.respond()
            line.session.check(LINE)
            await line.ask()
    except Finished:
        return
    except ModelFailed as ending:
        cause = ending.__cause__
        raise cause if isinstance(cause, ModelError) else ModelError(str(ending)) from None
    except Ending as ending:
        raise UsageError(
            f"the request did not become a problem: {ending}", hint="Say it more precisely, or give a problem file."
        ) from None


def _result(session: Session, origin: str) -> AcceptedProblem:
    """What the tool call that ended the conversation came to, as its event says."""
    calls = [event for event in session.events if event["line"] == LINE and event["kind"] == "tool"]
    for effect in (effect for event in calls for effect in effects_of(event)):
        if isinstance(effect, AcceptProblem):
            return AcceptedProblem(source=effect.source, origin=origin, audit=effect.audit)
        if isinstance(effect, DeclineRequest):
            raise UsageError(
                f"this does not ask for a kernel: {effect.reason}",
                hint='Say what to compute, such as "fused add + RMSNorm, bf16, 16384x5120", or give a problem file.',
            )
        if isinstance(effect, ReportFailedAudit):
            wrong = effect.verdict
            raise CandidateError(
                wrong["summary"], ExitCode(wrong["exit_code"]), hint=wrong["hint"], log_tail=wrong["log_tail"]
            )
    last = str(calls[-1]["text"]).partition("\n")[0] if calls else ""
    raise UsageError(f"the model wrote no problem that passes the audit in {MOST_TRIES} tries: {last}")


class ProblemTools:
    """What the model may call. Docstrings here are what the model reads."""

    def __init__(self, session: Session, check: Check, function: Mapping[str, str]) -> None:
        self.session, self.check, self.function = session, check, function

    async def write_problem(self, text: str) -> Outcome:
        """Write the problem file and have it audited; the answer says what is wrong, or that it is accepted.

        Args:
            text: the whole Python file: reference_fn, get_inputs, get_input_sets, and TOLERANCE only with a reason.
        """
        return await self._judged(text, complaints_about_problem(text))

    async def write_inputs(self, text: str) -> Outcome:
        """Write the definitions that the file lacks and have the whole audited; its own text stays as it is.

        Args:
            text: Python source of get_inputs and get_input_sets alone; it is appended to the file.
        """
        whole = f"{self.function['source'].rstrip()}\n\n\n{text.strip()}\n"
        return await self._judged(whole, complaints_about_inputs(text, self.function["source"]))

    async def decline(self, reason: str) -> Outcome:
        """Say that the request asks for no kernel that can be written in the CuTe DSL and compared with PyTorch.

        Args:
            reason: one sentence for the user: why, and what to ask for instead.
        """
        if not reason.strip():
            raise UsageError("reason is empty", hint="Say in one sentence why.")
        return _finished("declined", DeclineRequest(reason.strip()))

    async def _judged(self, source: str, complaints: list[str]) -> Outcome:
        if complaints:
            return self._failed("\n".join(complaints))
        verdict = await self.check(source)
        if verdict.exit_code in (ExitCode.INTERNAL, ExitCode.UNAVAILABLE):
            return _finished("the audit failed", ReportFailedAudit(verdict.to_dict()))
        if not verdict.passed:
            return self._failed("\n".join(_told(verdict)))
        return _finished("accepted\n" + "\n".join(_told(verdict)), AcceptProblem(source, verdict.to_dict()))

    def _failed(self, text: str) -> Outcome:
        """The answer to a file that cannot be used; the last try ends the conversation."""
        tries = 1 + sum(
            event["line"] == LINE and event["kind"] == "tool" and event["name"].startswith("write_")
            for event in self.session.events
        )
        return Outcome(text=text, is_error=True, finish="no problem" if tries >= MOST_TRIES else "")


def _finished(text: str, effect: Effect) -> Outcome:
    return Outcome(text=text, effects=(effect,), finish=text.partition("\n")[0])


def _told(verdict: AuditVerdict) -> Iterator[str]:
    """A verdict for the model: every finding, and the end of the log of a file that failed."""
    yield verdict.summary
    for finding in verdict.findings:
        yield f"{finding.severity}, line {finding.line}: {finding.message}. {finding.fix}"
    if verdict.hint:
        yield verdict.hint[:_SHOWN_LOG]
    if verdict.log_tail and not verdict.findings:
        yield verdict.log_tail[-_SHOWN_LOG:]
