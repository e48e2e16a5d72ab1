"""What a line of work is told before its first turn: the floor, the machine, examples, which tools there are."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from cutesmith.agent.budget import Limits
from cutesmith.agent.opening import SHOWN_LINES, nearest_examples, open_line
from cutesmith.agent.session import new_session
from cutesmith.agent.session_state import TIE, JudgedKernel
from cutesmith.agent.texts.floor_text import floor_text
from cutesmith.agent.texts.manifest import ATTENTION, CONTRACT, PRODUCTS, REDUCTIONS, WORKFLOWS, fitting_workflows
from cutesmith.agent.texts.prompting import render_prompt, system_prompt
from cutesmith.devices import Device
from cutesmith.patterns.generation.target import Target

EMULATED = Target("sm_90a", None, "nothing was timed: this machine has no GPU", emulated=True)
H200 = Target("sm_90a", Device(0, "NVIDIA H200", (9, 0), "580.1"))
COPY = {"work": {"bytes": 426_000_000, "flops": {}}}
PRODUCT = {"work": {"bytes": 426_000_000, "flops": {"bfloat16": 7_140_000_000_000}}}


@pytest.mark.parametrize(
    ("audit", "target", "words"),
    [
        (COPY, H200, ["426 MB", "100 µs at 4.26 TB/s, measured on an H200; bytes set it."]),
        (PRODUCT, H200, ["7140 GFLOP of bfloat16 products", "10,000 µs at 714 TFLOP/s", "flops set it"]),
        (COPY, EMULATED, ["100 µs", "There is no GPU here: this is a H200's, usual for sm_90a."]),
        (COPY, Target("sm_80", None, "", emulated=True), ["208.9 µs at 2.04 TB/s, of the data sheet of an A100"]),
        (
            COPY,
            Target("sm_120a", None, "", emulated=True),
            ["How fast sm_120a copies and multiplies stands in no table"],
        ),
        (COPY, Target("sm_90a", Device(0, "NVIDIA H100 PCIe", (9, 0), "1")), ["How fast NVIDIA H100 PCIe copies"]),
        ({"work": {"bytes": 1, "flops": {"int4": 5}}}, H200, ["Products of int4 have no rate in the table"]),
        ({"work": {"bytes": 1, "flops": None}}, H200, ["Its operations could not be counted without values."]),
    ],
)
def test_the_floor_is_told_with_where_its_rates_are_from(audit, target, words):
    text = floor_text(audit, target)
    assert all(word in text for word in words), text
    assert text in render_prompt("opening", **opening(floor=text))


def opening(**values):
    given = {"draft": None, "unmatched": "", "examples": [], "lessons": "", "floor": "", "number": 1, "of": 1}
    given |= {"source": "", "limits": ""}
    return {**given, **values}


def test_a_problem_of_an_earlier_version_has_no_floor():
    assert floor_text({}, H200) == "" and "floor" not in render_prompt("opening", **opening())


def test_examples_that_can_be_executed_here_come_first(tmp_path):
    with new_session(tmp_path / "s", request="r") as session:
        here = asyncio.run(nearest_examples(session, "gemm bias gelu bf16 hopper", EMULATED))
        there = asyncio.run(nearest_examples(session, "gemm bias gelu bf16 hopper", H200))
    assert len(here) == len(there) == 4
    assert here == there and there[0]["fit"] == "native" and "wgmma" in there[0]["features"]
    ranks = [example["fit"] not in ("native", "runs") for example in there]
    assert ranks == sorted(ranks)


def test_where_libraries_fill_the_list_one_of_ours_is_in_it(tmp_path):
    with new_session(tmp_path / "s", request="r") as session:
        examples = asyncio.run(nearest_examples(session, "sliding window attention", EMULATED))
    assert [example["meets_contract"] for example in examples] == [False, False, False, True]


def test_a_line_that_begins_with_nothing_is_shown_an_example_and_its_limits(tmp_path):
    with new_session(tmp_path / "s", request="r") as session:
        session.limits = Limits(turns=40, dollars=2.5, seconds=1800)
        examples = asyncio.run(nearest_examples(session, "softmax of rows", EMULATED))
        text = open_line(session, 1, examples=examples)["opening"]
        with_draft = open_line(session, 2, examples=examples, start=JudgedKernel("sha", "x = 1", 0, 1))["opening"]
    shown = next(example for example in examples if example["meets_contract"] and example["lines"] <= SHOWN_LINES)
    assert f"# {shown['id']}\n" in text and "def kernel_fn(" in text and "def kernel_fn(" not in with_draft
    limits = "after 40 answers on a line, or 2.5 dollars in all, or 30 minutes in all."
    assert limits in text and limits in with_draft
    assert Limits(turns=None).told() == ""


PROBLEMS = {
    "def reference_fn(x, w): return torch.relu(x @ w)": (PRODUCTS, ATTENTION),
    "def reference_fn(x): return x.softmax(-1)": (REDUCTIONS, ATTENTION),
    "def reference_fn(q, k, v): return F.scaled_dot_product_attention(q, k, v)": (ATTENTION, REDUCTIONS),
}
WHOLE_PROMPT = 16_571  # characters that the prompt had with the whole manifest and a table of scripts and tools


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_system_prompt_has_the_contract_and_only_workflows_that_fit(problem):
    prompt = system_prompt(problem, "", EMULATED)
    fits, foreign = PROBLEMS[problem]
    assert f"## {CONTRACT}" in prompt and f"## {fits}" in prompt and f"## {foreign}" not in prompt
    assert len(prompt) - len(problem) < 0.5 * WHOLE_PROMPT
    assert TIE in prompt and "Nothing is timed here." in prompt
    assert "227 KB of shared memory" in prompt and "no compute-sanitizer" in prompt
    assert str(Path.home()) not in prompt.split("## The problem")[0]


def test_the_system_prompt_names_tools_where_the_manifest_names_scripts():
    prompt = system_prompt("def reference_fn(x): ...", "", EMULATED)
    assert fitting_workflows("def reference_fn(x): ...") == tuple(WORKFLOWS)
    assert set(re.findall(r"\b[\w/]+\.py\b", prompt)) <= {"kernel.py"}
    named = set(re.findall(r"`([a-z]+_[a-z]+)[ `]", prompt)) - {"kernel_fn", "get_inputs", "reference_fn"}
    assert {"search_references", "find_example", "check_kernel", "read_notes"} <= named
