"""Several lines of work at once: each has its own folder and conversation; what they find is one standing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cutesmith.agent.endings import Interrupted, ModelFailed
from cutesmith.agent.loop import Line
from cutesmith.agent.session import Session

REOPENED = (Interrupted.name, ModelFailed.name, "budget spent", "no progress", "target reached")
"""Endings after which a resumed session goes on with the line; where one still holds it comes back at once."""


async def explore(session: Session, make_line: Callable[[int], Line]) -> None:
    """Run every line that is open, until each has ended; the first error of ours ends them all."""
    tasks = [asyncio.ensure_future(make_line(number).run()) for number in open_lines(session)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def open_lines(session: Session) -> list[int]:
    """The lines that began and did not end for good."""
    begun = [int(event["line"]) for event in session.events if event["kind"] == "line"]
    endings = session.standing.endings
    return [line for line in begun if line not in endings or endings[line]["ending"] in REOPENED]
