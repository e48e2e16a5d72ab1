"""Recurrent layers on the emulated GPU, beside PyTorch's in float64: kinds, directions, clusters, what is refused."""

from __future__ import annotations

import pytest
import torch

from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.graph.recurrent_steps import MOST_STEPS, MOST_WEIGHTS
from cutesmith.patterns.match import plan_kernel, whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.recurrent import check, launches
from tests.patterns.running import emulated, exactly, load, move, normal

SLOW = pytest.mark.slow
KINDS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
HALVES = (torch.float16, torch.bfloat16)


def network(
    kind: str,
    shape=(5, 3, 6),
    units: int = 20,
    *,
    layers: int = 1,
    both_ways: bool = False,
    biases: bool = True,
    batch_first: bool = False,
    starts: bool = True,
    dtype: torch.dtype = torch.float32,
):
    """A recurrent network, and its arguments: the input, the first states, the weights of every layer and direction."""
    ways, states = 1 + both_ways, (1 + (kind == "lstm")) * starts
    batch = shape[0 if batch_first else 1]
    args = [
        normal(*shape, dtype=dtype),
        *(normal(layers * ways, batch, units, seed=s, dtype=dtype) for s in range(states)),
    ]
    rows, weights = KINDS[kind] * units, list[torch.Tensor]()
    for at in range(layers * ways):
        width = shape[-1] if at < ways else units * ways
        for seed, size in enumerate([(rows, width), (rows, units), *([(rows,), (rows,)] if biases else [])]):
            weights.append(normal(*size, seed=10 * at + seed, dtype=dtype) / units**0.5)
    cell = getattr(torch, kind)

    def function(x, *rest):
        given = rest[:states] or [x.new_zeros(layers * ways, batch, units) for _ in range(1 + (kind == "lstm"))]
        start = tuple(given) if kind == "lstm" else given[0]
        return cell(x, start, list(rest[states:]), biases, layers, 0.0, False, both_ways, batch_first)

    return function, (*args, *weights)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_layer(kind, tmp_path):
    check(*network(kind), tmp_path)


@SLOW
@pytest.mark.parametrize("kind", KINDS)
def test_layers_in_both_directions_share_a_launch(kind, tmp_path):
    source = check(*network(kind, layers=2, both_ways=True, batch_first=True), tmp_path)
    assert source.count("in two directions") == 2


@SLOW
@pytest.mark.parametrize(
    "settings", [(4, 8, 1, 2, 1), (2, 4, 2, 2, 1), (8, 16, 4, 1, 2), (8, 32, 4, 8, 1), (1, 8, 2, 2, 1), (2, 8, 1, 4, 2)]
)
def test_units_are_shared_by_blocks_of_a_cluster(settings, tmp_path):
    blocks, lanes, per, rows, groups = settings
    function, inputs = network("lstm", (4, 5, 6), units=70)
    source = check(function, inputs, tmp_path, blocks=blocks, lanes=lanes, per=per, rows=rows, groups=groups)
    assert ("store_async_dsmem" in source) == (blocks > 1)


@SLOW
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("settings", [(9, 16, 2, 2, 1), (18, 8, 1, 1, 4), (10, 32, 4, 1, 2)])
def test_units_are_shared_by_all_blocks(kind, settings, tmp_path):
    blocks, lanes, per, rows, groups = settings
    function, inputs = network(kind, (4, 5, 6), units=70, both_ways=kind == "gru", starts=rows > 1)
    settings = {"blocks": blocks, "lanes": lanes, "per": per, "rows": rows, "groups": groups}
    assert "cooperative=True" in check(function, inputs, tmp_path, calls=2, **settings)


@SLOW
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_states_that_nobody_gave_are_zero(kind, tmp_path):
    check(*network(kind, starts=False, biases=False), tmp_path)


@SLOW
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_layers_of_16_bits(kind, dtype, tmp_path):
    check(*network(kind, dtype=dtype), tmp_path, within=0.01 if dtype is torch.bfloat16 else 2e-3)


