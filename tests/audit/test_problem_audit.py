"""Audits in a real confined child: what keeps a problem from being used, what is only remarked, what must pass."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from cutesmith.agent.problems.problem import describe
from cutesmith.audit.problem_audit import ADVICE, ProblemAuditor
from cutesmith.audit.problem_draws import SmallerFactories
from cutesmith.audit.requests import CountedWork
from cutesmith.audit.trials import Influence
from cutesmith.verdicts import ExitCode

TASKS = Path(__file__).resolve().parents[2] / "evals" / "tasks"
MATRIX = 'torch.randn(4096, 4096, device="cuda")'
SETS = "def get_input_sets():\n    yield [torch.{}]\n    yield [torch.{}]\n"
BF16 = 'torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)'
VECTOR = 'torch.randn(4096, device="cuda")'
DRAWS = f"def get_inputs(): return [{VECTOR}]\n"
MASK = 'torch.rand(4096, 4096, device="cuda") < 0.5'
COUNT = 'torch.randint(1, 9, (), device="cuda")'


@pytest.fixture(scope="module")
def auditor():
    with ProblemAuditor(timeout=60) as shared:
        yield shared


@pytest.fixture
def audit(auditor, write_file):
    """A function that audits a reference with the inputs given as expressions, or a whole file."""

    def run(reference: str, *inputs: str, more: str = ""):
        drawn = f"\ndef get_inputs():\n    return [{', '.join(inputs)}]\n" if inputs else ""
        return auditor.audit(write_file(f"import torch\n{reference}\n{drawn}{more}", "problem.py"))

    return run


def fn(text):
    """A reference in a line, written as a lambda is: "x, y: x + y"."""
    parameters, result = text.split(": ", 1)
    return f"def reference_fn({parameters}): return {result}"


def rules(verdict, severity=None):
    return [finding.rule for finding in verdict.findings if severity in (None, finding.severity)]


SQUARE = fn("x: x * x")


@pytest.mark.parametrize(
    ("reference", "inputs", "rule", "said"),
    [
        (fn("x: x + torch.rand_like(x)"), [MATRIX], "random", "draws random numbers"),
        (fn("x: torch.nn.functional.dropout(x, 0.5)"), [MATRIX], "random", "dropout"),
        (
            "def reference_fn(x):\n    torch.manual_seed(0)\n    return x + torch.rand_like(x)",
            [MATRIX],
            "random",
            "make what is random an input",
        ),
        (
            "calls = []\ndef reference_fn(x):\n    calls.append(1)\n    return x * len(calls)",
            [MATRIX],
            "random",
            "two results for the same inputs",
        ),
        (fn("x, y: 2 * x"), [MATRIX, VECTOR], "unused-input", "input 1 (y) does not change"),
        (fn("x, y: x + y - y"), [MATRIX, VECTOR], "unused-input", "input 1 (y)"),
        (fn("x, mask: x.masked_fill(mask & ~mask, 0)"), [MATRIX, MASK], "unused-input", "input 1 (mask)"),
        (fn("x: torch.ones_like(x)"), [MATRIX], "constant", "the same result"),
        (fn("x: torch.softmax(x, -1).sum(-1)"), [MATRIX], "constant", "the same result"),
        (fn("x: torch.log(x)"), [MATRIX], "nan", "output 0 is NaN in 50 %"),
        (fn("x: x / 0"), [MATRIX], "infinite", "output 0 is infinite everywhere"),
        (SQUARE, ['torch.randn(1 << 20, 1 << 20, device="cuda")'], "too-many-bytes", "more than the 60 GB"),
        (
            SQUARE,
            ['torch.randn(1 << 17, 1 << 17, device="cuda", dtype=torch.float8_e5m2)'],
            "too-large",
            "at smaller sizes: get_inputs raised NotImplementedError",
        ),
    ],
)
def test_what_is_no_function_of_all_its_inputs_is_refused(audit, reference, inputs, rule, said):
    verdict = audit(reference, *inputs)
    assert (verdict.exit_code, rules(verdict, "error")) == (ExitCode.USAGE, [rule])
    assert said.lower() in verdict.summary.lower() and verdict.summary.startswith("problem.py: ")


@pytest.mark.parametrize(
    ("reference", "inputs", "said"),
    [
        ("def reference_fn(x):\n    return x @ x[:3]", [MATRIX], "reference_fn raised RuntimeError in line 3"),
        ("def reference_fn(x): x.relu_()", [MATRIX], "reference_fn returned NoneType, not a tensor"),
        (fn("x, y: x"), [MATRIX], "does not take the 1 inputs"),
        (SQUARE, ["torch.randn(8, 8)"], "input 0 is on cpu"),
        (SQUARE, ["{1: 2}"], "input 0 is a dict"),
        (SQUARE, ["0.5"], "no tensor with elements"),
        (SQUARE, ['torch.randn(0, 7, device="cuda")'], "no tensor with elements"),
        (SQUARE, ["1 / 0"], "get_inputs raised ZeroDivisionError"),
        (f"{SQUARE}\ndef get_inputs(): return []", [], "returned no inputs"),
        (f"1 / 0\n{SQUARE}", [MATRIX], "ZeroDivisionError while running the file"),
        (SQUARE, [], "defines no get_inputs"),
        ("def reference_fn(x:", [MATRIX], "syntax error"),
        ("kernel_fn = None", [], "defines no reference_fn and no get_inputs"),
    ],
)
def test_a_broken_file_is_told_in_a_sentence(audit, reference, inputs, said):
    verdict = audit(reference, *inputs)
    assert verdict.exit_code == ExitCode.USAGE and said in verdict.summary and verdict.findings == ()


@pytest.mark.parametrize(
    ("reference", "inputs", "rule"),
    [
        (fn("x: x.relu_()"), [MATRIX], "changes-input"),
        (fn("x, eps: x * 2"), [MATRIX, "1e-5"], "unused-scalar"),
        (fn("x: torch.exp(20 * x)"), ['torch.randn(4096, 4096, device="cuda", dtype=torch.float16)'], "overflow"),
        (fn("x: x * 2, x.abs() >= 0"), [MATRIX], "constant-output"),
        (fn("x: torch.zeros_like(x).scatter(1, torch.topk(x, 4).indices, 1.0)"), [BF16], "ties"),
        (fn("x: x.roll(1, 0).gather(1, torch.argsort(x))"), [MATRIX], "ties"),
        (fn("x: x.roll(1, 0).gather(1, x.median(-1, keepdim=True).indices)"), [BF16], "ties"),
        ("def reference_fn(x):\n    assert x.dtype != torch.float64\n    return 2 * x", [MATRIX], "no-float64"),
        (SQUARE, ['torch.randn(64, 64, device="cuda")'], "tiny"),
        (SQUARE, ['torch.randn(1 << 17, 1 << 16, device="cuda", dtype=torch.float16)'], ""),
        (SQUARE, ['torch.randn(3 << 16, 1 << 16, device="cuda", dtype=torch.float16)'], "slow"),
    ],
)
def test_what_is_only_remarked(audit, reference, inputs, rule):
    verdict = audit(reference, *inputs)
    assert verdict.passed and verdict.status == "accepted" and rules(verdict) == ([rule] if rule else [])


def test_a_reference_with_weights_of_its_own_is_told_why_it_has_no_float64(audit):
    verdict = audit("W = torch.ones(64, 9)\ndef reference_fn(x): return x @ W", 'torch.randn(64, 64, device="cuda")')
    (found,) = [finding for finding in verdict.findings if finding.rule == "no-float64"]
    assert "(RuntimeError: expected m1 and m2 to have the same dtype" in found.message and "as inputs" in found.fix


@pytest.mark.parametrize(
    ("reference", "inputs"),
    [
        pytest.param(
            fn("x, y, mask: torch.where(mask, x, y)"),
            [MATRIX, MATRIX, 'torch.zeros(4096, 4096, device="cuda", dtype=torch.bool)'],
            id="x matters only where a mask is set that get_inputs leaves empty",
        ),
        pytest.param(
            fn("x, w, b: torch.nn.functional.layer_norm(x, x.shape[-1:], w, b)"),
            [MATRIX, 'torch.ones(4096, device="cuda")', 'torch.zeros(4096, device="cuda")'],
            id="weights as they are initialised",
        ),
        pytest.param(
            fn("x, target: torch.nn.functional.cross_entropy(x, target, reduction='none')"),
            [MATRIX, 'torch.full((4096,), 7, device="cuda")'],
            id="labels that are all equal",
        ),
        pytest.param(fn("x, n: x * n.item()"), [MATRIX, COUNT], id="a reference that needs values"),
        pytest.param(
            fn("q, k: torch.softmax(q @ k.transpose(-1, -2), -1)"),
            ['torch.randn(2, 8, 4096, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2)'],
            id="products",
        ),
        pytest.param(
            fn("x: torch.sort(x, stable=True)[1], x.argmax(-1), torch.topk(x, 4)[0]"),
            [BF16],
            id="equal values whose order is fixed, or shows in no result",
        ),
        pytest.param(
            "def reference_fn(x): return *torch.topk(x, 4), *x.median(-1)",
            [BF16],
            id="places that are returned, of which any of equal elements passes",
        ),
        pytest.param(fn("x: (x > 3).any(-1)"), [MATRIX], id="a bool that is nearly always the same"),
    ],
)
def test_an_honest_problem_is_accepted_without_a_word(audit, reference, inputs):
    verdict = audit(reference, *inputs)
    assert verdict.passed and verdict.findings == ()


def test_the_verdict_tells_of_full_size_and_of_what_was_tried(audit):
    sets = SETS.format("randn(33, 7, device='cuda'), 2.0", "randn(0, 4, device='cuda'), 2.0")
    verdict = audit(
        fn("x, alpha: (alpha * x).half()"),
        'torch.randn(1 << 16, 1 << 15, device="cuda"), 0.5',
        more=f"TOLERANCE = {{'rtol': 1e-2}}\n{sets}",
    )
    assert verdict.passed and verdict.seconds < 20
    described = {"name": "x", "dtype": "float32", "shape": [1 << 16, 1 << 15], "bytes": 1 << 33}
    assert verdict.inputs == (described, {"name": "alpha", "value": "0.5"})
    assert (verdict.input_bytes, verdict.output_bytes) == (1 << 33, 1 << 32)
    assert verdict.floor_us == pytest.approx((3 << 32) / 4e12 * 1e6, abs=0.01)
    assert verdict.tried == "float32[1, 32768], 0.5" and verdict.tolerance == {"rtol": 1e-2}
    assert verdict.sets == ("float32[33, 7], 2.0", "float32[0, 4], 2.0")


def test_ties_name_the_operation_and_whether_they_are_drawn(audit):
    route = "w, i = torch.topk(x.softmax(-1), 4)\n    return torch.zeros_like(x).scatter(1, i, w)"
    rare = audit(f"def reference_fn(x):\n    {route}", MATRIX).findings
    assert [finding.rule for finding in rare] == ["ties"] and "stable=True" in rare[0].fix
    assert "in which topk takes equal values, where values are equal, or NaN" in rare[0].message
    drawn = audit(fn("x: x.roll(1, 0).gather(1, torch.sort(x, descending=True)[1])"), BF16).findings
    assert "in which sort takes equal values, in what is drawn" in drawn[0].message


def test_the_sizes_that_a_file_declares_are_tried(audit):
    """A loop over as many steps as a sequence has."""
    loop = "    for step in x.unbind(0):\n        total = total * 0.5 + step.sum()\n    return total + x\n"
    reference = f"def reference_fn(x):\n    total = x.new_zeros(())\n{loop}"
    draws = "def get_inputs(steps=3000): return [torch.randn(steps, 64, device='cuda')]\n"
    verdict = audit(reference, more=draws + "EMULATED_SIZES = {'steps': 8}")
    assert verdict.passed and verdict.tried == "float32[8, 64]" and "slow-on-cpu" not in rules(verdict)
    wrong = audit(SQUARE, more=draws + "EMULATED_SIZES = [8]")
    assert wrong.exit_code == ExitCode.USAGE and "no dict" in wrong.summary


def test_draws_that_the_reference_refuses_are_told_apart(audit):
    reference = "def reference_fn(x, ids):\n    assert (x > -99).all()\n    return x[ids.clamp(max=200)]"
    verdict = audit(reference, MATRIX, 'torch.randint(4096, (4096,), device="cuda")')
    x, ids = verdict.kinds
    assert "negative offset" in x.left_out and "negative offset" not in x.drawn and "large offset" in x.drawn
    assert "large integers" in ids.drawn and "IndexError" in ids.left_out["whole range"]


def test_work_at_full_size_is_counted_or_declared(audit):
    product = audit(fn("x, y: (x.float() @ y.float()).to(x.dtype)"), BF16, BF16)
    assert product.work == CountedWork(3 * 2 * 4096**2, {"bfloat16": 2 * 4096**3})
    assert product.matrix_floor_us == pytest.approx(2 * 4096**3 / 989.4e6, abs=0.01)  # beside 25 us for its bytes
    declared = audit(SQUARE, MATRIX, more="ALGORITHMIC_FLOPS = 12\ndef ALGORITHMIC_BYTES(x): return 7 * x.shape[0]\n")
    assert declared.work == CountedWork(7 * 4096, {"float32": 12})
    needs_values = audit(fn("x, n: x * n.item()"), MATRIX, COUNT)
    assert needs_values.work.flops is None and needs_values.matrix_floor_us is None
    assert rules(audit(fn("x: x @ x"), 'torch.randn(1 << 15, 1 << 15, device="cuda")')) == ["slow"]


def test_every_input_set_is_tried(audit):
    refused = SETS.format("randn(32, 7, device='cuda')", "randn(33, 7, device='cuda')")
    verdict = audit(fn("x: x.view(-1, 16).sum(-1)"), MATRIX, more=refused)
    assert rules(verdict, "error") == ["refused"] and "get_input_sets()[1]" in verdict.summary
    other = 'def get_input_sets(): return [[torch.randn(8, 8, device="cuda", dtype=torch.float16)]]'
    assert rules(audit(SQUARE, MATRIX, more=other)) == ["other-outputs"]


def test_a_seed_inside_get_inputs_is_remarked(audit):
    seeded = f"def get_inputs():\n    torch.manual_seed(0)\n    return [{MATRIX}]\n"
    assert rules(audit(SQUARE, more=seeded)) == ["same-values"]


def test_a_reference_that_takes_one_size_only_is_tried_at_that_size(audit):
    verdict = audit(fn("x: x.view(8, 256, 1024).sum(0)"), 'torch.randn(2048, 1024, device="cuda")')
    assert verdict.passed and verdict.tried == "float32[2048, 1024]"


MODULE = """\
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        {parts}
    def forward(self, x):
        return {result}
