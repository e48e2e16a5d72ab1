"""Products of float8 with scales of blocks: found in graphs however they are said, and computed on the emulated GPU."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.hopper.legality import obstacles, refusals
from cutesmith.patterns.contraction.hopper.proposals import proposals
from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.graph.attributes import Blocks
from cutesmith.patterns.graph.block_scales import with_block_scales
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.tracing.variants import variants_of
from tests.patterns.interpret import interpret
from tests.patterns.running import emulated_hopper, load, move, normal

SM90 = parse_arch("sm_90a").sm
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SHARED = Tiles(128, 64, 128, 3, promoted=True, columns=64)
FEW = Tiles(64, 16, 128, 3, warpgroups=1, columns=16, swapped=True, promoted=True)


def widened(scales, rows, columns):
    return scales.repeat_interleave(rows, -2).repeat_interleave(columns, -1)


def in_turns(scales, times):
    return scales[:, None, :].expand(-1, times, -1).reshape(scales.shape[0], -1)


def repeated(x, w, rows, blocks):
    return ((x.float() * widened(rows, 1, 128)) @ (w.float() * widened(blocks, 128, 128)).mT).bfloat16()


def viewed(x, w, rows, blocks):
    (m, k), n = x.shape, w.shape[0]
    left = (x.float().view(m, k // 128, 128) * rows[:, :, None]).view(m, k)
    right = (w.float().view(n // 128, 128, k // 128, 128) * blocks[:, None, :, None]).view(n, k)
    return torch.relu(left @ right.t()).half()


def kept_apart(x, w, rows, blocks):
    """DeepSeek's layouts: x (m, blocks, 128), its scales (blocks, m), and w (outputs, 128, blocks, 128)."""
    left = (x.float() * rows.t().unsqueeze(-1)).flatten(1)
    right = w.float() * blocks.t()[:, None, :, None]
    return (left @ right.flatten(2).flatten(0, 1).t()).bfloat16()


def both_by_lines(x, w, rows, columns):
    return ((x.float() * widened(rows, 1, 64)) @ (w.float() * widened(columns, 1, 64)).t()).bfloat16()


def one_side(x, w, rows, number):
    return ((x.float() * rows) @ (w.float() * number).t()).bfloat16()


def inputs_of(m, n, k, *scales, left=E4M3, right=E4M3):
    factors = normal(*m, k).to(left), normal(*n, k, seed=1).to(right)
    return *factors, *(normal(*s, seed=at).abs() + 0.5 for at, s in enumerate(scales, 2))


def deepseek(m, outputs, blocks):
    x, w, rows, scales = inputs_of((m,), (outputs * 128,), blocks * 128, (blocks, m), (blocks, outputs))
    return x.view(m, blocks, 128), w.view(outputs, 128, blocks, 128), rows, scales


# Edges are cut, there are more tiles than blocks that share operands, and scales change within a tile and along k.
CASES = {
    "repeated": (repeated, inputs_of((200,), (256,), 384, (200, 3), (2, 3)), SHARED),
    "viewed": (viewed, inputs_of((136,), (384,), 256, (136, 2), (3, 2), right=E5M2), replace(SHARED, tile_n=192)),
    "kept_apart": (kept_apart, deepseek(70, 2, 3), replace(SHARED, cluster_m=2)),
    "split": (repeated, inputs_of((40,), (128,), 512, (40, 4), (1, 4)), replace(SHARED, split=2)),
    "few_rows": (repeated, inputs_of((5,), (256,), 384, (5, 3), (2, 3)), replace(FEW, split=2)),
    "by_lines": (both_by_lines, inputs_of((70,), (80,), 192, (70, 3), (80, 3)), replace(SHARED, tile_k=64)),
    "one_side": (one_side, inputs_of((70,), (80,), 272, (70, 1), (1, 1)), SHARED),
    "batch": (repeated, inputs_of((2, 40), (2, 128), 256, (2, 40, 2), (2, 1, 2)), SHARED),
}


def plan_of(function, inputs) -> ContractionPlan:
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert isinstance(plan, ContractionPlan), [launch.name for launch in plan.launches]
    return plan


