"""The loop: scripted answers, real recording; every stop reason is data, and an answer is never paid for twice."""

from __future__ import annotations

import asyncio

import pytest

from cutesmith.agent import outcome
from cutesmith.agent.budget import GRACE, Limits
from cutesmith.agent.loop import SILENCE, Line
from cutesmith.agent.models.scripted_model import ScriptedModel
from cutesmith.agent.outcome import Outcome
from cutesmith.agent.session import new_session, resumed_session
from tests.agent.events import VERIFY, call, judged, reply


class Tools:
    """`say` answers with its words, `write` changes a file, `finish` ends; counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def schemas(self):
        return [{"name": "say", "input_schema": {"type": "object"}}]

    async def call(self, block):
        self.calls.append(block["name"])
        words = block["input"].get("words", "")
        if block["name"] == "write":
            return Outcome(text="written", effects=(outcome.WriteFile("kernel.py", words),))
        return Outcome(text=words, finish=words if block["name"] == "finish" else "")


def use(name, **input):
    return {"calls": [{"name": name, "input": input}]}


FINISH = use("finish", words="good enough")
NO_LIMITS = Limits(turns=None)


def work(folder, *turns, limits=NO_LIMITS, resume=False, tools=None, rounds=None):
    """Run a line with these turns; the session's events, the model and the tools."""
    model, tools = ScriptedModel(turns), tools or Tools()
    with resumed_session(folder) if resume else new_session(folder, request="r") as session:
        session.limits = limits
        if not resume:
            session.record("line", 1, parent=0, opening="begin", effects=[])
        asyncio.run(Line(1, session, model, tools, "system").run(turns=rounds))
        return session.events, model, tools


def ending(events):
    return events[-1]["ending"], events[-1]["reason"]


def test_tools_run_in_order_and_finish_ends_the_line(tmp_path):
    two = {"calls": [{"name": "write", "input": {"words": "one"}}, {"name": "write", "input": {"words": "two"}}]}
    events, model, tools = work(tmp_path / "s", two, FINISH)
    assert tools.calls == ["write", "write", "finish"] and ending(events) == ("finished", "good enough")
    assert (tmp_path / "s" / "work" / "1" / "kernel.py").read_text() == "two"
    last = model.requests[1].messages
    assert [m["role"] for m in last] == ["user", "assistant", "user"] and len(last[2]["content"]) == 2
    assert model.requests[0].system == "system" and model.requests[1].turn == 2


@pytest.mark.parametrize(
    "turn, said",
    [
        ({"text": "I think"}, "Nothing happens without a tool call"),
        ({"text": "I th", "stop_reason": "max_tokens"}, "cut off at its length limit"),
        ({}, "Nothing happens without a tool call"),
        ({"text": "x", "stop_reason": "one that is new"}, "Nothing happens without a tool call"),
    ],
)
def test_an_answer_without_a_call_is_answered(tmp_path, turn, said):
    events, model, _ = work(tmp_path / "s", turn, FINISH)
    assert said in model.requests[1].messages[-1]["content"][-1]["text"]
    assert ending(events)[0] == "finished"
    assert all(message["content"] for message in model.requests[1].messages)


def test_a_paused_answer_is_asked_to_go_on_without_words(tmp_path):
    events, model, _ = work(tmp_path / "s", {"text": "hm", "stop_reason": "pause_turn"}, FINISH)
    assert [message["role"] for message in model.requests[1].messages] == ["user", "assistant"]
    assert not any(event["kind"] == "message" for event in events)


REFUSAL = {**use("write", words="x"), "text": "I will not", "stop_reason": "refusal"}


