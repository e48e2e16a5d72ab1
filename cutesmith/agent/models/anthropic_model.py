"""Claude, through the official SDK: streamed, cached, compacted, and asked again when the line breaks.

The SDK asks again by itself before an answer begins (429, 5xx, no connection); an answer that breaks off in the middle
is asked for again here. `anthropic` takes a second to import, so that only what asks a model imports it.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from cutesmith.agent.models import api_errors
from cutesmith.agent.models.api_errors import CLAUDE, Attempt, check_key_and_address
from cutesmith.agent.models.asking_again import FIRST_DELAY, whole_answer
from cutesmith.agent.models.message_stream import Answer, BrokenStream
from cutesmith.agent.models.messages_request import Asked
from cutesmith.agent.models.model import Listener, ModelError, Reply, Request, UnknownModelError, ignore

if TYPE_CHECKING:
    import ssl

    import anthropic

DEFAULT_MODEL = "claude-opus-5-5"  # recommended by https://platform.claude.com/docs/en/models/overview, November 2026
DEFAULT_EFFORT = "high"
CONNECT = 10.0  # seconds to a connection


def key_present(environment: Mapping[str, str]) -> bool:
    """Whether the environment holds a key for Claude; the SDK's own profiles on the disk do not count."""
    return any(environment.get(name, "").strip() for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))


class AnthropicModel:
    """A Claude model.

    `effort`, `max_tokens`, `thinking`, `compaction_trigger`: see `Asked`. `max_retries` is how often a failed request
    is sent again, `timeout` how many seconds may pass without a byte, `first_delay` how many before an answer that
    broke off is asked for again, twice as many each time. Key and address are read from ANTHROPIC_API_KEY,
    ANTHROPIC_AUTH_TOKEN and ANTHROPIC_BASE_URL unless they are given.
    """

    def __init__(
        self,
        name: str = DEFAULT_MODEL,
        *,
        effort: str = DEFAULT_EFFORT,
        max_tokens: int = 64_000,
        thinking: bool = True,
        compaction_trigger: int | None = 150_000,
        max_retries: int = 8,
        timeout: float = 300.0,
        first_delay: float = FIRST_DELAY,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self.name = name.strip()
        if not self.name:
            raise UnknownModelError("the model has no name", hint=f"The models: {CLAUDE.models}")
        self.asked = Asked(
            effort=effort, max_tokens=max_tokens, thinking=thinking, compaction_trigger=compaction_trigger
        )
        self.max_retries, self.timeout, self.first_delay = max_retries, timeout, first_delay
        self._address, self._key = base_url, api_key

    async def ready(self) -> None:
        """Ask the Models API, which costs nothing, what this model can do; later requests ask for no more than that.

        Raises ModelError when there is no key or no answer, UnknownModelError, and UsageError for an effort that the
        model does not have.
        """
        import anthropic

        async with self._client(ignore, retries=min(self.max_retries, 2)) as client:
            try:
                model = await client.beta.models.retrieve(self.name)
            except anthropic.NotFoundError as error:
                if api_errors.is_of_model(error, self.name):
                    raise
                return  # a gateway without a list of models: the first answer will tell
        known = model.to_dict() if isinstance(model, anthropic.BaseModel) else {}
        if known.get("lifecycle") == "retired":
            raise UnknownModelError(f"{self.name} is retired", hint=f"The models: {CLAUDE.models}")
        self.asked = self.asked.fitted(known)

    async def reply(self, request: Request, listener: Listener = ignore) -> Reply:
        """Ask for one answer, as `whole_answer` does; raises ModelError when none can be had."""
        body = self.asked.body(self.name, request)

        async def read(answer: Answer) -> None:
            async with self._client(listener, retries=self.max_retries) as client:
                await _read(client, body, answer)

        return await whole_answer(read, name=self.name, listener=listener, first_delay=self.first_delay)

    @asynccontextmanager
    async def _client(self, listener: Listener, *, retries: int) -> AsyncIterator[anthropic.AsyncAnthropic]:
        """A client for one request: nothing is left open when a line is cancelled.

        Raises ModelError for whatever the SDK raises inside.
        """
        import anthropic
        import httpx2

        try:
            client = anthropic.AsyncAnthropic(
                api_key=self._key or None,
                base_url=self._address or None,
                max_retries=retries,
                timeout=httpx2.Timeout(self.timeout, connect=min(self.timeout, CONNECT)),
                http_client=anthropic.DefaultAsyncHttpxClient(verify=_certificates()),
                middleware=[_telling(listener, retries)],
            )
        except anthropic.AnthropicError as error:
            raise ModelError(f"Claude cannot be asked: {error}", hint=CLAUDE.no_key_hint) from error
        except httpx2.InvalidURL as error:
            raise ModelError(f"the address is not one: {error}", hint=CLAUDE.address_hint) from error
        async with client:
            _check(client)
            try:
                yield client
            except anthropic.AnthropicError as error:
                attempt = Attempt(
                    service=CLAUDE,
                    model=self.name,
                    address=str(client.base_url),
                    timeout=self.timeout,
                    tries=retries + 1,
                )
                raise api_errors.explain(error, attempt) from error


@functools.cache
def _certificates() -> ssl.SSLContext:
    """What servers are known by: 24 ms to read, where the rest of a client takes 0.2 ms to make."""
    import httpx2

    return httpx2.create_ssl_context()


def _check(client: anthropic.AsyncAnthropic) -> None:
    """Find what would only fail after every retry, and with a riddle."""
    key = client.api_key or client.auth_token
    if key is None and client.credentials is None:
        raise ModelError(CLAUDE.no_key, hint=CLAUDE.no_key_hint)
    check_key_and_address(key, str(client.base_url), CLAUDE)


def _telling(listener: Listener, retries: int) -> Any:
    """Middleware of the SDK that tells the listener of what will be tried again."""
    import anthropic

    async def tell(request: Any, call_next: Any) -> Any:
        again = request.retries_taken < retries
        try:
            response = await call_next(request)
        except anthropic.APIConnectionError as error:
            if again:
                listener("retry", f"no connection ({api_errors.reason(error)}); trying again")
            raise
        status, headers = response.http_response.status_code, response.http_response.headers
        said, wait = headers.get("x-should-retry"), headers.get("retry-after")
        # the SDK's rule, which it keeps to itself
        if again and (said == "true" or (said != "false" and (status in (408, 409, 429) or status >= 500))):
            listener("retry", f"the server answered {status}; trying again" + (f" in {wait} s" if wait else ""))
        return response

    return tell


async def _read(client: anthropic.AsyncAnthropic, body: Mapping[str, Any], answer: Answer) -> None:
    """Take every event of the streamed answer; raises BrokenStream when it ends before its last one."""
    import anthropic
    import httpx2

    async with await client.beta.messages.create(**body, stream=True) as stream:
        if not str(stream.response.headers.get("content-type")).startswith("text/event-stream"):
            raise ModelError(f"{client.base_url} does not speak the {CLAUDE.api}", hint=f"Is {CLAUDE.address} right?")
        try:
            async for event in anthropic.AsyncStream.raw_events(stream.response):
                answer.take(event.json() if event.data else {})
                if answer.whole:
                    return
        except httpx2.TimeoutException as error:
            raise BrokenStream("the answer stopped coming") from error
        except (httpx2.HTTPError, httpx2.StreamError, UnicodeDecodeError) as error:
            raise BrokenStream(f"the answer broke off ({error})") from error
        except ValueError as error:
            raise BrokenStream(f"the answer has an event that is not JSON ({error})") from error
    raise BrokenStream("the answer broke off")
