"""The best kernel is judged again before it is delivered; one that fails then is not, and the report says so."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from cutesmith.agent.closing import conclude, write_result
from cutesmith.agent.confirmation import MOST, confirm_best, refuted
from cutesmith.agent.outcome import RecordVerdict
from cutesmith.agent.session import new_session, resumed_session
from cutesmith.patterns.generation.target import Target
from cutesmith.report.session.session import render_session
from cutesmith.verb_process import VerbError
from tests.agent.events import VERIFY, timed

EMULATED = Target("sm_90a", None, "", emulated=True)

WRONG = {**VERIFY, "status": "wrong_result", "exit_code": 1, "summary": "case 7 differs"}
FULL = {"eager": 3.0, "torch.compile": 2.0}


class Judge:
    """Says of a kernel, by its text and stage, what it was told to say; anything else passes as it passed before."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    async def __call__(self, kernel, stage):
        self.asked.append(f"{stage} {kernel.text}")
        answer = self.answers.get(kernel.text, VERIFY if stage == "verify" else timed(kernel.median_us, speedups=FULL))
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(answer)
        return answer if isinstance(answer, dict) and answer["stage"] == stage else {**VERIFY, "seconds": 2.0}


@pytest.fixture
def session(tmp_path):
    with new_session(tmp_path / "s", request="r") as session:
        session.record("line", 1, parent=0, opening="begin", effects=[])
        yield session


def passed(session, text, median=None, verify=VERIFY):
    """Record a kernel that passed, with its quick time if there is one."""
    sha = hashlib.sha256(text.encode()).hexdigest()
    verdicts = [verify, *([timed(median)] if median else [])]
    effects = [RecordVerdict(sha, text, verdict) for verdict in verdicts]
    session.record("judged", 1, text="", effects=effects, seconds=0.0)


def confirm(session, judge, *, on_gpu=False, **options):
    asyncio.run(confirm_best(session, judge, timed=on_gpu, **options))
    return session.state.best()


def delivered(session):
    return (session.folder / "kernel.py").read_text()


def test_a_kernel_that_fails_again_is_not_delivered_and_the_next_best_is_asked(session):
    passed(session, "old"), passed(session, "new")
    judge = Judge(new=WRONG)
    assert confirm(session, judge).text == "old" == delivered(session)
    assert judge.asked == ["verify new", "verify old"] and session.state.best().confirmed
    verdict = conclude(session, EMULATED, problem="", model="m")
    assert verdict.confirmed and verdict.exit_code == 0 and len(verdict.refuted) == 1
    assert "case 7 differs" in verdict.refuted[0]
    assert "verified again with fresh draws; 1 that ranked before it failed when verified again" in verdict.summary
    write_result(session, verdict, render_session)
    page = (session.folder / "report.html").read_text()
    assert (
        "judged again" in page and "verified again at the end" in page and "that ranked before it failed then" in page
    )


def test_when_the_only_kernel_fails_again_nothing_is_delivered(session):
    passed(session, "only")
    assert confirm(session, Judge(only=WRONG)) is None and not (session.folder / "kernel.py").exists()
    verdict = conclude(session, EMULATED, problem="", model="m")
    assert verdict.exit_code == 1 and not verdict.confirmed and "case 7 differs" in verdict.summary


def test_what_was_confirmed_is_not_asked_again_by_a_resumed_session(session, tmp_path):
    passed(session, "a")
    confirm(session, Judge())
    session.transcript.__exit__()
    with resumed_session(tmp_path / "s") as resumed:
        judge = Judge()
        assert confirm(resumed, judge).confirmed and judge.asked == []


@pytest.mark.parametrize("answer", [VerbError("the process ended"), 30.0, {**VERIFY, "exit_code": 7, "status": "u"}])
def test_a_judge_without_an_answer_takes_nothing_away_and_confirms_nothing(session, answer):
    passed(session, "a")
    best = confirm(session, Judge(a=answer), seconds=0.2)
    assert best.text == "a" and best.grade and not best.confirmed and refuted(session) == []
    assert "verified again" not in conclude(session, EMULATED, problem="", model="m").summary
    assert session.events[-1]["text"] and session.events[-1]["effects"] == []


def test_a_pass_in_a_place_that_counts_less_is_no_confirmation(session):
    passed(session, "a")
    best = confirm(session, Judge(a={**VERIFY, "status": "verified on the emulated GPU"}))
    assert best.state == "verified" and not best.confirmed


def test_what_was_only_compiled_has_nothing_to_verify_again(session):
    passed(session, "a", verify={**VERIFY, "status": "compiled"})
    judge = Judge()
    assert confirm(session, judge).state == "compiled" and judge.asked == []


def test_on_a_gpu_the_full_benchmark_may_make_another_kernel_the_best_and_that_is_confirmed(session):
    passed(session, "a", 10.0), passed(session, "b", 11.0)
    judge = Judge(a=timed(12.0, speedups=FULL))
    assert confirm(session, judge, on_gpu=True).text == "b"
    assert judge.asked == ["benchmark a", "benchmark b", "verify b"]


def test_the_end_of_a_session_asks_about_so_many_kernels_and_no_more(session):
    for number in range(6):
        passed(session, str(number))
    judge = Judge(**{str(number): WRONG for number in range(6)})
    assert not confirm(session, judge).confirmed and len(judge.asked) == MOST["verify"]
    transcript = Path(session.folder / "transcript.jsonl").read_text().splitlines()
    assert sum("confirms" in json.loads(line) for line in transcript) == MOST["verify"]
