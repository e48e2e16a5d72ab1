"""Norms of float32: every sensible order of sums passes on every draw of values; a faulty one falls on every seed."""

from __future__ import annotations

import pytest
import torch

from cutesmith.judge.draws import values as drawn
from cutesmith.judge.draws.kinds import kind_of
from tests.judge.in_process import reference_of, said_of

LANES = 32
SHAPE = (2, 8, 32, 32)
WHOLE = torch.nn.functional


def by_lanes(rows, count=LANES):
    """Sums of rows, each lane adds one element after another, then the lanes add theirs."""
    lanes = rows.view(rows.shape[0], -1, count)
    total = torch.zeros(rows.shape[0], count)
    for step in range(lanes.shape[1]):
        total = total + lanes[:, step]
    while total.shape[1] > 1:
        total = total[:, ::2] + total[:, 1::2]
    return total


def in_chains(rows):
    """Sums of rows, 1024 elements one after another."""
    return by_lanes(rows, max(1, rows.shape[1] // 1024))


def two_passes(rows, sums, eps=1e-5):
    moved = rows - sums(rows) / rows.shape[1]
    return moved * (sums(moved * moved) / rows.shape[1] + eps).rsqrt()


def welford(rows, eps=1e-5):
    """Each lane keeps mean and squares of what it has seen; two of them are one as Chan has it."""
    lanes = rows.view(rows.shape[0], -1, LANES)
    mean, squares = torch.zeros(rows.shape[0], LANES), torch.zeros(rows.shape[0], LANES)
    for step in range(lanes.shape[1]):
        away = lanes[:, step] - mean
        mean = mean + away / (step + 1)
        squares = squares + away * (lanes[:, step] - mean)
    count = float(lanes.shape[1])
    while mean.shape[1] > 1:
        away = mean[:, 1::2] - mean[:, ::2]
        mean, squares = mean[:, ::2] + away / 2, squares[:, ::2] + squares[:, 1::2] + away * away * (count / 2)
        count *= 2
    return (rows - mean) * (squares / rows.shape[1] + eps).rsqrt()


def one_pass(rows):
    mean = by_lanes(rows) / rows.shape[1]
    return (rows - mean) * (by_lanes(rows * rows) / rows.shape[1] - mean * mean + 1e-5).rsqrt()


def in_bfloat16(rows):
    return two_passes(rows, lambda values: by_lanes(values).bfloat16().float())


HONEST = {
    "two passes by lanes": lambda rows: two_passes(rows, by_lanes),
    "two passes in chains": lambda rows: two_passes(rows, in_chains),
    "Welford": welford,
}
FAULTY = {
    "one pass": one_pass,
    "without eps": lambda rows: two_passes(rows, by_lanes, eps=0.0),
    "another eps": lambda rows: two_passes(rows, by_lanes, eps=1e-6),
    "sums in bfloat16": in_bfloat16,
    "one element more": lambda rows: two_passes(rows, lambda v: by_lanes(v) * (v.shape[1] / (v.shape[1] + 1))),
}


def grouped(norm, x, groups):
    return norm(x.reshape(x.shape[0] * groups, -1)).view(x.shape)


def of_channels(norm, x):
    rows = x.transpose(0, 1)
    return norm(rows.reshape(x.shape[1], -1)).view(rows.shape).transpose(0, 1).contiguous()


NORMS = {
    "group": ("torch.nn.functional.group_norm(x, 2)", lambda norm, x: grouped(norm, x, 2)),
    "layer": ("torch.nn.functional.layer_norm(x, x.shape[1:])", lambda norm, x: grouped(norm, x, 1)),
    "batch": ("torch.nn.functional.batch_norm(x, None, None, training=True)", of_channels),
    "instance": ("torch.nn.functional.instance_norm(x)", lambda norm, x: grouped(norm, x, x.shape[1])),
    "rows": ("torch.nn.functional.layer_norm(x, x.shape[-1:])", lambda norm, x: norm(x.reshape(-1, 32)).view(x.shape)),
    "in words": (
        "(x - x.mean((2, 3), keepdim=True)) / (x.var((2, 3), keepdim=True, unbiased=False) + 1e-5).sqrt()",
        lambda norm, x: grouped(norm, x, x.shape[1]),
    ),
}
DRAWS = {  # and whether elements are compared strictly there
    "one value": (drawn.one_value, False),
    "few values": (drawn.ties, False),
    "mixed sizes": (drawn.mixed_sizes, False),
    "scattered zeros": (drawn.zeros_scattered, False),
    "tiny values": (drawn.tiny, True),
    "large values": (drawn.large, True),
    "large offset": (drawn.offset, True),
    "negative offset": (drawn.negative_offset, True),
}


def violations(folder, formula, output_of, draws, seeds):
    """What is said of the outputs for each draw and seed."""
    reference = reference_of(folder, formula)
    for name in draws:
        change, strict = DRAWS[name]
        for seed in seeds:
            torch.manual_seed(seed)
            x = torch.randn(SHAPE)
            values = change(x, kind_of("x", x))
            yield (
                name,
                seed,
                said_of(reference, folder, values, output_of(values), derived=True, strict=strict).violation,
            )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("formula", "output_of"), NORMS.values(), ids=NORMS)
def test_an_honest_norm_of_equal_values_passes(tmp_path, formula, output_of):
    for norm in HONEST.values():
        said = violations(tmp_path, formula, lambda x, norm=norm: output_of(norm, x), ("one value",), range(2))
        assert [each for each in said if each[2]] == []


@pytest.mark.slow
@pytest.mark.parametrize("norm", HONEST.values(), ids=HONEST)
@pytest.mark.parametrize(("formula", "output_of"), NORMS.values(), ids=NORMS)
def test_an_honest_norm_passes_whatever_the_draw(tmp_path, formula, output_of, norm):
    at_offsets = norm is not HONEST["two passes in chains"]  # 1000 is 0.004 off there: PyTorch's means are not
    draws = [name for name in DRAWS if at_offsets or not name.endswith("offset")]
    said = violations(tmp_path, formula, lambda x: output_of(norm, x), draws, range(8))
    assert [each for each in said if each[2]] == []


@pytest.mark.slow
@pytest.mark.parametrize("norm", FAULTY.values(), ids=FAULTY)
@pytest.mark.parametrize(("formula", "output_of"), NORMS.values(), ids=NORMS)
def test_a_faulty_norm_falls_on_every_seed_of_some_draw(tmp_path, formula, output_of, norm):
    found = {}
    for name, _, violation in violations(tmp_path, formula, lambda x: output_of(norm, x), DRAWS, range(3)):
        found.setdefault(name, []).append(violation is not None)
    assert any(all(falls) for falls in found.values()), found
