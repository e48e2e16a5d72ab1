"""The static rules, on the adversarial kernels and on similar ones that break none."""

import re
from pathlib import Path

import pytest

from cutesmith.evals.selftest.specimens import adversarial_folder, specimens
from cutesmith.judge.cheats import find_cheats

STATIC_RULES = ("W1", "W2", "W3", "W4", "T2", "T4", "T5", "H1", "H3", "H6", "H7")
ALL = specimens(adversarial_folder())

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


@pytest.mark.parametrize("specimen", [s for s in ALL if s.honest], ids=lambda s: s.path.stem)
def test_honest_kernels_have_no_findings(specimen):
    assert find_cheats(specimen.path.read_text(), specimen.path) == []


@pytest.mark.parametrize("rule", STATIC_RULES)
def test_each_static_rule_finds_a_kernel_of_its_own(rule):
    """Others of the same row hide from it and are met at run time: `cutesmith eval selftest` shows them all."""
    cheats = [s for s in ALL if s.expect == "rejected" and s.rule == rule]
    firsts = [findings[0] for s in cheats if (findings := find_cheats(s.path.read_text(), s.path))]
    found = [finding for finding in firsts if finding.rule == rule]
    assert found and all(re.match(r"\w+\.py:\d+: .+; .+", finding.text) for finding in found)


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
        ("import socket\nreturn x", "H6"),
        ("return torch.ctypes.string_at(x.data_ptr())", "H7"),
        ("from cuda.bindings import driver\ndriver.cuLaunchKernel(x)\nreturn x", "W2"),
        ("from cuda.bindings import driver as d\nd.cuCtxSetLimit(d.CUlimit(6), 1)\nreturn x", "T5"),
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
        "from cuda.bindings import driver as cuda\nreturn cuda.CUstream(torch.cuda.current_stream().cuda_stream)",
        "side = torch.cuda.Stream()\nside.wait_stream(torch.cuda.current_stream())\nreturn side",
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
