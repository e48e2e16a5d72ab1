"""Convolutions for sm_100a, whose windows TMA reads by im2col: what they compute, where they serve."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration as Tiles
from cutesmith.patterns.contraction.blackwell.legality import obstacles, refusals
from cutesmith.patterns.contraction.configurations import ContractionConfiguration
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.cutting.rewriting import with_tf32
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated_blackwell, load, move, normal
from tests.patterns.test_hopper_convolutions import (
    FLOAT32,
    LAST,
    LINE,
    SOLID,
    TURNED,
    UNEVEN,
    image,
    line,
    relu,
    solid,
    strided,
    turned,
    uneven,
    weights,
)

SM100 = parse_arch("sm_100a").sm
TILES = Tiles(128, 64, 64, 3, swapped=True)
CASES = {
    "channels_last": (relu, LAST, TILES),
    "joined": (relu, LAST, replace(TILES, joined=True)),
    "odd_channels": (relu, (image(2, 13, 9, 11, last=False), weights(40, 13, 3, 3), normal(40).bfloat16()), TILES),
    "uneven": (uneven, UNEVEN, replace(TILES, tile_n=128)),
    "few_channels": (solid, SOLID, replace(TILES, tile_k=16)),
    "half_lines": (
        strided,
        (image(2, 32, 9, 11), weights(40, 32, 3, 3), normal(40).bfloat16()),
        replace(TILES, tile_k=32),
    ),
    "turned": (turned, TURNED, TILES),
    "line": (line, LINE, TILES),
    "tf32": (strided, FLOAT32, replace(TILES, tile_k=32)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    function, inputs, tiles = CASES[name]
    plan = match(with_tf32(trace_function(function, inputs)))
    problem = plan.problem_for(tiles)
    assert not [*obstacles(problem, SM100), *refusals(problem, tiles, SM100)]
    with emulated_blackwell():
        found = load(plan.render(tiles), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    expected = function(*(value.double() for value in inputs))
    tolerance = {torch.bfloat16: 4e-3, torch.float16: 6e-4, torch.float32: 1e-3}[inputs[0].dtype]
    assert found.shape == expected.shape
    assert (found - expected).norm() < tolerance * expected.norm()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"joined": True}, ""),
        ({"swapped": False}, "rows of tiles of one block"),
        ({"pair": True, "tile_m": 256}, "rows of tiles of one block"),
        ({"tile_k": 128}, "more than a line"),
    ],
)
def test_refusals(change, message):
    plan = match(trace_function(relu, LAST))
    found = list(refusals(plan.problem, replace(TILES, **change), SM100))
    assert any(message in each for each in found) if message else not found


def test_convolutions_get_the_form_that_is_predicted_to_be_faster():
    large = (torch.empty(32, 256, 28, 28, dtype=torch.bfloat16).to(memory_format=torch.channels_last),)
    large += torch.empty(256, 256, 3, 3, dtype=torch.bfloat16), torch.empty(256, dtype=torch.bfloat16)
    found = match(trace_function(relu, large)).configurations("sm_100a")
    assert all(isinstance(c, Tiles) and c.swapped and not c.pair for c in found)
    exact = match(trace_function(relu, tuple(x.float() for x in large)))
    if not exact.problem.tf32:
        assert "no dimension left for parts" in " ".join(obstacles(exact.problem, SM100))
        assert isinstance(exact.configurations("sm_100a")[0], ContractionConfiguration)
