"""One whole answer: where a stream breaks off in the middle, the request is sent again, a few times and ever later.

The SDKs ask again by themselves only before an answer begins.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from cutesmith.agent.models.message_stream import Answer, BrokenStream
from cutesmith.agent.models.model import Listener, ModelError, Reply, Usage
from cutesmith.agent.models.prices import dollars

STREAMS = 4  # answers that are begun at most, of which all but the last broke off
FIRST_DELAY, LONGEST_DELAY = 0.5, 8.0  # seconds before an answer is asked for again; the SDKs' own numbers
LATER = "Try again later; a session goes on with --resume."


async def whole_answer(
    read: Callable[[Answer], Awaitable[None]], *, name: str, listener: Listener, first_delay: float
) -> Reply:
    """The reply that `read` fills an answer with. After a "retry" the listener is told of it from its beginning.

    The usage is that of broken attempts too, as far as they told. `name`: the model's, where the answer does not say
    it; `first_delay` in seconds, twice as long each time. Raises ModelError when no answer can be had.
    """
    paid = Usage()
    for number in range(1, STREAMS + 1):
        answer = Answer(listener)
        try:
            await read(answer)
            usage, named = answer.usage() + paid, answer.model or name
            return Reply(
                content=answer.content(),
                stop_reason=answer.stop_reason,
                usage=usage,
                model=named,
                dollars=dollars(named, usage),
            )
        except BrokenStream as broken:
            paid += answer.usage()
            if number == STREAMS:
                lost = dollars(name, paid)
                cost = f"; that cost {lost:.4f} dollars at least" if lost else ""
                raise ModelError(f"{broken}, {number} times in a row{cost}", hint=LATER) from broken
            listener("retry", f"{broken}; asking again")
        await asyncio.sleep(min(first_delay * 2 ** (number - 1), LONGEST_DELAY) * random.uniform(0.75, 1.0))
    raise AssertionError("not reached")