@SLOW
@pytest.mark.parametrize(("arch", "clusters"), [("sm_80", {1}), ("sm_100a", {1, 2, 4, 8})])
def test_other_architectures(arch, clusters, tmp_path):
    function, inputs = network("gru", units=40)
    (layer,) = launches(plan_kernel(trace_function(function, inputs), arch))
    assert {c.blocks for c in layer.configurations(arch)} <= clusters
    check(function, inputs, tmp_path, arch=arch, blocks=max(clusters) // 2 or 1)


@SLOW
@pytest.mark.parametrize(("arch", "blocks"), [("sm_80", 1), ("sm_90a", 8)])
def test_weights_may_be_read_in_each_step(arch, blocks, tmp_path):
    function, inputs = network("lstm", (3, 2, 6), units=132)
    groups = blocks // 8 + 1
    check(function, inputs, tmp_path, arch=arch, blocks=blocks, lanes=4, per=1, rows=1, groups=groups, held=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "units", "is_grid", "is_held"),
    [("lstm", 64, False, True), ("gru", 1024, True, True), ("lstm", 1200, False, False)],
)
def test_a_layer_lies_where_it_has_room(kind, units, is_grid, is_held):
    function, inputs = network(kind, (MOST_STEPS + 1, 8, 6), units=units)
    first = launches(whole_or_cut(trace_function(function, inputs)))[0].configurations()[0]
    assert (first.is_grid, first.held) == (is_grid, is_held)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("units", "directions"), [(512, [2]), (1024, [1, 1])])
def test_directions_share_a_launch_that_has_room_for_both(units, directions):
    function, inputs = network("lstm", (MOST_STEPS, 16, 6), units=units, both_ways=True)
    found = launches(whole_or_cut(trace_function(function, inputs)))
    assert [len(each.problem.layers) for each in found] == directions
    assert all(each.configurations()[0].held for each in found)


@SLOW
def test_one_kernel_serves_other_steps_and_batches(tmp_path):
    function, inputs = network("gru", batch_first=True)
    plan = plan_kernel(trace_function(function, inputs), "sm_90a", free_sizes=True)
    kernel = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
    with emulated("sm_90a"):
        for steps, rows in ((5, 3), (9, 1), (2, 7)):
            x, first = normal(rows, steps, 6), normal(1, rows, 20)
            args = (x, first, *inputs[2:])
            for ours, wanted in zip(kernel(*map(move, args)), exactly(function, args), strict=True):
                torch.testing.assert_close(ours.cpu(), wanted, rtol=0, atol=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("wanted", [2, 1, 0])
def test_results_that_nobody_wants_are_not_stored(wanted):
    function, inputs = network("lstm")
    (layer,) = launches(whole_or_cut(trace_function(lambda *args: function(*args)[wanted], inputs)))
    assert [node.shape for node in layer.graph.outputs] == [(3, 20) if wanted == 2 else (5, 3, 20)]


@SLOW
@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_says_what_pytorch_does(kind):
    function, inputs = network(kind, layers=2, both_ways=True)
    for ours, wanted in zip(
        interpret(trace_function(function, inputs), inputs), exactly(function, inputs), strict=True
    ):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-6)


@SLOW
def test_a_long_network_has_as_many_launches_as_a_short_one():
    """Layers of 512 steps, as KernelBench has them: unrolled they were thousands of launches, or refused."""
    short, long = (
        whole_or_cut(trace_function(*network("gru", (steps, 10, 128), units=256, layers=6))) for steps in (4, 512)
    )
    assert len(long.launches) == len(short.launches) < 20
    assert all(layer.configurations()[0].blocks == 8 for layer in launches(long))
    assert H200.seconds(long) < 6 * 512 * 1.5e-6


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "change",
    [
        {"shape": (1, 3, 6)},
        {"units": 1 + int((MOST_WEIGHTS / 4) ** 0.5), "shape": (2, 3, 6)},
        {"dtype": torch.float64},
    ],
)
def test_other_networks_are_unrolled(change):
    assert not launches(whole_or_cut(trace_function(*network("lstm", **{"units": 8, "shape": (3, 3, 6), **change}))))
