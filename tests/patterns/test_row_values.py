"""Rows of a product that its own kernel reduces: softmax, norms and sums in one launch, against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.contraction.configurations import ContractionConfiguration
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.plan import ContractionPlan, match
from cutesmith.patterns.cutting.row_reductions import with_row_reductions
from cutesmith.patterns.match import plan_kernel, whole_or_cut
from tests.patterns.row_cases import integers
from tests.patterns.running import check_product, emulated, exactly, load, move, normal, traced

BF16, HALF = torch.bfloat16, torch.float16


def softmax(x, w):
    return torch.softmax(F.linear(x, w), dim=-1)


def float_softmax(x, w):
    return torch.softmax(F.linear(x, w), dim=-1, dtype=torch.float32)


def log_softmax(x, w, b):
    return F.log_softmax(F.linear(x, w, b) * 3.0, dim=-1)


def layer_norm(x, w, b, g, h):
    return F.layer_norm(F.linear(x, w, b), g.shape, g, h)


def rms_norm(x, w, g):
    return F.rms_norm(F.linear(x, w), g.shape, g, 1e-6)


def l2_norm(x, w, scale):
    return F.normalize((x @ w) * scale[:, None], dim=-1)


def several(x, w, b):
    hidden = F.linear(x, w, b)
    centred = hidden - hidden.mean(dim=-1, keepdim=True)
    return hidden, torch.relu(centred) / (hidden.amax(-1, keepdim=True) - hidden.amin(-1, keepdim=True))


def masked(x, w, mask):
    return torch.softmax(F.linear(x, w).float().masked_fill(mask, float("-inf")), dim=-1)


def hidden_rows(x, w, mask):
    """As attention has it: a row of -inf alone becomes zeros."""
    return torch._safe_softmax(F.linear(x, w).masked_fill(mask, float("-inf")), -1)


def residual(x, w, r, g):
    hidden = F.linear(x, w) + r
    return hidden, F.rms_norm(hidden, g.shape, g, 1e-5)


def scores(q, k):
    return torch.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1)


def by_standard_deviation(x, w):
    hidden = F.linear(x, w)
    return hidden / hidden.std(dim=-1, keepdim=True)


def logsumexp(x, w):
    return torch.logsumexp(F.linear(x, w).float(), dim=-1)


def scaled_log(x, w, scale, offset):
    """What a row comes to is computed on, with a number of each row."""
    return torch.log(F.linear(x, w).float().exp().sum(-1)) * scale + offset


def sums_and_extremes(x, w, b):
    hidden = F.linear(x, w, b)
    return hidden.sum(-1), hidden.amax(-1, keepdim=True), hidden.float().mean(-1), hidden.norm(dim=-1)


def places(x, w):
    hidden = F.linear(x, w)
    return hidden.argmax(-1), hidden.amin(-1), hidden.argmin(-1, keepdim=True)


def softmax_and_logsumexp(x, w):
    hidden = F.linear(x, w).float()
    return torch.softmax(hidden, -1), torch.logsumexp(hidden, -1)


def rows_and_rms(x, w, g):
    hidden = F.linear(x, w).float()
    inverse = torch.rsqrt(hidden.square().mean(-1, keepdim=True) + 1e-6)
    return (hidden * inverse).to(x.dtype) * g, inverse


def variance(x, w):
    return F.linear(x, w).var(-1)


def cross_entropy(x, w, labels):
    return F.cross_entropy(F.linear(x, w).float(), labels, reduction="none")


def sized(rows, columns, depth, dtype, *others):
    """The factors of a linear layer, and vectors of so many elements: rows, columns or both."""
    sizes = {"m": (rows,), "n": (columns,), "mn": (rows, columns)}
    vectors = (normal(*sizes[each], dtype=dtype, seed=2 + at) for at, each in enumerate(others))
    return (normal(rows, depth, dtype=dtype), normal(columns, depth, dtype=dtype, seed=1), *vectors)


CASES = {
    "softmax_of_a_tile": (softmax, sized(130, 128, 72, BF16)),
    "softmax_of_17": (float_softmax, sized(70, 17, 64, BF16)),
    "log_softmax_of_100": (log_softmax, sized(66, 100, 136, BF16, "n")),
    "layer_norm_of_256": (layer_norm, sized(70, 256, 64, BF16, "n", "n", "n")),
    "rms_norm": (rms_norm, sized(129, 64, 64, HALF, "n")),
    "l2_norm": (lambda x, w, s: l2_norm(x, w.t(), s), sized(40, 96, 64, HALF, "m")),
    "several": (several, sized(65, 40, 64, BF16, "n")),
    "residual": (residual, sized(65, 72, 64, BF16, "mn", "n")),
    "float32": (softmax, sized(70, 96, 40, torch.float32)),
    "standard_deviation": (by_standard_deviation, sized(64, 48, 64, torch.float32)),
    "batches": (scores, (normal(3, 72, 64, dtype=BF16), normal(3, 56, 64, dtype=BF16, seed=1))),
    "masked": (masked, (*sized(66, 48, 64, BF16), normal(66, 48, seed=3) > 1.0)),
    "logsumexp_of_17": (logsumexp, sized(70, 17, 64, BF16)),
    "scaled_log": (scaled_log, sized(67, 40, 64, HALF, "m", "m")),
    "sums_and_extremes": (sums_and_extremes, sized(130, 96, 72, BF16, "n")),
    "places": (places, sized(67, 128, 64, torch.float32)),
    "softmax_and_logsumexp": (softmax_and_logsumexp, sized(129, 64, 64, BF16)),
    "rows_and_rms": (rows_and_rms, sized(66, 72, 64, BF16, "n")),
    "variance": (variance, sized(66, 100, 64, HALF)),
    "cross_entropy": (cross_entropy, (*sized(66, 10, 64, BF16), integers(66, low=0, high=10))),
    "sums_of_batches": (
        lambda q, k: (q @ k.mT).logsumexp(-1),
        (normal(3, 72, 64, dtype=BF16), normal(3, 56, 64, dtype=BF16, seed=1)),
    ),
    "hidden_rows": (hidden_rows, (*sized(66, 48, 64, torch.float32), normal(66, 1, seed=3).expand(66, 48) > 1.0)),
}


def fused(function, inputs) -> ContractionPlan:
    """The plan in which the product's kernel reduces its rows."""
    return match(with_row_reductions(traced(function, inputs)))


