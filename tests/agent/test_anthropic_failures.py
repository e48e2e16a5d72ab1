"""Everything that goes wrong between here and Claude: real connections to loopback, nothing patched."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from cutesmith.agent.models.anthropic_model import AnthropicModel
from cutesmith.agent.models.model import ModelError, Reply, Request, UnknownModelError, Usage
from cutesmith.verdicts import ExitCode
from tests.agent import messages_server as api
from tests.agent.asking import OPENING, VIEW, WHOLE, ask, asking, joined, model_of

# What goes wrong and is repaired ---------------------------------------------------------------------


@pytest.mark.slow
def test_an_answer_cut_after_any_event_is_asked_for_again():
    """Whether the connection breaks or just ends: half an answer is not an answer, and what it cost is counted."""
    parts = api.events(api.thinking("Hm."), api.raw_call("view_file", '{"path": "kernel.py"}'))
    cases = [(number, cut) for number in range(len(parts)) for cut in (True, False)]
    heard: list[list] = [[] for _ in cases]

    async def everything() -> list[Reply]:
        with ExitStack() as stack:
            servers = [stack.enter_context(api.serving(api.stream(parts[:n], cut=cut), WHOLE)) for n, cut in cases]
            return await asyncio.gather(*(asking(s, heard=h) for s, h in zip(servers, heard)))

    for (number, cut), reply, said in zip(cases, asyncio.run(everything()), heard):
        assert list(reply.content) == [api.text("Here."), VIEW], (number, cut)
        assert [kind for kind, _ in said].count("retry") == 1, (number, cut)
        broken = Usage(100, 20 if number == len(parts) - 1 else 1) if number else Usage()
        assert reply.usage == broken + Usage(100, 20), (number, cut)


@pytest.mark.parametrize("kind", ["overloaded_error", "api_error", "rate_limit_error", "timeout_error"])
def test_an_error_in_the_middle_that_may_pass_is_asked_again(kind):
    heard: list[tuple[str, str]] = []
    broken = [*api.events(VIEW)[:4], api.error_event(kind, "Later, please")]
    with api.serving(api.stream(broken), WHOLE) as server:
        assert ask(server, heard=heard).stop_reason == "tool_use"
    assert f"the server broke off its answer: Later, please ({kind}); asking again" in joined(heard, "retry")


def test_events_that_are_not_as_documented_are_asked_again():
    """No JSON; then a delta of no block; then a message that stops, though its call did not."""
    no_json = api.stream(api.events(VIEW)[:3], tail=b"event: content_block_stop\ndata: {\n\n")
    odd = {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "?"}}
    endless = [part for part in api.events(api.call("finish", {})) if part["type"] != "content_block_stop"]
    with api.serving(no_json, api.stream([*api.events()[:1], odd]), api.stream(endless), WHOLE) as server:
        assert list(ask(server).content) == [api.text("Here."), VIEW]


@pytest.mark.parametrize("error", [KeyError, ValueError, TypeError])
def test_what_goes_wrong_in_the_listener_is_no_broken_answer(error):
    def broken_screen(kind: str, text: str) -> None:
        raise error(kind)

    with api.serving(*[WHOLE] * 2) as server:
        with pytest.raises(error):
            asyncio.run(model_of(server).reply(Request(system="", messages=[OPENING]), broken_screen))
        assert len(server.bodies) == 1


def test_events_of_kinds_to_come_are_passed_over():
    parts = api.events(VIEW)
    news = {"type": "content_block_rewrite", "index": 0}
    with api.serving(api.stream([*parts[:3], news, *parts[3:]])) as server:
        assert list(ask(server).content) == [VIEW]


def test_a_byte_at_a_time_is_enough():
    with api.serving(api.stream(api.events(api.thinking("柔"), VIEW), chunk=1)) as server:
        assert list(ask(server).content) == [api.thinking("柔"), VIEW]


@pytest.mark.parametrize(
    ("failures", "seconds", "told"),
    [
        (  # the SDK's own times: half a second, then twice that, less a quarter at random
            [api.failure(500, "api_error", "Internal server error"), api.hung_up],
            (0.37, 0.75),
            ["the server answered 500", "no connection (Server disconnected without sending a response.)"],
        ),
        (  # what the server says is more than the SDK's own, which are at most 0.5 and 1
            [
                api.failure(429, "rate_limit_error", "slowly", retry_after="0.6"),
                api.failure(529, "overloaded_error", "Overloaded", retry_after="1.1"),
            ],
            (0.6, 1.1),
            ["the server answered 429; trying again in 0.6 s", "the server answered 529; trying again in 1.1 s"],
        ),
    ],
)
def test_failures_are_tried_again_after_a_while(failures, seconds, told):
    heard: list[tuple[str, str]] = []
    with api.serving(*failures, WHOLE) as server:
        assert ask(server, heard=heard).stop_reason == "tool_use"
    waited = [after - before for before, after in zip(server.times, server.times[1:])]
    assert all(waited[index] >= least for index, least in enumerate(seconds))
    retried = [text for kind, text in heard if kind == "retry"]
    assert all(text.startswith(words) and "trying again" in text for text, words in zip(retried, told, strict=True))


def test_a_server_that_forbids_it_is_not_asked_again():
    heard: list[tuple[str, str]] = []
    with api.serving(api.failure(529, "overloaded_error", "No", x_should_retry="false"), WHOLE) as server:
        with pytest.raises(ModelError, match="overloaded: No"):
            ask(server, heard=heard)
        assert (len(server.bodies), heard) == (1, [])


def test_an_answer_that_stops_coming_is_asked_for_again():
    heard: list[tuple[str, str]] = []
    with api.serving(api.stalled(api.events(VIEW)[:4]), WHOLE) as server:
        assert ask(server, timeout=1.0, heard=heard).stop_reason == "tool_use"
    assert ("retry", "the answer stopped coming; asking again") in heard


def test_cancelling_closes_the_connection():
    async def cancelled(server) -> None:
        begun = asyncio.Event()
        request = Request(system="", messages=[OPENING])
        task = asyncio.create_task(model_of(server).reply(request, lambda *_: begun.set()))
        await asyncio.wait_for(begun.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with api.serving(api.stalled(api.events(api.text("Let me …"))[:4])) as server:
        asyncio.run(cancelled(server))
        assert server.left.wait(30)
        assert len(server.bodies) == 1


# What goes wrong and is said -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "message", "hint"),
    [
        (
            (400, "invalid_request_error", "thinking: not for this model"),
            "refuses the request: thinking: not",
            "models",
        ),
        ((400, "invalid_request_error", "Your credit balance is too low"), "credit balance", "settings/billing"),
        ((402, "billing_error", "no payment method"), "cannot pay for it: no payment", "settings/billing"),
        ((403, "permission_error", "not in this workspace"), "may not do that: not in this", "workspace"),
        ((413, "request_too_large", "over 32 MB"), "too large: over 32 MB", "at a time"),
        ((418, "teapot", "short and stout"), "refuses the request: short and stout (418", "ANTHROPIC_BASE_URL"),
    ],
)
def test_a_refused_request_is_one_sentence_and_not_repeated(failure, message, hint):
    with api.serving(api.failure(*failure), WHOLE) as server, pytest.raises(ModelError) as caught:
        ask(server)
    assert message in caught.value.message
    assert "request req_1" in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == ExitCode.UNAVAILABLE
    assert len(server.bodies) == 1


def test_a_wrong_key_is_named():
    with api.serving(WHOLE) as server:
        for method in ("ready", "reply"):
            model = model_of(server, api_key=api.WRONG_KEY)
            with pytest.raises(ModelError, match="API key is refused: invalid x-api-key .401") as caught:
                asyncio.run(model.ready() if method == "ready" else model.reply(Request(system="", messages=[OPENING])))
            assert "ANTHROPIC_API_KEY" in caught.value.hint
            assert api.WRONG_KEY not in str(caught.value)


def test_an_unknown_model_is_named():
    missing = api.failure(404, "not_found_error", "model: claude-opus-48")
    named = pytest.raises(UnknownModelError, match="claude-opus-48 is not a model")
    with api.serving(missing) as server, named as caught:
        ask(server, name="claude-opus-48")
    assert caught.value.exit_code == ExitCode.USAGE
    with pytest.raises(UnknownModelError, match="no name"):
        AnthropicModel(" ")


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (429, "rate_limit_error", "the rate limit is still reached: wait (429, request req_1), 2 times in a row"),
        (500, "api_error", "Claude's API failed: wait (500, request req_1), 2 times in a row"),
        (529, "overloaded_error", "Claude's API is overloaded: wait (529, request req_1), 2 times in a row"),
    ],
)
def test_a_failure_that_stays_ends_after_the_last_retry(status, kind, message):
    with api.serving(*[api.failure(status, kind, "wait", retry_after="0.01")] * 3) as server:
        with pytest.raises(ModelError) as caught:
            ask(server, max_retries=1)
        assert (caught.value.message, len(server.bodies)) == (message, 2)


def test_an_answer_that_always_breaks_off_ends_with_what_it_cost():
    broken = api.stream(api.events(VIEW, usage={"input_tokens": 100_000})[:5], cut=True)
    with api.serving(*[broken] * 9) as server:
        with pytest.raises(ModelError, match="4 times in a row; that cost 1.6001 dollars at least"):
            ask(server)
        assert len(server.bodies) == 4


def test_an_error_in_the_middle_that_stays_is_not_asked_again():
    broken = [*api.events(VIEW)[:4], api.error_event("invalid_request_error", "prompt is too long")]
    with api.serving(api.stream(broken), WHOLE) as server:
        with pytest.raises(ModelError, match="ended in an error: prompt is too long"):
            ask(server)
        assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "http://127.0.0.1:9"}, "127.0.0.1:9 cannot be reached: Connection refused"),
        ({"base_url": "http://cutesmith.invalid"}, "cutesmith.invalid cannot be reached: "),
        ({"base_url": "localhost:8080"}, "is not an address"),
        ({"base_url": "ftp://127.0.0.1"}, "is not an address"),
        ({"base_url": "http://[::1"}, "the address is not one: "),
        ({"api_key": "sk-ant-1\n"}, "a character that no key has"),
        ({"api_key": "“sk-ant-1”"}, "a character that no key has"),
    ],
)
@pytest.mark.parametrize("method", ["ready", "reply"])
def test_what_cannot_be_reached_is_said(options, message, method):
    model = AnthropicModel(**{"base_url": "http://127.0.0.1:9", "api_key": api.KEY, "max_retries": 0, **options})
    with pytest.raises(ModelError) as caught:
        asyncio.run(model.ready() if method == "ready" else model.reply(Request(system="", messages=[OPENING])))
    assert message in caught.value.message
    assert caught.value.hint


def test_a_wrong_path_is_not_taken_for_a_wrong_model():
    with api.serving(WHOLE) as server:
        model = AnthropicModel(base_url=f"{server.address}/v1", api_key=api.KEY)
        asyncio.run(model.ready())
        with pytest.raises(ModelError, match="no Messages API at this address: Not Found") as caught:
            asyncio.run(model.reply(Request(system="", messages=[OPENING])))
    assert not isinstance(caught.value, UnknownModelError)


def test_a_server_that_says_nothing_is_given_up():
    with api.serving(api.silent) as server, pytest.raises(ModelError, match="did not answer within 0.2 s"):
        ask(server, timeout=0.2, max_retries=0)


@pytest.mark.parametrize("status", [200, 404])
def test_what_is_no_messages_api_is_said(status):
    with api.serving(api.page(status)) as server, pytest.raises(ModelError) as caught:
        ask(server)
    assert not isinstance(caught.value, UnknownModelError)
    assert "ANTHROPIC_BASE_URL" in caught.value.hint


@pytest.mark.parametrize("known", [api.abilities(), api.page(200), api.page(404)], ids=["all", "page", "missing"])
def test_a_model_that_can_do_it_all_and_a_gateway_without_a_list_of_models_change_nothing(known):
    with api.serving() as server:
        server.models[api.MODEL] = known
        model = model_of(server)
        asked = model.asked
        asyncio.run(model.ready())
    assert model.asked == asked and server.bodies == [], "nothing was learnt, nothing was paid for"
