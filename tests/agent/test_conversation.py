"""The conversation that is sent is the one that was recorded, in the alternation that the Messages API wants."""

from __future__ import annotations

from cutesmith.agent.conversation import last_turn, messages_of, open_calls, silent_turns
from tests.agent.events import call, event, reply, text, tool

OPENING = event(0, "line", opening="begin", parent=0)


def test_results_of_parallel_calls_are_one_message_and_errors_are_marked():
    first = reply(1, {"type": "thinking", "thinking": "…", "signature": "s"}, call("a"), call("b"))
    events = [OPENING, first, tool(2, "a"), tool(3, "b", is_error=True, words="no"), reply(4, text("ok"))]
    messages = messages_of(events, 1)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[1]["content"] == first["content"]
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "done"},
        {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
    ]


def test_an_empty_answer_leaves_no_empty_message():
    events = [OPENING, reply(1), event(2, "message", text="go on")]
    messages = messages_of(events, 1)
    assert [message["role"] for message in messages] == ["user"]
    assert [block["text"] for block in messages[0]["content"]] == ["begin", "go on"]


def test_a_paused_answer_goes_on_in_the_same_message():
    paused = reply(1, text("half"), stop_reason="pause_turn")
    messages = messages_of([OPENING, paused, reply(2, text(" done"))], 1)
    assert [block["text"] for block in messages[1]["content"]] == ["half", " done"]


def test_other_lines_are_not_heard():
    events = [OPENING, event(1, "line", 2, opening="other", parent=0), reply(2, text("of two"), line=2)]
    assert len(messages_of(events, 1)) == 1 and len(messages_of(events, 2)) == 2


def test_calls_without_a_result_are_open():
    events = [OPENING, reply(1, call("a"), call("b")), tool(2, "a"), tool(3, "b", line=2)]
    assert [block["id"] for block in open_calls(events, 1)] == ["b"]
    assert open_calls([OPENING], 1) == []
    assert open_calls([*events, tool(4, "b")], 1) == []


def test_the_last_turn_is_the_reply_and_what_followed_on_the_line():
    events = [OPENING, reply(1, call("a")), tool(2, "a"), tool(3, "z", line=2), event(4, "message", text="go on")]
    last, after = last_turn(events, 1)
    assert last["seq"] == 1 and [e["seq"] for e in after] == [2, 4]
    assert last_turn([OPENING], 1) == (None, [])


def test_silence_is_counted_in_a_row_and_pauses_are_no_silence():
    events = [
        reply(1, text("a")),
        reply(2, call("x")),
        reply(3, text("b")),
        reply(4, text("c"), stop_reason="pause_turn"),
    ]
    assert silent_turns(events, 1) == 1
    assert silent_turns([*events, reply(5, text("d"))], 1) == 2
