"""Several lines at once: the beam keeps the best, tells them what was learnt, and goes on after a kill."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from cutesmith.agent.budget import Limits
from cutesmith.agent.exploration import explore
from cutesmith.agent.loop import Line
from cutesmith.agent.models.scripted_model import ScriptedModel
from cutesmith.agent.outcome import AddNote, Outcome, RecordVerdict
from cutesmith.agent.session import new_session, resumed_session
from cutesmith.agent.settings import Settings
from cutesmith.agent.texts.lessons import CHARACTERS, lessons_of
from tests.agent.events import VERIFY, timed


class Tools:
    """`judge(us)` verifies a kernel of that time, `learn(words)` notes, `finish` ends, `die` ends the process."""

    def __init__(self, line: int) -> None:
        self.line = line

    def schemas(self):
        return []

    async def call(self, block):
        name, given = block["name"], block["input"]
        if name == "judge":
            text = f"# line {self.line}: {given['us']} us\n"
            sha = hashlib.sha256(text.encode()).hexdigest()
            verdicts = [VERIFY, timed(given["us"])]
            return Outcome(text="judged", effects=tuple(RecordVerdict(sha, text, verdict) for verdict in verdicts))
        if name == "take":  # a pass that nothing timed
            text = f"# line {self.line}, {given['cases']} cases\n"
            sha = hashlib.sha256(text.encode()).hexdigest()
            verdict = {**VERIFY, "cases": [{"passed": True}] * given["cases"]}
            return Outcome(text="judged", effects=(RecordVerdict(sha, text, verdict),))
        if name == "learn":
            return Outcome(text="noted", effects=(AddNote({"note": given["words"]}),))
        if name == "die":
            raise KeyboardInterrupt
        return Outcome(text="", finish="enough")


def judge(us):
    return {"calls": [{"name": "judge", "input": {"us": us}}]}


def learn(words):
    return {"calls": [{"name": "learn", "input": {"words": words}}]}


FINISH = {"calls": [{"name": "finish"}]}
IDLE = learn("idle")


def search(folder, script, *, resume=False, limits=Limits(turns=20), tools=Tools, **settings):  # noqa: B008 - frozen
    settings = Settings(limits=limits, **settings)
    model = ScriptedModel(script)
    with resumed_session(folder) if resume else new_session(folder, request="r") as session:
        session.limits = settings.limits
        if not resume:
            for number in range(1, settings.candidates + 1):
                session.record("line", number, parent=0, opening="begin", effects=[])
        asyncio.run(explore(session, settings, lambda n: Line(n, session, model, tools(n), "system")))
        return session.events, session.state, model


def kinds(events, kind):
    return [event for event in events if event["kind"] == kind]


def test_without_a_beam_every_line_works_to_its_own_end(tmp_path):
    script = {"1": [judge(30), FINISH], "2": [judge(20), IDLE, FINISH], "3": []}
    events, state, _ = search(tmp_path / "s", script, candidates=3)
    assert {line: e["ending"] for line, e in state.endings.items()} == {1: "finished", 2: "finished", 3: "model failed"}
    assert state.best().line == 2 and state.best().median_us == 20


def test_lines_work_at_the_same_time(tmp_path):
    slow = {**IDLE, "seconds": 0.3}
    events, _, _ = search(tmp_path / "s", {"*": [slow, FINISH]}, candidates=4)
    asked = [event["seq"] for event in events if event["kind"] == "request" and event["turn"] == 1]
    assert max(asked) < min(event["seq"] for event in kinds(events, "reply"))


BEAM = {
    "1": [judge(30), learn("tiles of 64 spill"), FINISH],
    "2": [judge(20), learn("two stages are enough"), judge(15), FINISH],
    "3": [learn("cannot get it to compile"), IDLE, FINISH],
    "4": [judge(10), IDLE, FINISH],
    "5": [judge(40), IDLE, FINISH],
}


def test_the_beam_keeps_the_best_and_forks_from_them(tmp_path):
    events, state, model = search(tmp_path / "s", BEAM, candidates=3, beam=1, rounds=2, round_turns=2)
    first, second = kinds(events, "round")
    assert (first["kept"], sorted(first["dropped"])) == ([2], [1, 3])
    forks = {event["line"]: event for event in kinds(events, "line") if event["line"] > 3}
    assert {line: event["parent"] for line, event in forks.items()} == {4: 2, 5: 2}
    assert forks[4]["effects"][0]["text"] == "# line 2: 20 us\n" and "two stages are enough" in forks[4]["opening"]
    assert second["kept"] == [4] and sorted(second["dropped"]) == [2, 5]
    assert state.best().median_us == 10 and len(kinds(events, "round")) == 2
    endings = {line: event["ending"] for line, event in state.endings.items()}
    assert endings == {1: "dropped", 2: "finished", 3: "dropped", 4: "finished", 5: "dropped"}


def test_without_times_the_beam_keeps_the_line_whose_kernel_the_session_would_deliver(tmp_path):
    def take(cases):
        return {"calls": [{"name": "take", "input": {"cases": cases}}]}

    script = {"1": [take(8), FINISH], "2": [take(16), FINISH], "3": [take(12), FINISH]}
    events, state, _ = search(tmp_path / "s", script, candidates=3, beam=1, rounds=1, round_turns=1)
    (round_event,) = kinds(events, "round")
    assert round_event["kept"] == [2] == [state.best().line] and round_event["dropped"] == [3, 1]


def test_a_kept_line_hears_what_the_others_learnt(tmp_path):
    _, _, model = search(tmp_path / "s", BEAM, candidates=3, beam=2, rounds=1, round_turns=2)
    heard = [request for request in model.requests if request.line == 2 and request.turn == 3][0]
    said = heard.messages[-1]["content"][-1]["text"]
    assert "tiles of 64 spill" in said and "### Line 2: verified, 20.00 µs" in said and "cannot get it" in said


def test_a_search_that_was_killed_goes_on_in_the_middle_of_its_round(tmp_path):
    die = {"calls": [{"name": "judge", "input": {"us": 20}}, {"name": "die"}]}
    settings = {"candidates": 3, "beam": 1, "rounds": 2, "round_turns": 2}
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "s", {**BEAM, "2": [die]}, **settings)

    class Surviving(Tools):
        async def call(self, block):
            name = block["name"].replace("die", "learn")
            return await super().call({**block, "name": name, "input": {"us": 1, "words": "x"}})

    events, state, model = search(tmp_path / "s", BEAM, resume=True, tools=Surviving, **settings)
    replies = [(event["line"], event["turn"]) for event in kinds(events, "reply")]
    assert len(replies) == len(set(replies)), "a turn was paid for twice"
    assert [event["round"] for event in kinds(events, "round")] == [1, 2] and state.best().median_us is not None


def test_no_line_is_begun_when_the_money_is_gone(tmp_path):
    paid = {line: [{**turn, "dollars": 1.0} for turn in turns] for line, turns in BEAM.items()}
    events, state, _ = search(
        tmp_path / "s", paid, limits=Limits(dollars=6.0), candidates=3, beam=1, rounds=3, round_turns=2
    )
    assert len(kinds(events, "line")) == 3 and state.dollars == 6.0


def test_lessons_are_bounded_and_the_best_line_comes_first(tmp_path):
    script = {"1": [learn("x" * 20_000), FINISH], "2": [judge(5), learn("y" * 20_000), FINISH]}
    events, state, _ = search(tmp_path / "s", script, candidates=2)
    text = lessons_of(events, state, [2, 1])
    assert len(text) <= CHARACTERS + 2 and text.startswith("### Line 2") and "### Line 1" in text
    assert lessons_of([], state, [7]) == ""
