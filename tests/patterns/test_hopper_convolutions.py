"""Convolutions for sm_90a, whose windows TMA reads by im2col: what they compute, where they serve, what is copied."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.configurations import ContractionConfiguration as General
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.hopper.legality import copied_factors, obstacles, refusals
from cutesmith.patterns.contraction.hopper.prediction import predict
from cutesmith.patterns.contraction.hopper.proposals import proposals
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.contraction.proposals import proposals as general_proposals
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import close, emulated_hopper, exactly, load, move, normal

BF16, F16 = torch.bfloat16, torch.float16
SM90 = parse_arch("sm_90a").sm
HALF = Tiles(128, 64, 64, 3, swapped=True)
SINGLE = replace(HALF, tile_k=32, parts=3)


def image(*shape, dtype=BF16, last=True):
    return normal(*shape, dtype=dtype).to(memory_format=torch.channels_last if last else torch.contiguous_format)


def weights(*shape, dtype=BF16):
    return (normal(*shape, seed=1) * math.prod(shape[1:]) ** -0.5).to(dtype)


def relu(x, w, b):
    return F.relu(F.conv2d(x, w, b, padding=1))


def strided(x, w, b):
    return F.conv2d(x, w, b, stride=(2, 1), padding=1)


def uneven(x, w, b, residual):
    return F.gelu(F.conv2d(x, w, b, stride=(2, 1), padding=(2, 1), dilation=(1, 2))) + residual


LAST = image(2, 24, 5, 6), weights(24, 24, 3, 3), normal(24, dtype=BF16)
UNEVEN = (
    *(image(3, 24, 17, 13, dtype=F16), weights(72, 24, 4, 3, dtype=F16)),
    *(normal(72, dtype=F16), normal(3, 72, 9, 11, dtype=F16)),
)
FLOAT32 = normal(2, 20, 9, 16), weights(24, 20, 3, 3, dtype=torch.float32), normal(24)
WEIGHTS_LAST = weights(40, 72, 3, 3).to(memory_format=torch.channels_last)
UNCOPIED = image(2, 72, 6, 12), WEIGHTS_LAST, normal(40, dtype=BF16)


def solid(x, w, b):
    return F.relu(F.conv3d(x, w, b, stride=(1, 2, 1), padding=(1, 0, 2), dilation=(1, 1, 2)))


SOLID = normal(2, 24, 4, 5, 7, dtype=BF16), weights(72, 24, 3, 2, 3), normal(72, dtype=BF16)
SOLID_FLOAT32 = normal(1, 20, 4, 5, 7), weights(24, 20, 3, 2, 3, dtype=torch.float32), normal(24)


def turned(x, w, b):
    return F.relu(F.conv_transpose2d(x, w, b, padding=(1, 0), dilation=(1, 2), output_padding=(0, 1)))


def turned_weights(*shape, dtype=BF16):
    """Of a transposed convolution, (channels, outputs, *taps), stored so that no launch copies them."""
    return weights(shape[1], shape[0], *shape[2:], dtype=dtype).transpose(0, 1)


TURNED = image(2, 24, 5, 6), turned_weights(24, 72, 3, 4), normal(72, dtype=BF16)
TURNED_FLOAT32 = normal(2, 20, 5, 8), turned_weights(20, 24, 3, 4, dtype=torch.float32), normal(24)
LINE = normal(2, 24, 45, dtype=BF16), weights(40, 24, 3), normal(40, dtype=BF16)
LINE_FLOAT32 = normal(2, 20, 45), weights(24, 20, 3, dtype=torch.float32), normal(24)


def line(x, w, b):
    return F.gelu(F.conv1d(x, w, b, stride=3, padding=2, dilation=4))


def grouped(x, w, b):
    return F.gelu(F.conv2d(x, w, b, stride=(1, 2), padding=1, groups=2))


GROUPED = normal(2, 48, 9, 8, dtype=BF16), weights(80, 24, 3, 3), normal(80, dtype=BF16)
GROUPED_UNEVEN = normal(3, 39, 7, 9, dtype=BF16), weights(33, 13, 3, 3), normal(3, 33, 7, 9, dtype=BF16)
GROUPED_FLOAT32 = normal(2, 40, 9, 16), weights(48, 20, 3, 3, dtype=torch.float32), normal(48)


def two_residuals(x, w, y, z):
    return F.relu(F.conv2d(x, w, padding=1) * y + z)


def residuals(images, outputs, height, width, room=0):
    """An image, weights, and two tensors of the result's shape; `room`: elements behind each line of the last."""
    shape = images, outputs, height, width
    apart = normal(images, outputs, height * width + room, dtype=BF16, seed=3)[..., : height * width].view(shape)
    return image(images, 16, height, width), weights(outputs, 16, 3, 3), normal(*shape, dtype=BF16, seed=2), apart


