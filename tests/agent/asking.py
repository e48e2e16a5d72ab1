"""Claude asked through the real SDK at the loopback server: one answer of a fresh model."""

from __future__ import annotations

import asyncio

from cutesmith.agent.models.anthropic_model import AnthropicModel
from cutesmith.agent.models.model import Reply, Request
from tests.agent import messages_server as api

TOOLS = [{"name": name, "description": name, "input_schema": {"type": "object"}} for name in ("view_file", "finish")]
OPENING = {"role": "user", "content": "Write a softmax."}
VIEW = api.call("view_file", {"path": "kernel.py"})
WHOLE = api.answer(api.text("Here."), VIEW)


def model_of(server, **options) -> AnthropicModel:
    return AnthropicModel(**{"base_url": server.address, "api_key": api.KEY, "first_delay": 0.05, **options})


def ask(server, *messages, heard: list | None = None, **options) -> Reply:
    """One answer, of a fresh model."""
    return asyncio.run(asking(server, *messages, heard=heard, **options))


async def asking(server, *messages, heard: list | None = None, **options) -> Reply:
    request = Request(system="You write kernels.", tools=TOOLS, messages=messages or (OPENING,))
    return await model_of(server, **options).reply(request, lambda *said: None if heard is None else heard.append(said))


def joined(heard: list, kind: str) -> str:
    return "".join(text for said, text in heard if said == kind)
