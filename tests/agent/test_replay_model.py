"""A recorded session's answers, played back turn by turn."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import pytest

from cutesmith.agent.conversation import messages_of
from cutesmith.agent.models.anthropic_model import AnthropicModel
from cutesmith.agent.models.model import ModelError, Request, Usage
from cutesmith.agent.models.replay_model import ReplayModel
from cutesmith.agent.transcript import Transcript, read_transcript
from cutesmith.errors import UsageError
from tests.agent import messages_server as api


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transcript of two turns, each answered by the loopback server through the SDK."""
    path = tmp_path_factory.mktemp("session") / "transcript.jsonl"
    answers = api.answer(api.thinking("Look."), api.call("view_file", {"path": "a.py"})), api.answer(api.text("Done."))
    with Transcript(path) as transcript, api.serving(*answers) as server:
        transcript.append("line", line=1, parent=0, opening="Write it.")
        model = AnthropicModel(base_url=server.address, api_key=api.KEY)
        for turn in (1, 2):
            reply = asyncio.run(model.reply(asked(transcript.events, turn)))
            transcript.append("reply", line=1, **asdict(reply), turn=turn, seconds=0.1)
            result = {"id": "toolu_1", "text": "x = 1", "is_error": False}
            transcript.append("tool" if turn == 1 else "message", line=1, **result)
    return path


def asked(events, turn, line=1) -> Request:
    """What the loop asks for at this turn, with the conversation that the events make up to it."""
    replies = [index for index, event in enumerate(events) if event["kind"] == "reply"]
    until = replies[turn - 1] if turn <= len(replies) else len(events)
    return Request(system="", messages=messages_of(events[:until], 1), line=line, turn=turn)


def replay(model, *requests):
    heard: list[tuple[str, str]] = []
    return [asyncio.run(model.reply(request, lambda *said: heard.append(said))) for request in requests], heard


def test_the_recorded_answers_come_back_in_order(recorded):
    events = read_transcript(recorded)
    model = ReplayModel(events)
    (first, second), heard = replay(model, asked(events, 1), asked(events, 2))
    assert [first.content, second.content] == [e["content"] for e in events if e["kind"] == "reply"]
    assert (first.stop_reason, second.stop_reason) == ("tool_use", "end_turn")
    assert heard == [("thinking", "Look."), ("tool", "view_file"), ("text", "Done.")]
    assert first.usage == Usage(input_tokens=100, output_tokens=20)
    assert first.dollars == pytest.approx(0.0008)
    assert first.model == model.name == "replay of claude-opus-5-5"


def test_a_turn_may_be_asked_for_twice_but_none_is_passed_over(recorded):
    events = read_transcript(recorded)
    model = ReplayModel(events)
    first, again = replay(model, asked(events, 1), asked(events, 1))[0]
    assert first == again
    late = ReplayModel(events)
    replay(late, asked(events, 2))  # a resumed session begins anywhere
    with pytest.raises(ModelError, match="turn 1 of line 1 is asked for after turn 2"):
        replay(late, asked(events, 1))


def test_the_end_of_the_recording_is_named(recorded):
    events = read_transcript(recorded)
    with pytest.raises(ModelError, match="2 replies of line 1, none for turn 3"):
        replay(ReplayModel(events), asked(events, 3))
    with pytest.raises(ModelError, match="0 replies of line 7, none for turn 1"):
        replay(ReplayModel(events), asked(events, 1, line=7))


def test_another_conversation_is_not_answered(recorded):
    events = read_transcript(recorded)
    changed = [
        {"role": "user", "content": "Write it."},
        {"role": "assistant", "content": [api.text("Something else.")]},
    ]
    with pytest.raises(ModelError, match="not the recorded one"):
        replay(ReplayModel(events), Request(system="", messages=changed, line=1, turn=2))


def test_one_recorded_line_can_answer_every_line(recorded):
    events = read_transcript(recorded)
    replies, _ = replay(ReplayModel(events, line=1), asked(events, 1, line=3), asked(events, 1, line=4))
    assert replies[0] == replies[1]


@pytest.mark.parametrize("line", [None, 2])
def test_nothing_to_replay_is_said_at_once(recorded, line):
    events = [event for event in read_transcript(recorded) if line or event["kind"] != "reply"]
    with pytest.raises(UsageError, match="the transcript has no replies"):
        ReplayModel(events, line=line)