@pytest.mark.parametrize(
    ("turns", "limits", "end", "asked", "called"),
    [
        ([REFUSAL, FINISH], NO_LIMITS, ("refused", "the model declined"), 1, 0),
        ([{"stop_reason": "model_context_window_exceeded"}], NO_LIMITS, ("budget spent", "the conversation"), 1, 0),
        ([{"text": "…"}] * 9, NO_LIMITS, ("silent", "the model called no tool"), SILENCE, 0),
        ([use("say")], NO_LIMITS, ("model failed", "the script of line 1 has 1 turns, no turn 2"), 2, 1),
        ([use("say")] * 9, Limits(turns=3), ("budget spent", "turns: 3 of 3 turns are used"), 3, 3),
    ],
)
def test_a_line_ends_for_a_reason_that_is_recorded(tmp_path, turns, limits, end, asked, called):
    events, model, tools = work(tmp_path / "s", *turns, limits=limits)
    name, reason = ending(events)
    assert name == end[0] and reason.startswith(end[1])
    assert (len(model.requests), len(tools.calls)) == (asked, called)


def test_an_answer_full_of_calls_does_not_outlast_the_time_limit(tmp_path):
    spent, folder = Limits(turns=None, seconds=-GRACE - 1), tmp_path / "s"
    with new_session(folder, request="r") as session:
        session.record("line", 1, parent=0, opening="begin", effects=[])
        asked = reply(0, call("a", "say", words="x"), call("b", "say", words="y"))
        session.record("reply", **{name: value for name, value in asked.items() if name not in ("seq", "time", "kind")})
    events, model, tools = work(folder, limits=spent, resume=True)
    assert ending(events)[0] == "budget spent" and "were not run" in ending(events)[1]
    assert not tools.calls and not model.requests
    _, _, tools = work(folder, {}, FINISH, resume=True)
    assert tools.calls[:2] == ["say", "say"]


def test_a_round_stops_between_turns_and_can_be_gone_on_with(tmp_path):
    events, model, tools = work(tmp_path / "s", use("say", words="x"), use("say", words="y"), FINISH, rounds=2)
    assert len(model.requests) == 2 and tools.calls == ["say", "say"] and events[-1]["kind"] == "tool"
    events, model, _ = work(tmp_path / "s", use("say"), use("say"), FINISH, resume=True)
    assert [request.turn for request in model.requests] == [3] and ending(events)[0] == "finished"


class Killed(BaseException):
    """Stands for the end of the process, as far as this test goes: the real kill is in test_resume.py."""


class DyingTools(Tools):
    async def call(self, block):
        if len(self.calls) == 1:
            raise Killed
        return await super().call(block)


def test_a_call_without_a_result_is_run_again_and_no_answer_is_asked_for_again(tmp_path):
    both = {"calls": [{"name": "say", "input": {"words": "a"}}, {"name": "write", "input": {"words": "b"}}]}
    with pytest.raises(Killed):
        work(tmp_path / "s", both, FINISH, tools=DyingTools())
    events, model, tools = work(tmp_path / "s", both, FINISH, resume=True)
    assert tools.calls == ["write", "finish"] and [request.turn for request in model.requests] == [2]
    assert [event["kind"] for event in events].count("reply") == 2
    assert (tmp_path / "s" / "work" / "1" / "kernel.py").read_text() == "b"


def test_cancelling_keeps_what_there_is(tmp_path):
    async def cancelled(session):
        line = Line(1, session, ScriptedModel([use("say"), {"seconds": 60}]), Tools(), "system")
        task = asyncio.ensure_future(line.run())
        while session.state.turns.get(1, 0) < 1:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with new_session(tmp_path / "s", request="r") as session:
        session.record("line", 1, parent=0, opening="begin", effects=[])
        asyncio.run(cancelled(session))
        assert ending(session.events)[0] == "interrupted"


def test_what_was_found_wrong_since_lies_no_longer_in_the_folder(tmp_path):
    folder = tmp_path / "s"
    with new_session(folder, request="r") as session:
        for verdict, there in ((VERIFY, True), ({**VERIFY, "status": "wrong_result", "exit_code": 1}, False)):
            session.record("judged", text="", effects=[judged("a", verdict)])
            assert (folder / "kernel.py").is_file() == there
    (folder / "kernel.py").write_text("left by a process that was killed")
    with resumed_session(folder):
        assert not (folder / "kernel.py").exists()
