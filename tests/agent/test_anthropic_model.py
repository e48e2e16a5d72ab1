"""What Claude is asked through the real SDK, and what comes back, against the Messages API on loopback."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import subprocess
import sys
import typing
from typing import Any

import pytest

from cutesmith.agent.models.anthropic_model import AnthropicModel, key_present
from cutesmith.agent.models.message_stream import CUT_OFF, MALFORMED
from cutesmith.agent.models.messages_request import EFFORTS
from cutesmith.agent.models.model import ModelError, Request, UnknownModelError, Usage
from cutesmith.errors import UsageError
from cutesmith.verdicts import ExitCode
from tests.agent import messages_server as api
from tests.agent.asking import OPENING, TOOLS, VIEW, WHOLE, ask, joined, model_of

# What is asked -------------------------------------------------------------------------------------------------------


def test_a_request_asks_for_thinking_effort_compaction_and_a_cache():
    with api.serving(WHOLE) as server:
        ask(server)
    ephemeral = {"type": "ephemeral"}
    assert server.bodies[0] == {
        "model": "claude-opus-5-5",
        "max_tokens": 64_000,
        "stream": True,
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "high"},
        "context_management": {
            "edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 150_000}}]
        },
        "system": [{"type": "text", "text": "You write kernels.", "cache_control": ephemeral}],
        "tools": [TOOLS[0], {**TOOLS[1], "cache_control": ephemeral}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Write a softmax.", "cache_control": ephemeral}]}
        ],
    }
    assert server.headers[0]["anthropic-beta"] == "compact-2026-01-12"


def test_what_is_switched_off_is_not_asked():
    with api.serving(WHOLE) as server:
        request = Request(system="", messages=[OPENING])
        asyncio.run(model_of(server, effort="", thinking=False, compaction_trigger=None).reply(request))
    assert set(server.bodies[0]) == {"model", "max_tokens", "stream", "messages"}
    assert "anthropic-beta" not in server.headers[0]


def test_breakpoints_follow_the_conversation_and_leave_it_alone():
    """At the ends of the last two messages of the user: where this turn's entry is written, and the last one's was."""
    messages = [OPENING]
    for turn in range(4):
        call = api.call("view_file", {"turn": turn}, f"toolu_{turn}")
        result = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": "…"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    before = copy.deepcopy(messages)
    with api.serving(WHOLE) as server:
        ask(server, *messages)
    assert messages == before
    sent = server.bodies[0]["messages"]
    marked = [index for index, message in enumerate(sent) if "cache_control" in json.dumps(message)]
    assert marked == [6, 8]
    assert json.dumps(server.bodies[0]).count("cache_control") == 4  # the API takes no more
    assert all("cache_control" in sent[index]["content"][-1] for index in marked)


@pytest.mark.parametrize("wrong", [{"effort": "extreme"}, {"max_tokens": 0}, {"compaction_trigger": 49_999}])
def test_what_the_api_would_refuse_is_refused_before_a_request(wrong):
    with pytest.raises(UsageError):
        AnthropicModel(**wrong)


def test_a_model_is_asked_only_for_what_it_can():
    old = api.abilities(adaptive=False, effort=(), compaction=False, max_tokens=32_000)
    with api.serving(WHOLE) as server:
        server.models["claude-old"] = old
        model = model_of(server, name="claude-old")
        asyncio.run(model.ready())
        asyncio.run(model.reply(Request(system="", messages=[OPENING])))
    assert set(server.bodies[0]) == {"model", "max_tokens", "stream", "messages"}
    assert server.bodies[0]["max_tokens"] == 32_000


@pytest.mark.parametrize(
    ("name", "known", "error", "message"),
    [
        ("claude-opus-5-5", api.abilities(effort=("low", "high")), UsageError, "no effort max\nIt has low, high."),
        ("claude-gone", api.abilities(lifecycle="retired"), UnknownModelError, "claude-gone is retired"),
        ("claude-opus-48", None, UnknownModelError, "claude-opus-48 is not a model that this API key can use"),
    ],
)
def test_ready_finds_what_would_fail(name, known, error, message):
    with api.serving() as server:
        if known:
            server.models[name] = known
        with pytest.raises(error) as caught:
            asyncio.run(model_of(server, name=name, effort="max").ready())
    assert message in str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE


def test_ready_does_not_wait_long_for_a_server_that_fails():
    asked: list[str] = []

    def failing(handler) -> None:
        asked.append(handler.path)
        api.failure(529, "overloaded_error", "Overloaded", retry_after="0.01")(handler)

    with api.serving() as server:
        server.models["claude-opus-5-5"] = failing
        with pytest.raises(ModelError, match="overloaded"):
            asyncio.run(model_of(server, max_retries=8).ready())
    assert asked == ["/v1/models/claude-opus-5-5"] * 3


# What comes back -----------------------------------------------------------------------------------------------------

BLOCKS = {
    "text": [api.text("A softmax needs two passes: ein Maß für alles, 柔らかい, 🧮.")],
    "thinking": [api.thinking("Rows of 4096 …", "EqQBCgIYAhIM"), api.text("Now:"), VIEW],
    "thinking not shown": [api.thinking("", "EqQBCgIYAhIM"), VIEW],
    "redacted thinking": [api.redacted(), api.redacted("b3RoZXI="), VIEW],
    "parallel calls": [api.call("view_file", {"n": n}, f"toolu_{n}") for n in range(5)],
    "a call without arguments": [api.call("finish", {})],
    "deep arguments": [api.call("finish", {"a": [1, 2.5, None, True, {"ü": '\n\\"'}], "b": -1e-7})],
    "compaction": [api.compaction("So far: …", encrypted_content="ZW5j", signature="c2ln"), api.text("Going on.")],
    "a failed compaction": [api.compaction(None), api.text("Going on.")],
    "a block of tomorrow": [{"type": "dream", "images": [{"x": 1}], "depth": None}, api.text("Hm.")],
    "citations": [{**api.text("As said."), "citations": [{"type": "char_location", "cited_text": "said"}]}],
    "nothing": [],
}


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_blocks_come_back_as_they_were_and_are_sent_again_unchanged(blocks):
    with api.serving(api.answer(*blocks), WHOLE) as server:
        reply = ask(server)
        assert list(reply.content) == blocks
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call, "content": "ok"} for call in calls]
        after = {"role": "user", "content": [*results, api.text("Go on.")]}
        said = [{"role": "assistant", "content": list(reply.content)}] if blocks else []
        ask(server, OPENING, *said, after)
    assert [m["content"] for m in server.bodies[1]["messages"] if m["role"] == "assistant"] == (
        [blocks] if said else []
    )


def test_the_listener_hears_an_answer_as_it_comes():
    heard: list[tuple[str, str]] = []
    with api.serving(api.answer(api.thinking("Two passes, or one."), api.text("One pass."), VIEW)) as server:
        ask(server, heard=heard)
    assert joined(heard, "thinking") == "Two passes, or one."
    assert joined(heard, "text") == "One pass."
    assert joined(heard, "tool") == 'view_file{"path": "kernel.py"}'
    assert len(heard) > 6


def test_what_the_api_would_refuse_to_be_sent_again_is_left_out():
    blocks = [api.text(""), {**VIEW, "caller": None}, api.text(" \n")]
    with api.serving(api.answer(*blocks)) as server:
        assert list(ask(server).content) == [VIEW]


def test_a_later_null_takes_nothing_away():
    parts = api.events(api.compaction("So far: …"))
    later = {"type": "compaction_delta", "content": None, "encrypted_content": "ZW5j"}
    delta = {"type": "content_block_delta", "index": 0, "delta": later}
    with api.serving(api.stream([*parts[:4], delta, *parts[4:]])) as server:
        assert list(ask(server).content) == [api.compaction("So far: …", encrypted_content="ZW5j")]


def test_halves_of_a_character_are_put_together():
    parts = api.events(api.text("x"))
    deltas = [part for part in parts if part["type"] == "content_block_delta"]
    index = parts.index(deltas[0])
    halves = [{**deltas[0], "delta": {"type": "text_delta", "text": half}} for half in ("\ud83e", "\uddee \ud83e")]
    with api.serving(api.stream([*parts[:index], *halves, *parts[index + 1 :]])) as server:
        assert list(ask(server).content) == [api.text("🧮 \ufffd")]


@pytest.mark.parametrize(
    "reason", ["end_turn", "max_tokens", "pause_turn", "refusal", "compaction", "stop_sequence", "not_invented_yet"]
)
@pytest.mark.parametrize("blocks", [[], [api.text("Well …")]], ids=["empty", "text"])
def test_every_stop_reason_is_data(reason, blocks):
    with api.serving(api.answer(*blocks, stop_reason=reason)) as server:
        reply = ask(server)
    assert (reply.stop_reason, list(reply.content)) == (reason, blocks)


RAW = {
    "no JSON": "path: kernel.py",
    "cut": '{"path": "kern',
    "doubled": '{"path": "a"}{"path": "b"}',
    "a list": '["kernel.py"]',
    "no number": '{"n": NaN}',
    "too deep": '{"a": ' + "[" * 5000 + "]" * 5000 + "}",
    "deeper than anybody needs": '{"a": ' + "[" * 200 + "]" * 200 + "}",
    "an endless number": '{"n": ' + "9" * 5000 + "}",
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
def test_arguments_that_are_no_object_are_kept_as_text(raw):
    with api.serving(api.answer(api.raw_call("view_file", raw)), WHOLE) as server:
        reply = ask(server)
        assert list(reply.content) == [api.call("view_file", {MALFORMED: raw})]
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no JSON", "is_error": True}
        again = [{"role": "assistant", "content": list(reply.content)}, {"role": "user", "content": [result]}]
        assert ask(server, OPENING, *again).stop_reason == "tool_use"


@pytest.mark.parametrize("reason", CUT_OFF)
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("", {MALFORMED: ""}),
        ('{"path": "kernel.py", "te', {MALFORMED: '{"path": "kernel.py", "te'}),
        ('{"path": "kernel.py"}', {"path": "kernel.py"}),
    ],
)
def test_a_call_that_was_cut_off_is_never_taken_for_a_whole_one(reason, raw, expected):
    blocks = [api.call("finish", {}, "toolu_0"), api.raw_call("view_file", raw)]
    with api.serving(api.answer(*blocks, stop_reason=reason)) as server:
        reply = ask(server)
    assert [call["input"] for call in reply.content] == [{}, expected]


# What it costs -------------------------------------------------------------------------------------------------------


def test_usage_and_dollars_count_cache_and_compaction():
    compacted = {"input_tokens": 150_000, "output_tokens": 3000, "cache_read_input_tokens": 0}
    usage = {
        "input_tokens": 500,
        "output_tokens": 1000,
        "cache_read_input_tokens": 20_000,
        "cache_creation_input_tokens": 4000,
        "iterations": [{"type": "compaction", **compacted}, {"type": "message", "input_tokens": 500}],
    }
    with api.serving(api.answer(api.compaction("…"), VIEW, usage=usage)) as server:
        reply = ask(server)
    assert reply.usage == Usage(150_500, 4000, 20_000, 4000)
    assert reply.dollars == pytest.approx((150_500 * 4 + 4000 * 20 + 20_000 * 0.2 + 4000 * 5) / 1e6)


def test_counts_that_the_end_leaves_out_are_those_of_the_beginning():
    parts = api.events(VIEW, usage={"cache_read_input_tokens": 77})
    parts[-2] = {**parts[-2], "usage": {"output_tokens": 9, "cache_read_input_tokens": None}}
    with api.serving(api.stream(parts)) as server:
        assert ask(server).usage == Usage(100, 9, 77, 0)


def test_a_model_without_a_price_has_no_cost():
    with api.serving(api.answer(VIEW, model="claude-next")) as server:
        reply = ask(server, name="claude-next")
    assert (reply.model, reply.dollars) == ("claude-next", None)


# The environment, and what the SDK says of itself --------------------------------------------------------------------

LAZY = """
import sys
import cutesmith.agent.models.anthropic_model
assert "anthropic" not in sys.modules and "torch" not in sys.modules
"""


def test_the_sdk_is_imported_by_what_asks_a_model_alone():
    subprocess.run([sys.executable, "-c", LAZY], check=True, timeout=60)


def test_key_and_address_are_those_of_the_environment(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME"):  # where the SDK's profiles would be
        monkeypatch.setenv(name, str(tmp_path))

    async def both() -> str:
        model = AnthropicModel()
        await model.ready()
        return (await model.reply(Request(system="", messages=[OPENING]))).content[0]["text"]

    with api.serving(api.answer(api.text("One.")), api.answer(api.text("Two."))) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.address)
        with pytest.raises(ModelError) as caught:
            asyncio.run(both())
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
        assert asyncio.run(both()) == "One."
        monkeypatch.setenv("ANTHROPIC_API_KEY", api.KEY)
        assert asyncio.run(both()) == "Two."
    assert str(caught.value).startswith("Claude cannot be asked: no API key is set\nSet ANTHROPIC_API_KEY")
    assert caught.value.exit_code == ExitCode.UNAVAILABLE
    assert [headers["authorization"] for headers in server.headers] == ["Bearer token", f"Bearer {api.KEY}"]


def test_a_key_is_seen_without_the_sdk():
    assert key_present({"ANTHROPIC_API_KEY": "sk-ant-1"})
    assert key_present({"ANTHROPIC_AUTH_TOKEN": "token"})
    assert not key_present({"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": " ", "ANTHROPIC_BASE_URL": "http://x"})


def test_response_blocks_fit_the_requests_blocks_but_for_a_null_caller():
    """What the SDK's types say may be null in an answer and not in a request is what must be left out."""
    from anthropic.types import beta

    blocks = typing.get_args(typing.get_args(beta.BetaContentBlock)[0])
    refused: set[str] = set()
    for block in blocks:
        name = block.__name__.replace("BetaMCPToolResult", "BetaRequestMCPToolResult")
        fields = typing.get_type_hints(getattr(beta, f"{name}Param"))
        mine = {field.alias or name: field.annotation for name, field in block.model_fields.items()}
        assert set(mine) - {"from_"} <= set(fields), name
        refused |= {field for field in mine if _nullable(mine[field]) and not _nullable(fields[field])}
    assert refused == {"caller"}


def _nullable(hint: Any) -> bool:
    return hint is type(None) or any(_nullable(part) for part in typing.get_args(hint))


def test_the_sdk_has_these_efforts_and_stop_reasons():
    from anthropic.types import beta

    efforts = typing.get_type_hints(beta.BetaOutputConfigParam)["effort"]
    assert typing.get_args(typing.get_args(efforts)[0]) == EFFORTS
    assert set(CUT_OFF) <= set(typing.get_args(beta.BetaStopReason))
