"""From a sentence to an accepted problem: scripted answers, a real transcript, real audits where one matters."""

from __future__ import annotations

import asyncio
import json

import pytest

from cutesmith.agent.budget import Limits
from cutesmith.agent.models.model import ModelError
from cutesmith.agent.models.scripted_model import ScriptedModel
from cutesmith.agent.problems.problem import accept_file, audit_text, describe
from cutesmith.agent.problems.problem_rules import complaints_about_inputs, complaints_about_problem
from cutesmith.agent.problems.request import MOST_TRIES, accept_request, is_untrusted
from cutesmith.agent.session import new_session, resumed_session
from cutesmith.agent.transcript import FILE
from cutesmith.audit.problem_audit import AuditVerdict
from cutesmith.errors import CandidateError, ContractError, UsageError
from cutesmith.problems.sources import resolve
from cutesmith.verdicts import ExitCode, Finding

REQUEST = "softmax over rows, fp32"
INPUTS = """\
def get_inputs(rows=4096, columns=4096):
    return [torch.randn(rows, columns, device="cuda"), torch.randn(columns, device="cuda")]


def get_input_sets():
    for rows, columns in ((1, 64), (33, 1000)):
        yield get_inputs(rows, columns)
"""
GOOD = f"import torch\n\n\ndef reference_fn(x, w):\n    return torch.softmax(x, dim=-1) * w\n\n\n{INPUTS}"
UNUSED = GOOD.replace(" * w", "")
FUNCTION = "import torch\n\n\ndef scale(x, w):  # the user's own\n    return x * w\n\n\nreference_fn = scale\n"


def write(text, name="write_problem"):
    return {"calls": [{"name": name, "input": {"text": text}}]}


def verdict(code=ExitCode.PASSED, summary="the problem can be used", **fields):
    return AuditVerdict(exit_code=code, summary=summary, path="problem.py", **fields)


class Judge:
    """Accepts what does not hold the word BAD; counts what it was asked."""

    def __init__(self):
        self.seen = []

    async def __call__(self, source):
        self.seen.append(source)
        if "BAD" not in source:
            return verdict(floor_us=1.5)
        found = Finding(
            rule="random", severity="error", line=3, column=0, message="draws random numbers", fix="Do not."
        )
        return verdict(ExitCode.USAGE, "draws random numbers. Do not.", findings=(found,))


def ask(folder, *turns, check=None, resume=False, limits=None, **about):
    """The accepted problem, the model and the judge; `about` are fields of the session's first event."""
    model, check = ScriptedModel({"0": turns}), check or Judge()
    about = {"request": REQUEST, **about}
    with resumed_session(folder) if resume else new_session(folder, **about) as session:
        session.limits = limits or Limits()
        return asyncio.run(accept_request(session, model, "sm_90a", check)), model, check


def events(folder):
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def test_the_verdict_goes_back_until_the_problem_passes(tmp_path):
    found, model, judge = ask(tmp_path / "s", write(GOOD + "# BAD\n"), {"text": "Hm."}, write(GOOD))
    assert found.source == GOOD and found.origin == "request" and found.audit["floor_us"] == 1.5
    assert judge.seen == [GOOD + "# BAD\n", GOOD]
    first, second, third = model.requests
    assert first.messages == [{"role": "user", "content": [{"type": "text", "text": REQUEST}]}]
    answer = second.messages[-1]["content"][0]
    assert answer["is_error"] and "error, line 3: draws random numbers. Do not." in answer["content"]
    assert "tool call" in third.messages[-1]["content"][0]["text"] and "kernel" not in third.messages[-1]["content"][0]
    assert [tool["name"] for tool in first.tools] == ["write_problem", "decline"]


def test_the_system_prompt_states_the_contract_and_is_the_same_every_turn(tmp_path):
    _, model, _ = ask(tmp_path / "s", write(GOOD + "# BAD\n"), write(GOOD))
    system = model.requests[0].system
    for word in ("sm_90a", "reference_fn", "get_input_sets", "TOLERANCE", "Triton", "write_problem", "decline"):
        assert word in system
    assert system == model.requests[1].system and "write_inputs" not in system