SLOW = frozenset(CASES) - {"softmax_of_17", "logsumexp_of_17"}


@pytest.mark.slow
@pytest.mark.timeout(300)  # 33 s of CPU time for places, four times as much on a busy machine
@pytest.mark.parametrize(
    ("case", "arch"),
    [
        pytest.param(case, arch, marks=[pytest.mark.slow] if case in SLOW else [])
        for case in CASES
        for arch in ("sm_80", "sm_90a")
    ],
)
def test_rows_are_reduced_where_they_are_summed_up(case, arch, tmp_path):
    function, inputs = CASES[case]
    plan = fused(function, inputs)
    check_product(plan, plan.configurations(arch)[0], function, inputs, tmp_path, arch)


TILES = {
    "in_turns": Tiles(128, 128, 64, 3, pingpong=True),
    "shared_by_warpgroups": Tiles(128, 128, 64, 3, columns=64),
    "beside_another_block": Tiles(128, 128, 64, 3, cluster_m=2),
    "one_strip": Tiles(64, 96, 64, 3, warpgroups=1, columns=96),
    "by_mma_sync": ContractionConfiguration(64, 128, 32, 2, 2, 3),
    "rows_of_8_warps": ContractionConfiguration(32, 128, 32, 1, 8, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TILES)
def test_any_tile_has_whole_rows(name, tmp_path):
    """A residual of each element, and a vector: read before the products or after them."""
    function, inputs = CASES["residual"]
    check_product(fused(function, inputs), TILES[name], function, inputs, tmp_path)


def rare(dtype):
    """Factors whose products are huge in one row, NaN, infinite and -inf alone in others."""
    x, w = normal(12, 16, dtype=dtype), normal(24, 16, dtype=dtype, seed=1)
    x[1] *= 1000.0
    x[2, 3] = float("nan")
    x[3] = 0.0
    x[4, 0] = float("inf")
    return x, w


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_rare_numbers_of_a_row_are_those_of_pytorch(arch, dtype, tmp_path):
    """The softmax of a row of large numbers needs its maximum; a row with NaN is NaN, and so is one of -inf alone."""
    x, w = rare(dtype)
    mask = torch.zeros(12, 24, dtype=torch.bool)
    mask[5], mask[6, 1:] = True, True
    inputs = x, w, mask
    plan = fused(masked, inputs)
    with emulated(arch):
        ours = load(plan.render(plan.configurations(arch)[0]), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    theirs = masked(x.float(), w.float(), mask)
    assert ours[5].isnan().all() and ours[2].isnan().all() and ours[6, 0] == 1.0
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2, equal_nan=True)


@pytest.mark.slow
def test_more_columns_than_a_tile_has_are_refused(tmp_path):
    function, inputs = CASES["softmax_of_17"]
    plan = fused(function, inputs)
    with emulated("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
        with pytest.raises(ValueError, match="rows of up to 32 columns, not of 264"):
            kernel_fn(*map(move, sized(8, 264, 64, BF16)))
        given = sized(9, 8, 72, BF16)  # fewer are right
        (theirs,) = exactly(function, given)
        torch.testing.assert_close(kernel_fn(*map(move, given)).cpu(), theirs, rtol=1e-2, atol=1e-2)


def empty(*shape, dtype=BF16):
    return torch.empty(*shape, dtype=dtype, device="meta")


def launches(function, inputs, arch="sm_90a"):
    plan = plan_kernel(traced(function, inputs), arch)
    return [each.plan.pattern for each in plan.launches] if isinstance(plan, ChainPlan) else [plan.pattern]


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90a"])
def test_a_router_takes_one_launch(arch):
    inputs = empty(8192, 4096), empty(64, 4096)
    assert launches(float_softmax, inputs, arch) == ["contraction"]


@pytest.mark.slow
def test_rows_longer_than_a_tile_take_two_launches():
    assert launches(softmax, (empty(4096, 512), empty(512, 512))) == ["contraction", "rows"]


def test_few_rows_take_a_launch_of_their_own_where_blocks_divide_k():
    """A tile of whole rows leaves most multiprocessors idle: the predicted times decide."""
    assert launches(softmax, (empty(16, 16384), empty(256, 16384))) == ["contraction", "rows"]


@pytest.mark.parametrize("function", [logsumexp, softmax_and_logsumexp, places])
def test_values_of_rows_take_no_launch_of_their_own(function):
    assert launches(function, (empty(8192, 4096), empty(128, 4096))) == ["contraction"]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_values_of_rows_are_those_of_any_rows(arch, tmp_path):
    """Other numbers of rows and fewer columns, no rows at all, and rows of -inf alone; no columns have no result."""

    def hidden(x, w, mask):
        return torch.logsumexp(F.linear(x, w).float().masked_fill(mask, float("-inf")), -1)

    plan = fused(hidden, (*sized(66, 48, 64, BF16), normal(66, 1) > 1.0))
    with emulated(arch):
        kernel_fn = load(plan.render(plan.configurations(arch)[0]), tmp_path).kernel_fn
        for rows, columns in (33, 48), (1, 48), (130, 7), (0, 48):
            inputs = *sized(rows, columns, 64, BF16), torch.arange(rows)[:, None] % 5 == 2
            ours, theirs = (
                kernel_fn(*map(move, inputs)).cpu(),
                hidden(*(each.double() for each in inputs[:2]), inputs[2]),
            )
            torch.testing.assert_close(ours, theirs.float(), rtol=1e-3, atol=1e-3)
        with pytest.raises(ValueError, match="rows of 1 to"):
            kernel_fn(*map(move, (*sized(4, 0, 64, BF16), normal(4, 1) > 1.0)))


def test_a_row_of_a_batch_is_a_matrix_to_tma(tmp_path):
    """Where the row's place is all that is stored, the height of the tiles is that of the factor."""
    function, inputs = lambda q, k: (q @ k.mT).argmax(-1), (normal(3, 1, 64, dtype=BF16), normal(3, 40, 64, dtype=BF16))
    check_product(fused(function, inputs), Tiles(128, 64, 64, 3), function, inputs, tmp_path)


def test_no_other_block_stores_values_of_a_row():
    """Blocks side by side would: the second one, beyond the columns, stored what it had begun with."""
    plan = fused(lambda q, k: ((q @ k.mT) > 0).any(-1), (empty(2, 1, 128), empty(2, 128, 128)))
    tried = plan.configurations("sm_90a")
    assert tried and all(c.cluster_n == 1 for c in tried)


def test_a_product_that_is_not_marked_reduces_nothing():
    with pytest.raises(UnmatchedError, match="not pointwise work"):
        match(traced(*CASES["softmax_of_17"]))


def test_the_sum_gives_its_place_to_what_is_reduced():
    """The exponential is not computed again, and the bias is not read again."""
    plan = fused(layer_norm, CASES["layer_norm_of_256"][1])
    first, second = plan.problem.rounds
    assert first.kept and not second.kept
    assert "b_in" in {operand.code.name for operand in plan.problem.epilogue.earlier}
    assert [bool(each.kept) for each in fused(float_softmax, CASES["softmax_of_17"][1]).problem.rounds] == [False, True]


def test_a_column_of_weights_is_left_as_it_is():
    graph = traced(softmax, (empty(4096, 512), empty(512, 512)))
    assert with_row_reductions(graph) is graph
    assert whole_or_cut(graph).pattern == "cut"
