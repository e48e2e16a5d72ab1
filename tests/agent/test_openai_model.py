"""Models of an OpenAI-compatible server, asked through the real SDK: what is sent, what comes back, what goes wrong."""

from __future__ import annotations

import asyncio
import json

import pytest

from cutesmith.agent.models.message_stream import MALFORMED
from cutesmith.agent.models.model import ModelError, Reply, Request, UnknownModelError, Usage
from cutesmith.agent.models.openai_model import OpenAIModel
from cutesmith.verdicts import ExitCode
from tests.agent import chat_server as api
from tests.agent.asking import OPENING, TOOLS, joined
from tests.agent.messages_server import WRONG_KEY, call, page, silent, text

VIEW = ("view_file", {"path": "kernel.py"})
WHOLE = api.answer(thought="Read it first.", content="Here.", calls=[VIEW])


def model_of(server, name: str = api.MODEL, **options) -> OpenAIModel:
    return OpenAIModel(name, **{"base_url": f"{server.address}/v1", "first_delay": 0.05, "max_retries": 2, **options})


def ask(server, *messages, heard: list | None = None, **options) -> Reply:
    request = Request(system="You write kernels.", tools=TOOLS, messages=messages or (OPENING,))
    said = heard if heard is not None else []
    return asyncio.run(model_of(server, **options).reply(request, lambda *pair: said.append(pair)))


def test_a_request_is_a_chat_with_functions():
    with api.serving(WHOLE) as server:
        ask(server, effort="high")
    function = {"name": "view_file", "description": "view_file", "parameters": {"type": "object"}}
    body = server.bodies[0]
    assert body["tools"][0] == {"type": "function", "function": function}
    assert body["messages"] == [
        {"role": "system", "content": "You write kernels."},
        {"role": "user", "content": "Write a softmax."},
    ]
    assert (body["model"], body["stream"], body["reasoning_effort"]) == (api.MODEL, True, "high")
    assert body["stream_options"] == {"include_usage": True}


def test_an_answer_has_the_blocks_of_the_messages_api():
    heard: list[tuple[str, str]] = []
    with api.serving(WHOLE) as server:
        reply = ask(server, heard=heard)
    assert list(reply.content) == [
        {"type": "thinking", "thinking": "Read it first."},
        text("Here."),
        call("view_file", {"path": "kernel.py"}, "call_0"),
    ]
    assert (reply.stop_reason, reply.usage, reply.model) == ("tool_use", Usage(70, 20, 30), api.MODEL)
    assert reply.dollars is None
    assert (joined(heard, "thinking"), joined(heard, "text")) == ("Read it first.", "Here.")


def test_the_conversation_goes_back_as_calls_and_their_results():
    answered = [
        {"type": "thinking", "thinking": "Read it first."},
        text("Here."),
        call("view_file", {"path": "a.py"}, "call_0"),
        call("view_file", {"path": "b.py"}, "call_1"),
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "call_0", "content": "1  import cutlass"},
        {"type": "tool_result", "tool_use_id": "call_1", "content": "no such file", "is_error": True},
        text("Go on."),
    ]
    with api.serving(WHOLE) as server:
        ask(server, OPENING, {"role": "assistant", "content": answered}, {"role": "user", "content": results})
    said, *tools, last = server.bodies[0]["messages"][2:]
    assert said["content"] == "Here." and [c["id"] for c in said["tool_calls"]] == ["call_0", "call_1"]
    assert json.loads(said["tool_calls"][1]["function"]["arguments"]) == {"path": "b.py"}
    assert [t["content"] for t in tools] == ["1  import cutlass", "[error] no such file"]
    assert last == {"role": "user", "content": "Go on."}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"content": "Done."}, "end_turn"),
        ({"content": "Do", "finish": "length"}, "max_tokens"),
        ({"content": "No.", "finish": "content_filter"}, "refusal"),
        ({"calls": [VIEW], "finish": "stop"}, "tool_use"),  # as some servers end an answer with calls
        ({"content": "?", "finish": "new_reason"}, "new_reason"),
    ],
)
def test_why_an_answer_stopped(options, reason):
    with api.serving(api.answer(**options)) as server:
        assert ask(server).stop_reason == reason


def test_arguments_that_are_no_json_are_data():
    with api.serving(api.answer(calls=[("view_file", '{"path": '), ("finish", {})])) as server:
        first, second = ask(server).content
    assert first["input"] == {MALFORMED: '{"path": '} and second["input"] == {}


def test_thoughts_under_the_other_name_are_heard():
    with api.serving(api.answer(thought="Hm.", content="Here.", thought_key="reasoning")) as server:
        assert ask(server).content[0] == {"type": "thinking", "thinking": "Hm."}


def test_an_answer_that_breaks_off_anywhere_is_asked_for_again():
    parts = api.chunks(content="Here.", calls=[VIEW])
    for count in (0, 1, len(parts) // 2, len(parts) - 2):
        for cut in (True, False):
            heard: list[tuple[str, str]] = []
            with api.serving(api.stream(parts[:count], cut=cut), WHOLE) as server:
                assert ask(server, heard=heard).content[1] == text("Here."), (count, cut)
            assert joined(heard, "retry").endswith("asking again"), (count, cut)


def test_an_error_within_the_stream_and_one_that_is_no_json_are_asked_again():
    error = {"error": {"message": "the engine died", "type": "server_error"}}
    no_json = api.stream(api.chunks(content="Hm.")[:2], tail=b"data: {\n\n")
    heard: list[tuple[str, str]] = []
    with api.serving(api.stream([error]), no_json, WHOLE) as server:
        ask(server, heard=heard)
    assert "the engine died" in joined(heard, "retry") and "not JSON" in joined(heard, "retry")


def test_a_busy_server_is_asked_again():
    heard: list[tuple[str, str]] = []
    with api.serving(api.failure(503, "loading the model", retry_after_ms="10"), WHOLE) as server:
        assert ask(server, heard=heard).stop_reason == "tool_use"
    assert "503" in joined(heard, "retry")


@pytest.mark.parametrize(
    ("answer", "options", "said"),
    [
        (WHOLE, {"api_key": WRONG_KEY}, "the API key is refused: Incorrect API key provided (401"),
        (api.failure(400, "context length exceeded"), {}, "refuses the request: context length exceeded (400"),
        (api.failure(404, "The model `local/kernel-writer` does not exist."), {}, "is not a model that this API key"),
        (page(200), {}, "does not speak the Chat Completions API"),
        (silent, {"timeout": 0.1, "max_retries": 0}, "did not answer within 0.1 s"),
    ],
)
def test_what_cannot_be_answered_says_why(answer, options, said):
    with api.serving(answer) as server, pytest.raises(ModelError) as caught:
        ask(server, **options)
    assert said in str(caught.value)


def test_ready_knows_the_servers_models(monkeypatch):
    with api.serving() as server:
        asyncio.run(model_of(server).ready())
        with pytest.raises(UnknownModelError) as caught:
            asyncio.run(model_of(server, "local/unheard-of").ready())
        assert caught.value.exit_code == ExitCode.USAGE
        asyncio.run(model_of(server, base_url=f"{server.address}/v2").ready())  # no list of models there
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        asyncio.run(OpenAIModel("gpt").ready())
    with pytest.raises(ModelError, match="is not an address"):
        asyncio.run(OpenAIModel("gpt", base_url="localhost").ready())
