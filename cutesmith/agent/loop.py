"""One line of work: ask the model, run its tools, record everything; an `Ending` ends it.

Each step is read off the transcript, so that a process that was killed goes on where the transcript ends: an answer
that was paid for is never asked for again, a tool whose result is missing is run again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict

from cutesmith.agent.conversation import CONTINUED, last_turn, messages_of, open_calls, silent_turns
from cutesmith.agent.endings import BudgetSpent, Ending, Finished, Interrupted, ModelFailed, Refused, Silent
from cutesmith.agent.models.model import Block, Model, ModelError, Request
from cutesmith.agent.session import Session
from cutesmith.agent.tools.toolbox import Toolbox
from cutesmith.verb_process import Running

SILENCE = 4  # turns without a tool call that end a line
NUDGES = {
    "max_tokens": "Your answer was cut off at its length limit. Go on in smaller steps: one tool call at a time.",
    "end_turn": "Nothing happens without a tool call. Go on, or call `finish` when the kernel is as good as it gets.",
}


class Line:
    """A conversation with its tools, until an Ending."""

    def __init__(
        self,
        number: int,
        session: Session,
        model: Model,
        toolbox: Toolbox,
        system: str,
        nudges: Mapping[str, str] = NUDGES,
    ) -> None:
        self.number, self.session, self.model, self.toolbox, self.system = number, session, model, toolbox, system
        self.nudges = nudges

    async def run(self, *, turns: int | None = None) -> bool:
        """Work until something ends it (True), or for so many turns (False)."""
        try:
            while turns is None or turns > 0:
                await self.act()
                self.respond()
                self.session.check(self.number)
                await self.ask()
                turns = None if turns is None else turns - 1
            await self.act()
            self.respond()
            return False
        except Ending as ending:
            self.end(ending)
        except asyncio.CancelledError:
            self.end(Interrupted("interrupted; the best kernel so far is kept"))
            raise
        return True

    async def ask(self) -> None:
        """One answer of the model, on the disk as soon as it is there."""
        turn = self.session.state.turns.get(self.number, 0) + 1
        events = self.session.events
        request = Request(
            system=self.system,
            tools=self.toolbox.schemas(),
            messages=messages_of(events, self.number),
            line=self.number,
            turn=turn,
        )
        self.session.record("request", self.number, turn=turn)
        started = time.monotonic()  # the first schemas take a second that is not the model's
        retries: list[str] = []

        def listen(kind: str, text: str) -> None:
            if kind == "retry":
                retries.append(text)
            self.session.screen.stream(self.number, kind, text)

        try:
            reply = await self.model.reply(request, listen)
        except ModelError as error:
            raise ModelFailed(str(error)) from error
        seconds = round(time.monotonic() - started, 3)
        again = {"retries": retries} if retries else {}
        self.session.record("reply", self.number, **{**asdict(reply), "turn": turn, "seconds": seconds, **again})

    async def act(self) -> None:
        """Run every tool call that has no result yet; those of an answer that was refused half-way are not run."""
        reply, _ = last_turn(self.session.events, self.number)
        if reply is not None and reply["stop_reason"] == "refusal":
            return
        for call in open_calls(self.session.events, self.number):
            self.session.limits.check_call(self.session.seconds)
            await self.call(call)

    async def call(self, call: Block) -> None:
        """Run one tool; its text and its effects are one event."""
        started, turn = time.monotonic(), self.session.state.turns[self.number]
        named = {"turn": turn, "id": call["id"], "name": str(call.get("name")), "input": call.get("input")}
        self.session.screen.tick(self.number, Running(named["name"], 0.0))
        outcome = await self.toolbox.call(call)
        seconds = round(time.monotonic() - started, 3)
        self.session.record("tool", self.number, **named, **vars(outcome), seconds=seconds)

    def respond(self) -> None:
        """Answer an answer without tool calls; raises the Ending that the last turn asks for."""
        reply, after = last_turn(self.session.events, self.number)
        if finish := next((event["finish"] for event in after if event.get("finish")), ""):
            raise Finished(finish)
        if reply is None or any(event["kind"] in ("tool", "message") for event in after):
            return
        reason = str(reply["stop_reason"])
        if reason == "refusal":
            raise Refused("the model declined to go on")
        if reason == "model_context_window_exceeded":
            raise BudgetSpent("the conversation fills the model's context window")
        if silent_turns(self.session.events, self.number) >= SILENCE:
            raise Silent(f"the model called no tool in {SILENCE} turns")
        if reason not in CONTINUED:
            self.session.record("message", self.number, text=self.nudges.get(reason, self.nudges["end_turn"]))

    def end(self, ending: Ending) -> None:
        """Record why this line is over."""
        self.session.record("ended", self.number, ending=ending.name, reason=str(ending))
