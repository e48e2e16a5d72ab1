"""Kernels of functions with options: right for the options that they were written for, and refusing others."""

from __future__ import annotations

import pytest
import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.tracing.variants import variants_of
from cutesmith.recording.facade import cuda_as_cpu
from tests.judge.in_process import ShortJudge, verdict_here
from tests.patterns.running import drafted, load

STEP = """
    found = []
    for p, g, m in zip(parameters, gradients, moments):
        m = beta * m + (1 - beta) * g
        found += [p - lr * (m + decay * p if decay > 0 else m), m]
    return tuple(found)
"""
CASES = {
    "sum": ("x, dim, keepdim, scale", "return x.sum(dim, keepdim=keepdim) * scale", "[f(6, 40), 1, True, 0.5]"),
    "cat": ("tensors, dim", "return torch.cat(tensors, dim)", "[[f(3, 8), f(2, 8), f(1, 8)], 0]"),
    "pad": (
        "x, pad, mode, value",
        "return F.pad(x, pad, mode=mode, value=value)",
        "[f(4, 30), (2, 3), 'constant', 1.5]",
    ),
    "gelu": ("x, approximate", "return F.gelu(x, approximate=approximate)", "[f(700), 'tanh']"),
    "permute": ("x, dims", "return x.permute(dims).contiguous()", "[f(4, 6, 10), (2, 0, 1)]"),
    "split": (
        "x, sections, dim",
        "return tuple(part * 2 for part in torch.split(x, sections, dim))",
        "[f(12, 10), [3, 7], 1]",
    ),
    "layer norm": (
        "x, shape, weight, bias, eps",
        "return F.layer_norm(x, shape, weight, bias, eps)",
        "[f(6, 64), [64], f(64), None, 1e-5]",
    ),
    "scatter": (
        "x, index, source, reduce",
        "return x.scatter_reduce(0, index, source, reduce)",
        "[f(20), torch.randint(20, (50,), device='cuda'), f(50), 'sum']",
    ),
    "step": (
        "parameters, gradients, moments, lr, beta, decay",
        STEP,
        "[[f(40), f(9)], [f(40), f(9)], (f(40), f(9)), 0.1, 0.9, 0.01]",
    ),
    "dtype": ("x, dtype", "return (x * 2).to(dtype)", "[f(300), torch.float16]"),
}


def problem(name: str) -> str:
    parameters, body, inputs = CASES[name]
    return (
        f"import torch\nimport torch.nn.functional as F\n\n\ndef reference_fn({parameters}):\n    {body.strip()}\n\n\n"
        f"def f(*shape):\n    return torch.randn(shape, device='cuda')\n\n\ndef get_inputs():\n    return {inputs}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_kernels_with_options_are_verified(write_file, name):
    path = write_file(problem(name))
    path.write_text(drafted(path))
    assert f"\ndef kernel_fn({CASES[name][0]}):\n" in path.read_text()
    verdict = verdict_here(path, judge=ShortJudge, seeds=1)
    assert verdict.exit_code == 0, verdict.summary


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("sum", {1: 0}, "written for dim=1; generate another for dim=0"),
        ("sum", {2: False}, "written for keepdim=True; generate another for keepdim=False"),
        ("gelu", {1: "none"}, "written for approximate='tanh'; generate another for approximate='none'"),
        ("permute", {1: (0, 2, 1)}, r"written for dims=\(2, 0, 1\); generate another for dims=\(0, 2, 1\)"),
        ("layer norm", {3: torch.ones(64)}, "written for bias=None; generate another"),
        ("cat", {0: [torch.ones(3, 8)] * 2}, "written for 3 items in tensors, not 2"),
        ("dtype", {1: torch.bfloat16}, "written for dtype=torch.float16; generate another for dtype=torch.bfloat16"),
    ],
)
def test_a_held_option_of_another_value_is_refused_before_any_launch(write_file, tmp_path, name, change, message):
    path = write_file(problem(name))
    text = drafted(path)
    with cuda_as_cpu():
        inputs = load(text, tmp_path).get_inputs()
    for place, value in change.items():
        inputs[place] = value
    with emulated_device("sm_90a") as device, pytest.raises(ValueError, match=message):
        load(text, tmp_path).kernel_fn(*inputs)
    assert not device.launches


def test_numbers_that_decide_are_held_and_others_stay_free():
    def function(x, dim, eps, positive, scale):
        found = x / (x.abs().sum(dim, keepdim=True) + eps)
        return found.relu() * scale if positive else found

    call = trace_function(function, [torch.ones(4, 8), 1, 1e-6, True, 2.0]).call
    assert dict(call.held) == {1: "1", 3: "True"} and call.free == ("x", "eps", "scale")
    assert trace_function(lambda x, scale: x * scale, [torch.ones(4), 2.0]).call is None


def test_sets_with_other_options_are_refused_and_numbers_choose_a_variant():
    x = torch.ones(4, 8)
    with pytest.raises(UnmatchedError, match="options of this function have other values"):
        variants_of(lambda x, mode: x * 2 if mode == "twice" else x, [[x, "twice"], [x, "once"]])
    with cuda_as_cpu(fake=True):
        found = variants_of(lambda x, dim, mode: x.sum(dim), [[x, 0, "a"], [x, 1, "a"]])
    assert {*found.graphs} == {(0,), (1,)}
    assert all(graph.call.free == ("x", "dim") for graph in found.graphs.values())