def test_no_turn_is_paid_twice_wherever_the_process_ended(tmp_path):
    turns = [write(GOOD + "# BAD\n"), {"text": "Hm."}, write(GOOD)]
    expected, _, _ = ask(tmp_path / "whole", *turns)
    lines = (tmp_path / "whole" / FILE).read_text().splitlines(keepends=True)
    for count in range(2, len(lines) + 1):
        folder = tmp_path / f"cut{count}"
        folder.mkdir()
        (folder / FILE).write_text("".join(lines[:count]))
        answered = sum('"kind": "reply"' in line for line in lines[:count])
        found, model, _ = ask(folder, *turns, resume=True)
        assert found == expected and [request.turn for request in model.requests] == list(range(answered + 1, 4))
        assert sum(event["kind"] == "message" for event in events(folder)) == 2  # the request, and the nudge


def test_a_request_that_is_no_kernel_is_declined_with_the_reason(tmp_path):
    declined = {"calls": [{"name": "decline", "input": {"reason": "It asks for Triton; ask for the function."}}]}
    for resume in (False, True):
        with pytest.raises(UsageError, match=r"does not ask for a kernel: It asks for Triton") as error:
            ask(tmp_path / "s", declined, resume=resume)
        assert error.value.exit_code == 2 and "give a problem file" in error.value.hint
    assert not any(event["kind"] in ("problem", "ended") for event in events(tmp_path / "s"))


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([{"text": "No.", "stop_reason": "refusal"}], "declined to go on"),
        ([{"text": "I am done."}] * 9, "called no tool in 4 turns"),
        ([{"stop_reason": "model_context_window_exceeded"}], "context window"),
    ],
)
def test_a_model_that_ends_without_a_problem_is_told_in_a_sentence(tmp_path, turns, said):
    with pytest.raises(UsageError, match=r"did not become a problem: .*" + said):
        ask(tmp_path / "s", *turns)


@pytest.mark.parametrize("reason", ["pause_turn", "max_tokens", "end_turn", "a_new_one"])
def test_any_other_stop_reason_goes_on(tmp_path, reason):
    found, model, _ = ask(tmp_path / "s", {"text": "…", "stop_reason": reason}, write(GOOD))
    assert found.source == GOOD and len(model.requests) == 2


def test_a_call_that_is_none_is_answered_and_counts_for_nothing(tmp_path):
    wrong = [
        {"calls": [{"name": "verify_kernel"}]},
        {"calls": [{"name": "write_problem", "input": {"source": GOOD}}]},
        {"calls": [{"name": "decline", "input": {"reason": " "}}]},
    ]
    found, model, judge = ask(tmp_path / "s", *wrong, write(GOOD))
    assert found.source == GOOD and judge.seen == [GOOD]
    assert all(request.messages[-1]["content"][0]["is_error"] for request in model.requests[1:])


def test_the_budget_and_the_tries_end_it(tmp_path):
    with pytest.raises(UsageError, match=r"2 of 2 turns"):
        ask(tmp_path / "budget", *[write("BAD")] * 3, limits=Limits(turns=2))
    with pytest.raises(UsageError, match=rf"no problem that passes the audit in {MOST_TRIES} tries: draws random"):
        ask(tmp_path / "tries", *[write(GOOD + "# BAD\n")] * 20)
    replies = [event for event in events(tmp_path / "tries") if event["kind"] == "reply"]
    assert len(replies) == MOST_TRIES


def test_a_model_that_cannot_be_had_and_an_audit_that_fails_are_no_fault_of_the_request(tmp_path):
    with pytest.raises(ModelError, match="has 0 turns"):
        ask(tmp_path / "none")

    async def broken(source):
        return verdict(ExitCode.INTERNAL, "this is a bug of cutesmith")

    with pytest.raises(CandidateError, match="bug of cutesmith"):
        ask(tmp_path / "bug", write(GOOD), check=broken)


def test_a_session_that_ended_before_its_problem_was_read_says_so(tmp_path):
    with pytest.raises(UsageError, match="ended before its problem was read"):
        ask(tmp_path / "s", write(GOOD), request="")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("import torch\n", "import torch\nimport triton\n"), "line 2: import of triton"),
        (GOOD.replace("get_input_sets", "sets"), "defines no get_input_sets"),
        (GOOD + "\n\ndef kernel_fn(x):\n    return x\n", "kernel_fn does not belong"),
        (GOOD + "\n\nreference_fn = torch.compile(reference_fn)\n", "torch.compile: the reference is eager"),
        (GOOD + "\n\nfrom torch.utils.cpp_extension import load\n", "cpp_extension"),
        (GOOD.replace("    return [", "    torch.manual_seed(0)\n    return ["), "torch.manual_seed"),
        ("def f(:", "syntax error"),
        ("", "defines no reference_fn and no get_inputs and no get_input_sets"),
    ],
)
def test_a_problem_of_a_model_is_plain_pytorch_with_input_sets(text, said):
    assert complaints_about_problem(GOOD) == []
    assert said in "\n".join(complaints_about_problem(text))