def run(plan, tiles, inputs, folder):
    with emulated_hopper():
        return load(plan.render(tiles), folder).kernel_fn(*map(move, inputs)).cpu()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    function, inputs, tiles = CASES[name]
    plan = plan_of(function, inputs)
    assert not [*obstacles(plan.problem, SM90), *refusals(plan.problem, tiles, SM90)]
    found = run(plan, tiles, inputs, tmp_path)
    (exact,) = interpret(trace_function(function, inputs), inputs, precision=torch.float64)
    error = (found.double() - exact.double()).norm() / exact.double().norm()
    assert found.dtype == exact.dtype and error < torch.finfo(found.dtype).eps


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("repeated", [(1, 128), (128, 128)]),
        ("viewed", [(1, 128), (128, 128)]),
        ("kept_apart", [(1, 128), (128, 128)]),
        ("by_lines", [(1, 64), (64, 1)]),
        ("one_side", [(1, 0), (0, 0)]),
    ],
)
def test_scales_are_found_however_they_are_said(name, blocks):
    function, inputs, _ = CASES[name]
    graph = with_block_scales(trace_function(function, inputs))
    (product,) = [node for node in graph.nodes() if node.op == "contract"]
    assert [factor.op for factor in product.inputs] == ["scaled", "scaled"]
    assert [Blocks.of(factor).sizes for factor in product.inputs] == blocks
    (found,), (exact,) = (interpret(each, inputs) for each in (graph, trace_function(function, inputs)))
    torch.testing.assert_close(found, exact)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, s, t: (x.float() * widened(s, 1, 128)) @ (w.float() * widened(t, 128, 128)).t(),
        lambda x, w, s, t: ((x.float() * in_turns(s, 128)) @ (w.float() * widened(t, 128, 128)).t()).bfloat16(),
        lambda x, w, s, t: ((x.float() + widened(s, 1, 128)) @ (w.float() * widened(t, 128, 128)).t()).bfloat16(),
        lambda x, w, s, t: ((x.bfloat16() * widened(s, 1, 128)) @ (w.bfloat16() * widened(t, 128, 128)).t()).double(),
    ],
    ids=["to_float32", "in_turns", "added", "to_float64"],
)
def test_other_factors_stay_as_they_are(function):
    graph = trace_function(function, CASES["repeated"][1])
    assert all(node.op != "scaled" for node in with_block_scales(graph).nodes())


@pytest.mark.slow
def test_blocks_that_wgmma_cannot_sum_up_are_left_to_launches():
    def fine(x, w, rows, columns):
        return ((x.float() * widened(rows, 1, 16)) @ (w.float() * widened(columns, 1, 16)).t()).bfloat16()

    inputs = inputs_of((64,), (64,), 64, (64, 4), (64, 4))
    assert any(node.op == "scaled" for node in with_block_scales(trace_function(fine, inputs)).nodes())
    plan = plan_kernel(trace_function(fine, inputs), "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches].count("contraction") == 1
    assert all(not isinstance(c, Tiles) or not c.promoted for c in plan.configurations("sm_90a"))


def test_tiles_of_k_end_where_scales_change():
    function, inputs, tiles = CASES["by_lines"]
    problem = plan_of(function, inputs).problem
    assert {c.tile_k for c in proposals(problem, SM90)} == {64}
    (message,) = refusals(problem, replace(tiles, tile_k=128, stages=2), SM90)
    assert "scales change within 128" in message


@pytest.mark.slow
def test_the_size_of_a_block_that_an_argument_has_decides_about_the_kernel():
    sets = [deepseek(70, 2, 3), deepseek(1, 1, 2)]
    x, w, rows, scales = deepseek(5, 3, 1)
    sets.append((x[..., :16], w[:, :16, :, :16], rows, scales))
    variants = variants_of(kept_apart, sets)
    assert variants.places == ((0, 2), (1, 1), (1, 3))
    assert [*variants.graphs] == [(128, 128, 128), (16, 16, 16)]


@pytest.mark.slow
def test_the_kernel_serves_other_sizes_and_refuses_other_blocks(tmp_path):
    plan, tiles = plan_of(*CASES["repeated"][:2]), SHARED
    inputs = inputs_of((33,), (128,), 128, (33, 1), (1, 1))
    found = run(plan, tiles, inputs, tmp_path)
    torch.testing.assert_close(found, repeated(*inputs), rtol=1e-2, atol=0.2)
    with pytest.raises(ValueError, match=r"rows_in.shape\[1\] \* 128, .* = \(256, 256, 512, 256\)"):
        run(plan, tiles, inputs_of((33,), (128,), 256, (33, 4), (1, 2)), tmp_path)


@pytest.mark.slow
def test_scales_that_are_not_finite_do_what_they_do_in_float32(tmp_path):
    x, w, rows, blocks = inputs_of((40,), (128,), 256, (40, 2), (1, 2))
    x[3, 7], rows[3, 0], rows[5, 1], rows[6, 0], blocks[0, 1] = 0.0, math.inf, math.nan, 1e30, 1e15
    found = run(plan_of(repeated, (x, w, rows, blocks)), SHARED, (x, w, rows, blocks), tmp_path)
    exact = repeated(x, w, rows, blocks)
    assert torch.equal(found.isnan(), exact.isnan())
    torch.testing.assert_close(found[:3], exact[:3], rtol=1e-2, atol=1e-3 * float(exact[:3].abs().max()))
    assert found[3].isnan().all() and found[5].isnan().all()