def get_inputs():
    return [{drawn}]
def get_init_inputs():
    return [512]
"""


def test_parameters_of_a_module_are_inputs_that_need_not_matter(auditor, write_file):
    layers = "self.layers = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width))"
    parts = [layers, "self.spare = torch.nn.Parameter(torch.ones(width))"]
    source = MODULE.format(parts="\n        ".join(parts), result="self.layers(x)", drawn="torch.randn(65536, 512)")
    verdict = auditor.audit(write_file(source, "module.py"))
    assert verdict.passed and rules(verdict) == ["unused-state"]
    assert "spare" in verdict.findings[0].message and len(verdict.inputs) == 9


def test_a_module_keeps_its_parameters_and_draws_nothing_large(auditor, write_file):
    """17 GB of inputs, drawn on the CPU as KernelBench does."""
    parts, drawn = "self.convolution = torch.nn.Conv2d(32, 64, 3)", "torch.rand(2048, 32, 256, 256)"
    source = MODULE.format(parts=parts, result="torch.relu(self.convolution(x))", drawn=drawn)
    verdict = auditor.audit(write_file(source, "convolution.py"))
    assert verdict.passed and rules(verdict) == ["slow"] and verdict.seconds < 20
    assert verdict.tried == "float32[16, 32, 8, 8], float32[64, 32, 3, 3], float32[64]"
    assert verdict.outputs[0]["shape"] == [2048, 64, 254, 254]


def test_no_input_is_called_useless_once_the_time_is_over():
    base, other = [torch.ones(3), torch.ones(3)], [torch.zeros(3), torch.zeros(3)]
    hurried, patient = Influence(lambda x, y: x, seconds=0.0), Influence(lambda x, y: x)
    for influence in (hurried, patient):
        influence.watch(base, other)
    assert hurried.late and not hurried.of_inputs
    assert not patient.late and patient.of_inputs == {0} and patient.on_outputs == {0}


@pytest.mark.slow
def test_the_tasks_of_the_repository_pass_and_cost_little(auditor):
    tasks = sorted(TASKS.rglob("*.py"))[::9]
    begin = time.monotonic()
    verdicts = [auditor.audit(task) for task in tasks]
    assert len(tasks) >= 13 and [(v.path, v.findings) for v in verdicts if not v.passed or v.findings] == []
    assert time.monotonic() - begin < 2 * len(tasks)


def test_every_rule_says_what_to_do():
    assert all(severity in ("error", "warning") and fix.endswith(".") for severity, _, fix in ADVICE.values())


def test_factories_see_smaller_sizes():
    with SmallerFactories({4096: 64, 512: 8}):
        assert torch.randn(4096, 512, 3).shape == (64, 8, 3)
        assert torch.zeros((4096, 2)).shape == torch.empty(size=(4096, 2)).shape == (64, 2)
        assert torch.full((4096,), 512.0).tolist() == [512.0] * 64
        assert torch.randint(0, 512, (4096,)).max() < 8 and torch.randint(high=512, size=(3,)).max() < 8
        assert torch.arange(4096).shape == torch.randperm(4096).shape == (64,)
        assert torch.ones(2).new_zeros(4096, 5).shape == (64, 5)
        assert torch.tensor([4096.0]).item() == 4096.0
    assert torch.zeros(512).shape == (512,)


# The last ones end their child.


def test_a_file_that_kills_its_process_breaks_the_contract(auditor, write_file):
    dead = write_file(f"import os\nimport torch\ndef reference_fn(x): os._exit(3)\n{DRAWS}", "dead.py")
    verdict = auditor.audit(dead)
    assert verdict.exit_code == ExitCode.USAGE and "left the process with exit code 3" in verdict.summary


def test_an_audit_that_was_stopped_before_it_began_ends_at_once(write_file):
    with ProblemAuditor(timeout=60) as stopped:
        stopped.stop()
        begin = time.monotonic()
        assert not stopped.audit(write_file(f"import torch\n{SQUARE}\n{DRAWS}", "square.py")).passed
        assert time.monotonic() - begin < 20


def test_an_endless_reference_is_ended(write_file):
    slow = f"import time\nimport torch\ndef reference_fn(x):\n    while True: time.sleep(1)\n{DRAWS}"
    with ProblemAuditor(timeout=3) as impatient:
        verdict = impatient.audit(write_file(slow, "slow.py"))
        assert verdict.exit_code == ExitCode.TIMED_OUT
        assert verdict.summary.startswith("slow.py: reference_fn did not finish within 3 s (it slept or waited")
        assert "loop" in verdict.hint


def test_a_line_is_proposed_for_inputs_that_are_drawn_with_a_structure(audit):
    reference = fn("x, mask, positions, p, w: x.masked_fill(~mask, 0.0) * positions * p * w")
    square = 'torch.randn(2048, 2048, device="cuda")'
    inputs = [
        square,
        'torch.ones(2048, 2048, device="cuda", dtype=torch.bool).tril()',
        'torch.arange(2048, device="cuda")',
    ]
    inputs += ['torch.rand(2048, 2048, device="cuda")', 'torch.ones(2048, device="cuda")']
    wanted = {"mask": "causal", "positions": "arange", "p": "probability"}
    assert audit(reference, *inputs).domain == wanted
    assert audit(reference, *inputs, more=f"DOMAIN = {wanted}\n").domain == {}


def test_offsets_of_equal_parts_are_sorted_and_indices_may_be_declared_positive(audit):
    reference = fn("x, offsets, ids: x[ids].cumsum(0)[offsets[1:] - 1]")
    ids = 'torch.randint(0, 4096, (4096,), device="cuda")'
    inputs = ['torch.randn(4096, 512, device="cuda")', 'torch.arange(0, 4097, 64, device="cuda")', ids]
    assert audit(reference, *inputs).domain == {"offsets": "sorted", "ids": "positive"}


def test_a_domain_that_the_draws_contradict_breaks_the_contract(audit):
    verdict = audit(SQUARE, MATRIX, more='DOMAIN = {"x": "causal"}\n')
    assert verdict.exit_code == ExitCode.USAGE and "says that x is causal" in verdict.summary


def test_it_tells_what_the_judge_draws_beside_the_files_own_inputs_and_what_it_allows(audit):
    sets = "def get_input_sets():\n    yield [torch.randn(3, 8, device='cuda')]\n"
    verdict = audit(fn("x: torch.softmax(x, dim=-1)"), MATRIX, more=sets)
    (kind,) = verdict.kinds
    assert {"large offset", "NaN and Inf", "runs of -Inf", "`x` transposed"} <= set(kind.drawn)
    assert kind.left_out["squares above"] == "the reference takes exponentials"
    assert verdict.outputs[0]["rtol"] == 1e-4 and verdict.outputs[0]["atol_of_rms"]
    text = "\n".join(describe(verdict.to_dict()))
    assert "allowed: 0.0001 of each value + 2e-05 of their root mean square" in text
    assert "the judge also tries `x` (float) as: the same first elements, large offset," in text