def test_only_the_inputs_of_a_function_are_written(tmp_path):
    function = {"source": FUNCTION, "origin": "own.py:scale"}
    stolen = f"def scale(x, w):\n    return x\n\n\n{INPUTS}"
    turns = [write(stolen, "write_inputs"), write(INPUTS, "write_inputs")]
    found, model, judge = ask(tmp_path / "s", *turns, request="", function=function)
    assert found.source.startswith(FUNCTION.rstrip()) and found.source.endswith(INPUTS)
    assert found.origin == "own.py:scale" and judge.seen == [found.source]
    assert "scale belongs to the file already" in model.requests[1].messages[-1]["content"][0]["content"]
    opening = model.requests[0].messages[0]["content"][0]["text"]
    assert "own.py:scale" in opening and FUNCTION.rstrip() in opening
    assert [tool["name"] for tool in model.requests[0].tools] == ["write_inputs", "decline"]
    assert "write_inputs" in model.requests[0].system and "# the user's own" not in model.requests[0].system


@pytest.mark.parametrize(
    ("about", "confined"),
    [
        ({"request": REQUEST, "function": {}}, True),
        ({"request": "", "function": {"source": FUNCTION, "origin": "own.py:scale"}}, True),
        ({"request": "", "function": {}, "argument": "problem.py", "confine_problem": True}, True),
        ({"request": "", "function": {}, "argument": "problem.py", "confine_problem": False}, False),
        ({"request": "", "function": {}, "argument": "problem.py"}, False),  # of an earlier version
    ],
)
def test_whether_the_problem_is_untrusted_is_known_from_the_session(tmp_path, about, confined):
    with new_session(tmp_path / "s", **about) as session:
        assert is_untrusted(session) is confined
    with resumed_session(tmp_path / "s") as session:
        assert is_untrusted(session) is confined


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{INPUTS}\n\nreference_fn = None\n", "reference_fn belongs to the file already"),
        (f"{INPUTS}\n\nscale = None\n", "scale belongs to the file already"),
        (f"{INPUTS}\n\ndel scale\n", "only functions, imports and constants"),
        (f"{INPUTS}\n\nscale.__code__ = None\n", "only functions, imports and constants"),
        (f"{INPUTS}\n\nglobals()['scale'] = None\n", "only functions, imports and constants"),
        (f"{INPUTS}\n\nModel = None\n", "Model belongs"),
        (f"import torch.nn as scale\n{INPUTS}", "scale belongs"),
        (INPUTS.replace("get_input_sets", "more"), "defines no get_input_sets"),
    ],
)
def test_what_is_added_changes_nothing_of_the_file(text, said):
    assert complaints_about_inputs(f"import torch\n{INPUTS}ROWS = 4\n", FUNCTION) == []
    assert said in "\n".join(complaints_about_inputs(text, FUNCTION))


def test_a_given_file_is_audited_described_or_refused(tmp_path):
    """Real audits: one file that passes, one whose input does not matter, and a session that is interrupted."""
    for name, text in (("good", GOOD), ("unused", UNUSED)):
        (tmp_path / f"{name}.py").write_text(text)

    async def all_three():
        accepted = await accept_file(resolve(str(tmp_path / "good.py")), "sm_90a")
        with pytest.raises(ContractError) as refused:
            await accept_file(resolve(str(tmp_path / "unused.py")), "sm_90a")
        sleepy = f"import time\nimport torch\ndef reference_fn(x, w):\n    time.sleep(600)\n{INPUTS}"
        task = asyncio.ensure_future(audit_text(sleepy, "sleepy", "sm_90a", timeout=600))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return accepted, refused.value

    accepted, refused = asyncio.run(all_three())  # and its threads end: nothing sleeps for 600 s
    assert accepted.source == GOOD and list(accepted.lines())[0] == "import torch"
    shown = "\n".join(describe(accepted.audit))
    for line in ("x  float32[4096, 4096]  67.1 MB", "floor: 33.56 µs", "also verified on: float32[1, 64], float32[64]"):
        assert line in shown
    assert refused.message == (
        f"{tmp_path}/unused.py: input 1 (w) does not change the result. Leave it out, or draw inputs for which it "
        "matters."
    )
