"""Any model behind an OpenAI-compatible server, through the official SDK: OpenAI's own, a gateway's, or a local one.

`openai` is an optional dependency: `pip install "cutesmith[openai]"`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cutesmith.agent.models import api_errors
from cutesmith.agent.models.api_errors import OPENAI, Attempt, Service
from cutesmith.agent.models.asking_again import FIRST_DELAY, whole_answer
from cutesmith.agent.models.chat_completions import ChatEvents, body_of
from cutesmith.agent.models.message_stream import Answer, BrokenStream
from cutesmith.agent.models.model import Listener, ModelError, Reply, Request, UnknownModelError, ignore

if TYPE_CHECKING:
    import openai

CONNECT = 10.0  # seconds to a connection
NO_NEED = "none"  # what a local server is given that asks for no key


class OpenAIModel:
    """A model by its name on the server.

    `effort` is sent as `reasoning_effort`, where it is not "". `max_retries` is how often a failed request is sent
    again, `timeout` how many seconds may pass without a byte, `first_delay` how many before an answer that broke off
    is asked for again. Key and address are read from OPENAI_API_KEY and OPENAI_BASE_URL unless they are given; another
    server than OpenAI's may need no key.
    """

    def __init__(
        self,
        name: str,
        *,
        effort: str = "",
        max_retries: int = 8,
        timeout: float = 300.0,
        first_delay: float = FIRST_DELAY,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self.name, self.effort = name.strip(), effort
        self.max_retries, self.timeout, self.first_delay = max_retries, timeout, first_delay
        self._address = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI.usual_address
        self._key = api_key or os.environ.get("OPENAI_API_KEY") or ""
        if not self.name:
            raise UnknownModelError("the model has no name", hint="Say --agent openai:MODEL.")

    async def ready(self) -> None:
        """Ask for the model's entry in the server's list, which costs nothing.

        Raises ModelError without a key or an answer, and UnknownModelError for a name that the server does not know.
        """
        import openai

        async with self._client(ignore, retries=min(self.max_retries, 2)) as client:
            try:
                await client.models.retrieve(self.name)
            except openai.NotFoundError as error:
                if api_errors.is_of_model(error, self.name):
                    raise
                return  # a server without a list of models: the first answer will tell

    async def reply(self, request: Request, listener: Listener = ignore) -> Reply:
        """Ask for one answer, as `whole_answer` does; raises ModelError when none can be had."""
        body = body_of(self.name, request, self.effort)

        async def read(answer: Answer) -> None:
            async with self._client(listener, retries=self.max_retries) as client:
                await _read(client, body, answer)

        return await whole_answer(read, name=self.name, listener=listener, first_delay=self.first_delay)

    @property
    def service(self) -> Service:
        """Who is asked: another server than OpenAI's goes by its address."""
        host = urlsplit(self._address).netloc
        return OPENAI if self._address.startswith(OPENAI.usual_address) else replace(OPENAI, name=host)

    @asynccontextmanager
    async def _client(self, listener: Listener, *, retries: int) -> AsyncIterator[openai.AsyncOpenAI]:
        """A client for one request; raises ModelError for whatever the SDK raises inside."""
        try:
            import openai
        except ModuleNotFoundError as error:
            raise ModelError("the package openai is not installed", hint='pip install "cutesmith[openai]"') from error
        import httpx2

        service = self.service
        if not self._key and service is OPENAI:
            raise ModelError(service.no_key, hint=service.no_key_hint)
        api_errors.check_key_and_address(self._key or NO_NEED, self._address, service)
        telling = openai.DefaultAsyncHttpxClient(event_hooks={"response": [_telling(listener)]})
        client = openai.AsyncOpenAI(
            api_key=self._key or NO_NEED,
            base_url=self._address,
            max_retries=retries,
            timeout=httpx2.Timeout(self.timeout, connect=min(self.timeout, CONNECT)),
            http_client=telling,
        )
        async with client:
            try:
                yield client
            except openai.OpenAIError as error:
                attempt = Attempt(
                    service=service, model=self.name, address=self._address, timeout=self.timeout, tries=retries + 1
                )
                raise api_errors.explain(error, attempt) from error


def _telling(listener: Listener) -> Any:
    """A hook that tells the listener of a response after which the SDK tries again."""

    async def tell(response: Any) -> None:
        if response.status_code in (408, 409, 429) or response.status_code >= 500:
            listener("retry", f"the server answered {response.status_code}")

    return tell


async def _read(client: openai.AsyncOpenAI, body: Mapping[str, Any], answer: Answer) -> None:
    """Take every chunk of the streamed answer; raises BrokenStream when it ends before its last one."""
    import openai

    async with await client.chat.completions.create(**body) as stream:
        if not str(stream.response.headers.get("content-type")).startswith("text/event-stream"):
            raise ModelError(f"{client.base_url} does not speak the {OPENAI.api}", hint=f"Is {OPENAI.address} right?")
        events = ChatEvents()
        try:
            async for chunk in stream:
                for event in events.of(chunk.to_dict()):
                    answer.take(event)
        except openai.APITimeoutError as error:
            raise BrokenStream("the answer stopped coming") from error
        except openai.APIConnectionError as error:
            raise BrokenStream(f"the answer broke off ({api_errors.reason(error)})") from error
        except openai.APIStatusError:
            raise
        except openai.APIError as error:
            raise BrokenStream(f"the server broke off its answer: {error.message}") from error
        except ValueError as error:
            raise BrokenStream(f"the answer has an event that is not JSON ({error})") from error
        for event in events.end():
            answer.take(event)
    if not answer.whole:
        raise BrokenStream("the answer broke off")
