"""One session: a prompt of `evals.json`, word for word, to an agent that has the skill or the judge's scripts alone.

Everything is in the session's transcript before it counts, so that a session that was killed goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutesmith.agent.budget import Limits
from cutesmith.agent.conversation import CONTINUED, messages_of, open_calls
from cutesmith.agent.endings import BudgetSpent
from cutesmith.agent.models.model import Block, Model, Request
from cutesmith.agent.session_state import SessionState
from cutesmith.agent.texts.prompting import manifest_body
from cutesmith.agent.tools.confined_folder import ConfinedFolder
from cutesmith.agent.tools.file_tools import FileTools
from cutesmith.agent.tools.toolbox import Toolbox
from cutesmith.agent.tools.workbench import KERNEL, Workbench
from cutesmith.agent.transcript import FILE, Event, Transcript, read_transcript, worked_seconds
from cutesmith.checkpoints import CheckpointStore
from cutesmith.evals.skill_trials.expectations.session_tools import JUDGE, SCRIPTS, SkillTools
from cutesmith.evals.skill_trials.forms import SkillEval
from cutesmith.evals.skill_trials.trial import BARE
from cutesmith.problems.contract import KERNEL_LINES

WORK = "work"
ANSWERED, LIMITED = "answered", "limit"

COMMON = """\
You are a coding agent. You work in a folder with a user's files, and have tools for its files and `run_script`; there
is no shell. What you write stays in the folder. When you are done, answer the user in words and call nothing.
"""
WITH_SKILL = """\

You have loaded a skill for this. Where it runs `python scripts/NAME.py`, call `run_script`; where it names a file of
its own, such as `references/faq.md`, call `read_skill_file`.

"""
WITHOUT_SKILL = f"""\

`run_script` has {", ".join(JUDGE)}: they take the path of a kernel file; `--help` says what else. Such a file defines

{KERNEL_LINES}
"""


@dataclass(frozen=True, kw_only=True)
class SessionPlace:
    """Where a session is kept: its transcript, and the folder in which the agent works."""

    folder: Path

    @property
    def work(self) -> Path:
        """The agent's folder."""
        return self.folder / WORK

    @property
    def transcript(self) -> Path:
        """The session's events."""
        return self.folder / FILE

    def events(self) -> list[Event]:
        """What happened so far; empty before the session."""
        return read_transcript(self.transcript) if self.transcript.is_file() else []

    def is_over(self) -> bool:
        """Whether the session has ended."""
        return any(event["kind"] == "ended" for event in self.events())


async def hold_session(
    task: SkillEval, arm: str, model: Model, limits: Limits, place: SessionPlace, root: Path
) -> None:
    """Hold a session to its end, or go on with it; the task's files are taken from `root`.

    Raises ModelError where the model gives no answer, and TranscriptError for a full disk; what was said stays.
    """
    place.work.mkdir(parents=True, exist_ok=True)
    with Transcript(place.transcript) as transcript:
        if not transcript.events:
            for name in task.files:
                shutil.copy(root / name, place.work / Path(name).name)
            transcript.append("line", line=task.id, parent=0, opening=opening_of(task))
        transcript.append("run", resumed=len(transcript.events) > 1)
        await _Session(task.id, arm, model, limits, place, transcript).go_on()


def opening_of(task: SkillEval) -> str:
    """The user's words, and which files are there."""
    names = ", ".join(Path(name).name for name in task.files)
    return f"{task.prompt}\n\nFiles in your folder: {names}" if names else task.prompt


def system_of(arm: str) -> str:
    """What an arm's sessions are told before the user's words."""
    return COMMON + (WITHOUT_SKILL if arm == BARE else WITH_SKILL + manifest_body())


class _Session:
    """A session under way; its line is the task's number."""

    def __init__(
        self, line: int, arm: str, model: Model, limits: Limits, place: SessionPlace, transcript: Transcript
    ) -> None:
        self.line, self.model, self.limits, self.transcript = line, model, limits, transcript
        self.files, self.system = ConfinedFolder(place.work), system_of(arm)
        self.toolbox = Toolbox.of(*_tools(arm, place))

    async def go_on(self) -> None:
        """Ask and act until the agent answers without a call, or a limit is reached."""
        self._write_again()
        events = self.transcript.events
        while not any(event["kind"] == "ended" for event in events):
            for call in open_calls(events, self.line):
                await self._call(call)
            standing = SessionState.of(events)
            try:
                self.limits.check(self.line, standing, worked_seconds(events))
            except BudgetSpent as spent:
                self.transcript.append("ended", line=self.line, ending=LIMITED, reason=str(spent))
                return
            await self._ask(standing.turns.get(self.line, 0) + 1)

    async def _ask(self, turn: int) -> None:
        messages = messages_of(self.transcript.events, self.line)
        tools = self.toolbox.schemas()
        request = Request(system=self.system, tools=tools, messages=messages, line=self.line, turn=turn)
        reply = await self.model.reply(request)
        about: dict[str, Any] = {"turn": turn, "content": list(reply.content), "stop_reason": reply.stop_reason}
        spent = {"usage": asdict(reply.usage), "model": reply.model, "dollars": reply.dollars}
        self.transcript.append("reply", line=self.line, **about, **spent)
        if not reply.tool_calls() and reply.stop_reason not in CONTINUED:
            self.transcript.append("ended", line=self.line, ending=ANSWERED, reason=reply.stop_reason)

    async def _call(self, call: Block) -> None:
        outcome = await self.toolbox.call(call)
        self.transcript.append(
            "tool",
            line=self.line,
            id=call["id"],
            name=call["name"],
            input=call.get("input"),
            text=outcome.text,
            is_error=outcome.is_error,
            effects=list(outcome.effects),
        )
        self._apply(outcome.effects)

    def _write_again(self) -> None:
        """What the last event was about to write when the process was killed; written twice it is the same."""
        for event in self.transcript.events[-2:]:
            self._apply(event.get("effects", ()))

    def _apply(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            if effect["do"] == "write":
                self.files.write(effect["path"], effect["text"])


def _tools(arm: str, place: SessionPlace) -> tuple[Callable[..., Any], ...]:
    bench = Workbench(
        line=1,
        folder=place.work,
        problem=place.work,
        judged=place.work,
        checkpoints=CheckpointStore(place.work / KERNEL),
        standing=SessionState(),
        arch="",
    )
    files = FileTools(bench)
    skill = SkillTools(place.work, JUDGE if arm == BARE else SCRIPTS)
    own = (files.view_file, files.create_file, files.edit_file, skill.run_script)
    return own if arm == BARE else (*own, skill.read_skill_file)
