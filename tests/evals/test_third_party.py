"""The study of public sets: what it says of problems of each kind of file."""

from __future__ import annotations

import json

import pytest

from evals.studies.third_party import main

IN_PLACE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, places, values):
        x[places] = values
        return x

def get_inputs():
    return [torch.zeros(4096, 1024), torch.randint(0, 4096, (64,)), torch.ones(1024)]

def get_init_inputs():
    return []
"""
GROUPS = """
import json
import os
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x - y

def get_input_groups():
    with open(os.path.join(os.path.dirname(__file__), "minus.json")) as lines:
        return [[torch.randn(json.loads(line)["shape"]) for _ in range(2)] for line in lines]

def get_init_inputs():
    return []
"""
CALLS = """
import torch

def total(input, dim=None, *, out=None):
    return torch.linalg.svd(input).S if dim is None else torch.stack(input).sum(dim)

{line}

import torch

def test_total():
    x = torch.randn(8, 16, device="cuda")
    results = [total([x, x], 0), total([x, x], dim=1), total([x + 1, x], 0), total(x)]
    return [each.cpu() for each in results]

test_results = test_total()
"""


def _write(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(text)


@pytest.mark.slow
def test_problems_of_each_kind_of_file(tmp_path, capsys):
    """A function that changes an argument is tried on copies; inputs in groups have the first; a test its calls."""
    checkout, out = tmp_path / "checkout", tmp_path / "out"
    _write(checkout / "reference/index/put.py", IN_PLACE)
    _write(checkout / "reference/npukernelbench_level0/minus.py", GROUPS)
    (checkout / "reference/npukernelbench_level0/minus.json").write_text('{"shape": [3, 5]}\n{"shape": [9]}\n')
    _write(checkout / "data/TritonBench_T_v1/total.py", CALLS.replace("{line}", "#" * 146))
    sets = [word for kind in ("multikernelbench", "npukernelbench", "tritonbench") for word in (f"--{kind}", checkout)]
    assert main([*map(str, sets), "--out", str(out), "--verify"]) == 0
    texts = [text for path in out.glob("*.jsonl") for text in path.read_text().splitlines()]
    lines = {line["problem"]: line for line in map(json.loads, texts)}
    assert {name: (line["status"], line["verified"]) for name, line in lines.items()} == {
        "put": ("copies", "held"),
        "minus": ("drafted", "held"),
        "total#1": ("drafted", "held"),
        "total#2": ("drafted", "held"),
        "total#3": ("refused", ""),  # the third call is another with the same shapes
    }
    assert lines["put"]["sizes"] != "whole" and "in place" in lines["put"]["reason"]
    assert "svd" in lines["total#3"]["reason"] and lines["total#1"]["predicted_us"] > lines["total#1"]["floor_us"]
    assert "| tritonbench | 3 | 2 | 0 | 1 |" in capsys.readouterr().out
