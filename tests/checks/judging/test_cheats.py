"""The static rules, on the adversarial kernels and on look-alikes that break none."""

import sys
from pathlib import Path

import pytest

from cutesmith.checks.judging.cheats import find_cheats

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "evals"))
from selftest import specimens  # noqa: E402

HIDDEN = {"w1_hidden_op", "t2_hidden_thread", "t3_lazy", "t4_hidden_patch", "h1_hidden_patch", "h2_writes_descriptors"}
STATIC_RULES = ("W1", "W3", "W4", "T2", "T4", "H1", "H3", "H7")
ALL = specimens([])

KERNEL = """
import cutlass
import cutlass.cute as cute
import torch

@cute.kernel
def device_kernel(x: cute.Tensor):
    pass

def kernel_fn(x, weight=None):
{body}
"""


def rules(body, head=""):
    source = head + KERNEL.format(body="\n".join(f"    {line}" for line in body.splitlines()))
    return [finding.rule for finding in find_cheats(source, Path("kernel.py"))]


def test_every_rule_of_this_judge_has_a_cheat_and_a_look_alike():
    for rule in ("W1", "W3", "W4", "O1", "O2", "O3", "O6", "O13", "R1", "T2", "T3", "T4", "T8", "H1", "H2", "H3", "H4"):
        kinds = {specimen.honest for specimen in ALL if specimen.rule == rule}
        assert kinds == {True, False}, rule


@pytest.mark.parametrize("specimen", [s for s in ALL if s.honest], ids=lambda s: s.path.stem)
def test_honest_kernels_have_no_findings(specimen):
    assert find_cheats(specimen.path.read_text(), specimen.path) == []


@pytest.mark.parametrize(
    "specimen",
    [s for s in ALL if s.expect == "rejected" and s.rule in STATIC_RULES and s.path.stem not in HIDDEN],
    ids=lambda s: s.path.stem,
)
def test_open_cheats_are_found_by_their_rule(specimen):
    findings = find_cheats(specimen.path.read_text(), specimen.path)
    assert findings[0].rule == specimen.rule
    assert findings[0].line > 0 and findings[0].fix


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("return torch.nn.functional.softmax(x, -1)", "W1"),
        ("return x @ weight", "W1"),
        ("return torch.ops.aten.relu(x)", "W1"),
        ("return torch.Tensor.relu(x)", "W1"),
        ("f = torch.softmax\nreturn f(x, -1)", "W1"),
        ("return x.softmax(-1)", "W1"),
        ("import contextlib\nwith contextlib.suppress(Exception):\n    pass\nreturn x", "W3"),
        ("return get_inputs()[0]", "W4"),
        ("return __import__('torch').relu(x)", "H7"),
        ("return eval('x')", "H7"),
        ("return x.__class__.__dict__", "H1"),
        ("import gc\nreturn x", "H7"),
        ("torch.allclose = print\nreturn x", "T4"),
    ],
)
def test_one_line_cheats(body, rule):
    assert rule in rules(body)


@pytest.mark.parametrize(
    "body",
    [
        "y = torch.empty_like(x)\nreturn y.view(-1).unsqueeze(0).transpose(0, 1)",
        "y = torch.zeros(x.shape, dtype=torch.float32, device=x.device)\nreturn y",
        "table = {torch.bfloat16: cutlass.BFloat16}\nreturn table",
        "names = ['sum']\nnames.append('mean')\nreturn names.index('sum')",
        "stream = torch.cuda.current_stream().cuda_stream\nreturn stream",
        "if x.numel() == 0:\n    return torch.empty_like(x)\nraise ValueError(x.shape)",
    ],
)
def test_allocation_and_views_are_free(body):
    assert rules(body) == []


def test_torch_in_the_reference_and_under_main_is_free():
    source = KERNEL.format(body="    return x") + (
        "\ndef helper(x):\n    return torch.relu(x)\n\ndef reference_fn(x):\n    return helper(x)\n"
        "\nif __name__ == '__main__':\n    print(reference_fn(torch.ones(3)))\n"
    )
    assert find_cheats(source, Path("kernel.py")) == []


def test_a_helper_that_the_kernel_calls_is_not_free():
    source = KERNEL.format(body="    return helper(x)") + "\ndef helper(x):\n    return torch.relu(x)\n"
    assert [finding.rule for finding in find_cheats(source, Path("kernel.py"))] == ["W1"]


def test_a_file_without_a_device_function_is_no_cute_kernel():
    source = "import torch\ndef kernel_fn(x):\n    return torch.empty_like(x)\n"
    assert [finding.rule for finding in find_cheats(source, Path("kernel.py"))] == ["W1"]
