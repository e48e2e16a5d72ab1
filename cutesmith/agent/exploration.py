"""Several lines of work at once, and the beam: after each round the best lines go on, and hear what the others learnt.

Every step is read off the transcript, like the loop's own: a search that was killed goes on in the middle of a round.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cutesmith.agent.endings import Dropped, Ending, Finished, Refused, Silent
from cutesmith.agent.loop import Line
from cutesmith.agent.opening import open_line
from cutesmith.agent.session import Session
from cutesmith.agent.settings import Settings
from cutesmith.agent.texts.lessons import lessons_of
from cutesmith.agent.texts.prompting import render_prompt
from cutesmith.agent.transcript import Event

FINAL = (Finished.name, Refused.name, Silent.name, Dropped.name)
"""Endings for good. After another one a resumed session goes on with the line; it comes back where it still holds."""

MakeLine = Callable[[int], Line]


async def explore(session: Session, settings: Settings, make_line: MakeLine) -> None:
    """Run every open line until each has ended, in rounds when there is a beam."""
    search = Search(session, settings, make_line)
    reopened = [number for number in begun_lines(session) if not is_over(session, number)]
    if settings.beam:
        reopened = await search.rounds(reopened)
    await search.run(reopened)


def begun_lines(session: Session) -> list[int]:
    """The numbers of all lines of work, in their order."""
    return [int(event["line"]) for event in session.events if event["kind"] == "line"]


def is_over(session: Session, line: int) -> bool:
    """Whether a line ended for good, or in this process."""
    ending = session.state.endings.get(line)
    began = max((event["seq"] for event in session.events if event["kind"] == "run"), default=-1)
    return ending is not None and (ending["ending"] in FINAL or ending["seq"] > began)


@dataclass
class Search:
    """One search over lines of work."""

    session: Session
    settings: Settings
    make_line: MakeLine

    async def run(self, lines: Sequence[int], *, round_turns: int | None = None) -> list[int]:
        """Work on these lines at the same time, for the turns that are left of a round or until they end.

        Gives the lines that did not end. The first error of ours ends all of them.
        """
        made = [self.make_line(number) for number in lines]
        done = self._rounds_done()
        since = done[-1]["seq"] if done else -1
        asked = [e["line"] for e in self.session.events if e["kind"] == "reply" and e["seq"] > since]
        turns = [None if round_turns is None else round_turns - asked.count(number) for number in lines]
        tasks = [asyncio.ensure_future(line.run(turns=left)) for line, left in zip(made, turns)]
        try:
            ended = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [number for number, over in zip(lines, ended) if not over]

    async def rounds(self, lines: list[int]) -> list[int]:
        """Search with the beam; gives the lines that go on to their own end."""
        done = self._rounds_done()
        if done:
            lines = self.settle(done[-1])
        while lines and len(self._rounds_done()) < self.settings.rounds:
            await self.run(lines, round_turns=self.settings.round_turns)
            lines = self.settle(self.conclude_round())
        return lines

    def conclude_round(self) -> Event:
        """Rank all lines that were not dropped, and record which go on."""
        endings = self.session.state.endings
        dropped_before = [line for line, ending in endings.items() if ending["ending"] == Dropped.name]
        places = [kernel.line for kernel in self.session.state.verified()]  # the lines without a kernel come last
        ranked = sorted(
            (line for line in begun_lines(self.session) if line not in dropped_before),
            key=lambda line: (places.index(line) if line in places else len(places), line),
        )
        kept, dropped = ranked[: self.settings.beam], ranked[self.settings.beam :]
        lessons = lessons_of(self.session.events, self.session.state, ranked)
        number = len(self._rounds_done()) + 1
        return self.session.record("round", round=number, kept=kept, dropped=dropped, lessons=lessons)

    def settle(self, event: Event) -> list[int]:
        """Do what a round's event says, as far as it is not done; gives the open lines."""
        for line in event["dropped"]:
            if line not in self.session.state.endings:
                others = "another line" if self.settings.beam == 1 else f"{self.settings.beam} others"
                reason = f"{others} did better in round {event['round']}"
                self.session.record("ended", line, ending=Dropped.name, reason=reason)
        for line in event["kept"]:
            heard = any(
                e["line"] == line and e["seq"] > event["seq"] and e["kind"] in ("message", "reply")
                for e in self.session.events
            )
            if not heard and not is_over(self.session, line):
                self.session.record("message", line, text=render_prompt("lessons", lessons=event["lessons"]))
        if event["round"] < self.settings.rounds:
            with contextlib.suppress(Ending):  # the session's limits leave no room for a line that has not begun
                self.session.check(0)
                self._fork(event)
        return [line for line in begun_lines(self.session) if not is_over(self.session, line)]

    def _fork(self, event: Event) -> None:
        """Begin as many new lines as were dropped, from the best kernels of those that were kept."""
        forked = sum(e["kind"] == "line" and e["seq"] > event["seq"] for e in self.session.events)
        for index in range(forked, len(event["dropped"])):
            parent = event["kept"][index % len(event["kept"])]
            start = self.session.state.best(parent) or self.session.state.best()
            number, of = max(begun_lines(self.session)) + 1, self.settings.candidates
            open_line(self.session, number, of=of, parent=parent, start=start, lessons=event["lessons"])

    def _rounds_done(self) -> list[Event]:
        return [event for event in self.session.events if event["kind"] == "round"]