STAGED = Tiles(256, 128, 16, 3, swapped=True, columns=32)

CASES = {
    "residuals": (two_residuals, residuals(2, 136, 12, 24), STAGED),
    "residuals of odd sizes": (two_residuals, residuals(2, 40, 11, 13), STAGED),
    "residuals apart": (two_residuals, residuals(2, 40, 12, 13, room=4), STAGED),
    "residuals of groups": (
        lambda x, w, y, z: F.conv2d(x, w, padding=1, groups=2) * y + z,
        (image(2, 32, 12, 12), weights(80, 16, 3, 3), *residuals(2, 80, 12, 12)[2:]),
        replace(STAGED, cluster_m=2),
    ),
    "grouped": (grouped, GROUPED, HALF),
    "grouped_last": (grouped, (GROUPED[0].to(memory_format=torch.channels_last), *GROUPED[1:]), HALF),
    "grouped_uneven": (
        lambda x, w, residual: F.relu(F.conv2d(x, w, padding=1, groups=3)) + residual,
        GROUPED_UNEVEN,
        replace(HALF, tile_k=16, split=2),
    ),
    "grouped_cluster": (grouped, GROUPED, replace(HALF, cluster_m=2)),
    "grouped_points": (
        lambda x, w: F.conv2d(x, w, stride=2, groups=4),
        (normal(2, 64, 12, 16, dtype=BF16), weights(96, 16, 1, 1)),
        Tiles(64, 32, 16, 3, warpgroups=1, swapped=True),
    ),
    "grouped_float32": (grouped, GROUPED_FLOAT32, SINGLE),
    "grouped_solid": (
        lambda x, w: F.conv3d(x, w, padding=(1, 0, 2), groups=2),
        (normal(2, 48, 4, 5, 7, dtype=BF16), weights(48, 24, 3, 2, 3)),
        replace(HALF, tile_k=32),
    ),
    "turned": (turned, TURNED, HALF),
    "turned_joined": (turned, TURNED, replace(HALF, joined=True, split=2)),
    "turned_float32": (turned, TURNED_FLOAT32, SINGLE),
    "turned_solid": (
        lambda x, w: F.conv_transpose3d(x, w, padding=(0, 1, 2), dilation=(1, 2, 1)),
        (normal(1, 24, 3, 5, 4, dtype=BF16), turned_weights(24, 40, 2, 3, 4)),
        replace(HALF, tile_k=32),
    ),
    "turned_line": (
        lambda x, w: F.conv_transpose1d(x, w, padding=1, dilation=2),
        (normal(2, 24, 45, dtype=BF16), turned_weights(24, 40, 3)),
        HALF,
    ),
    "line": (line, LINE, HALF),
    "line_joined": (line, LINE, replace(HALF, joined=True)),
    "line_float32": (line, LINE_FLOAT32, SINGLE),
    "solid": (solid, SOLID, replace(HALF, tile_k=16)),
    "solid_last": (solid, (SOLID[0].to(memory_format=torch.channels_last_3d), *SOLID[1:]), replace(HALF, cluster_m=2)),
    "solid_joined": (solid, SOLID, replace(HALF, joined=True, split=2)),
    "solid_float32": (solid, SOLID_FLOAT32, SINGLE),
    "channels_last": (relu, LAST, HALF),
    "odd_channels": (relu, (image(2, 13, 9, 11, last=False), weights(40, 13, 3, 3), normal(40, dtype=BF16)), HALF),
    "cluster": (uneven, UNEVEN, replace(HALF, cluster_m=2, tile_n=128, columns=64)),
    "turns": (uneven, UNEVEN, replace(HALF, tile_n=128, pingpong=True)),
    "points": (
        lambda x, w: F.conv2d(x, w, stride=2),
        (image(2, 64, 16, 16), weights(72, 64, 1, 1)),
        Tiles(64, 64, 64, 3, warpgroups=1, swapped=True),
    ),
    "float32": (strided, FLOAT32, SINGLE),
    "joined": (relu, (image(3, 64, 7, 7), weights(72, 64, 3, 3), normal(72, dtype=BF16)), replace(HALF, joined=True)),
    "joined_points": (
        lambda x, w, b: F.relu(F.conv2d(x, w, b)),
        (image(3, 72, 7, 7, last=False), weights(72, 72, 1, 1), normal(72, dtype=BF16)),
        replace(HALF, joined=True),
    ),
    "float32_joined": (strided, FLOAT32, replace(SINGLE, joined=True, split=2)),
    "split": (uneven, UNEVEN, replace(HALF, split=2)),
    "float32_split": (strided, FLOAT32, replace(SINGLE, split=4)),
    "weights_last": (relu, (image(2, 72, 7, 7), WEIGHTS_LAST, normal(40, dtype=BF16)), HALF),
    "uncopied": (relu, UNCOPIED, HALF),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    function, inputs, configuration = CASES[name]
    plan = match(trace_function(function, inputs))
    problem = plan.problem_for(configuration)
    assert not [*obstacles(problem, SM90), *refusals(problem, configuration, SM90)]
    with emulated_hopper():
        out = load(plan.render(configuration), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    close(1e-6, of_largest=True)(out, *exactly(function, inputs))


def test_a_residual_is_read_in_vectors_where_nothing_hides_its_loads():
    plan = match(trace_function(two_residuals, residuals(2, 136, 12, 24)))
    few_sums, in_turns = HALF, replace(STAGED, tile_m=128, pingpong=True)
    assert ["load_strip" in plan.render(c) for c in (STAGED, few_sums, in_turns)] == [True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("joined", [False, True])
def test_one_kernel_serves_other_sizes_and_layouts(joined, tmp_path):
    source = match(trace_function(relu, LAST)).render(replace(HALF, joined=joined))
    with emulated_hopper():
        kernel = load(source, tmp_path)
        for x in (image(5, 20, 8, 16, last=False), image(1, 136, 16, 3), image(1, 8, 1, 1)):
            inputs = x, weights(24, x.shape[1], 3, 3), normal(24, dtype=BF16)
            close(1e-6, of_largest=True)(kernel.kernel_fn(*map(move, inputs)).cpu(), *exactly(relu, inputs))


def test_a_kernel_without_copies_refuses_what_tma_cannot_read(tmp_path):
    graph = trace_function(relu, UNCOPIED)
    assert "copy_kernel" in match(replace(graph, free_sizes=True)).render(HALF)
    kernel = load(match(graph).render(HALF), tmp_path)
    assert not hasattr(kernel, "copy_kernel")
    _, w, b = UNCOPIED
    others = image(2, 72, 6, 12, last=False), image(2, 72, 7, 7), image(4, 76, 6, 12)[:, 4:], image(2, 0, 8, 8)
    for x in others:
        with emulated_hopper(), pytest.raises(ValueError, match="lines of neighbours, each at a multiple of 16 bytes"):
            kernel.kernel_fn(*map(move, (x, w[:, : x.shape[1]], b)))


@pytest.mark.slow
def test_a_grouped_kernel_serves_other_sizes_and_layouts(tmp_path):
    source = match(trace_function(grouped, GROUPED)).render(HALF)
    with emulated_hopper():
        kernel = load(source, tmp_path)
        for x in (image(3, 40, 8, 16), image(1, 272, 5, 4), image(2, 26, 3, 7, last=False)):
            inputs = x, weights(80, x.shape[1] // 2, 3, 3), normal(80, dtype=BF16)
            close(1e-6, of_largest=True)(kernel.kernel_fn(*map(move, inputs)).cpu(), *exactly(grouped, inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "inputs", "tiles"),
    [
        (strided, FLOAT32, SINGLE),
        (turned, TURNED_FLOAT32, SINGLE),
        (turned, TURNED, HALF),
        (grouped, GROUPED_FLOAT32, SINGLE),
    ],
)
def test_values_that_are_not_finite_come_out_as_in_pytorch(function, inputs, tiles, tmp_path):
    x, w, b = (value.clone() for value in inputs)
    x[1, 3, 4, 5], x[0, 0, 0, 0], w[3, 2, 1, 1] = math.inf, math.nan, -math.inf
    plan = match(trace_function(function, (x, w, b)))
    with emulated_hopper():
        out = load(plan.render(tiles), tmp_path).kernel_fn(*map(move, (x, w, b))).cpu()
    exact = function(x.double(), w.double(), b.double()).to(out.dtype)
    tolerance = 1e-5 if out.dtype == torch.float32 else 1e-2
    torch.testing.assert_close(out, exact, rtol=tolerance, atol=tolerance, equal_nan=True)


def plan_of_sizes(images, channels, size, outputs, taps, dtype=BF16, last=True, **options):
    def function(x, w):
        return F.conv2d(x, w, **options)

    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.empty(images, channels, size, size, dtype=dtype, device="meta", memory_format=layout)
    w = torch.empty(outputs, channels // options.get("groups", 1), taps, taps, dtype=dtype, device="meta")
    return match(trace_function(function, (x, w)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("sizes", "options", "copied"),
    [
        ((32, 64, 56, 64, 3), {"padding": 1}, 1),
        ((32, 512, 7, 512, 3), {"padding": 1}, 1),
        ((32, 256, 14, 256, 3), {"padding": 1, "last": False}, 2),
        ((32, 256, 14, 256, 3), {"padding": 1, "last": False, "dtype": torch.float32}, 2),
        ((32, 256, 56, 512, 1), {"stride": 2}, 0),
        ((32, 3, 224, 64, 7), {"padding": 3, "stride": 2}, None),
        ((32, 256, 14, 256, 3), {"padding": 1, "groups": 2, "last": False}, 2),
        ((32, 256, 33, 256, 3), {"stride": 9}, None),
        ((32, 256, 33, 256, 3), {"padding": 127, "dilation": 128}, None),
    ],
)
def test_windows_are_read_by_tma_where_the_predicted_time_says_so(sizes, options, copied):
    plan = plan_of_sizes(*sizes, **options)
    first = plan.configurations("sm_90a")[0]
    assert isinstance(first, Tiles) == (copied is not None)
    assert not isinstance(plan.configurations("sm_80")[0], Tiles)
    if isinstance(first, Tiles):
        assert first.swapped and len(copied_factors(plan.problem, first)) == copied


def test_small_images_follow_each_other_in_tiles_unless_the_epilogue_reads_more_than_a_bias():
    sizes = 32, 512, 7, 512, 3
    first = plan_of_sizes(*sizes, padding=1).configurations("sm_90a")[0]
    assert first.joined and first.split == 2
    x, w = image(2, 64, 7, 7), weights(64, 64, 3, 3)
    points = plan_of_sizes(32, 2048, 7, 512, 1, last=False).configurations("sm_90a")[0]
    assert points.joined and not plan_of_sizes(32, 256, 56, 64, 1, last=False).configurations("sm_90a")[0].joined
    residual = match(trace_function(lambda x, w: F.conv2d(x, w, padding=1) + x, (x, w))).problem
    assert "positions of several images cannot follow each other" in refusals(
        residual, replace(HALF, joined=True), SM90
    )
    assert not any(tiles.joined for tiles in proposals(residual, SM90))


def test_a_prediction_follows_flops_and_the_copy_of_an_image():
    """On an H100 our own kernel of this size took 177 us (evals/results/h100)."""
    last, first = (plan_of_sizes(32, 256, 56, 256, 3, padding=1, last=last).problem for last in (True, False))
    tiles = proposals(last, SM90)[0]
    assert 140e-6 < predict(last, tiles).seconds < 220e-6
    image_bytes = 32 * 256 * 56 * 56 * 2
    assert predict(first, tiles).seconds - predict(last, tiles).seconds > 2 * image_bytes / 4.8e12


@pytest.mark.parametrize(("taps", "groups", "form"), [(1, 32, General), (3, 8, Tiles)])
def test_grouped_convolutions_take_the_form_that_is_predicted_to_be_faster(taps, groups, form):
    x = torch.empty(32, 256, 56, 56, dtype=BF16, device="meta")
    w = torch.empty(256, 256 // groups, taps, taps, dtype=BF16, device="meta")
    plan = match(trace_function(lambda x, w: F.conv2d(x, w, padding=taps // 2, groups=groups), (x, w)))
    first, *_ = plan.configurations("sm_90a")
    by_tma, general = proposals(plan.problem, SM90), general_proposals(plan.problem)
    assert isinstance(first, form)
    assert plan.seconds(first) <= min(plan.seconds(by_tma[0]), plan.seconds(general[0]))
