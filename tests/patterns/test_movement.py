"""What moves elements, as coordinates of an elementwise kernel: the first shapes are traced, the others served too."""

from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.judge.reference_side.gpu_values import as_on_a_gpu
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from cutesmith.recording.ptx import read_ptx
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, emulated_hopper, exactly, first_kernel, interpret_chain, like, move, normal


def index(*shape: int, below: int = 3) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).mul(7).remainder(below).view(shape)


def spread(u):
    """A step of the heat equation on a ring."""
    return u + 0.1 * (u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u)


X, Y = normal(3, 4), normal(3, 2, seed=1)
CASES = {
    "stencil": (spread, [(normal(5, 16),), (normal(3, 6),), (normal(2, 7),), (normal(1, 64),)]),
    "cat": (lambda x, y: torch.cat([x.relu(), y * 2, x], 1) + 1, [(X, Y)]),
    "pad": (lambda x: F.pad(x, (1, 2, -1, 3), value=7.0), [(X,), (normal(5, 2),)]),
    "roll": (lambda x: x.roll((1, -2), (0, 1)), [(X,)]),
    "embedding": (lambda w, i: F.embedding(i, w) * 2, [(normal(4, 6), index(2, 3)), (normal(5, 2), index(4, 1))]),
    "negative_index": (lambda x, i: x[:, i - 1], [(X, index(5))]),
    "interleaved": (lambda x: torch.cat([x[:, ::2], x[:, 1::2]], 1), [(X,), (normal(5, 6),)]),
}
SLOW_CASES = {
    "shifted halves": (lambda x: x.roll(3, 1) - x.roll(-11, 1) * x, [(normal(2, 32, dtype=torch.bfloat16),)]),
    "pairs above a diagonal": (
        lambda a, b: (((a[:, None] - b) > 0.5).triu(1), (a[:, None] * b).tril()),
        [(normal(n), normal(m, seed=1)) for n, m in ((8, 16), (12, 13), (7, 4), (1, 5), (4, 1))],
    ),
    "pairs of lines": (
        lambda a, b: (a[:, :, None] + b[:, None]).tril(-1),
        [(normal(2, n), normal(2, m, seed=1)) for n, m in ((8, 12), (5, 9), (16, 2))],
    ),
    "margins": (
        lambda x: F.pad(x, (1, 3)) - F.pad(x, (3, 1)),
        [(normal(3, 12),), (normal(2, 8),), (normal(2, 9),)],
    ),
    "rolled margins": (lambda x: F.pad(x, (1, 3)).roll(1, 1), [(normal(3, 12),)]),
    "flip_and_whole": (lambda x: x.flip(0, 1) * x, [(X,), (normal(2, 7),)]),
    "one_hot": (lambda i: F.one_hot(i, 5), [(index(6, below=5),)]),
    "repeat": (lambda x: x.repeat(2, 3) + 1, [(X,), (normal(1, 2),)]),
    "reflect": (lambda x: F.pad(x, (1, 2), mode="reflect"), [(X,), (normal(2, 5),)]),
    "before_a_sum": (lambda x: (x.flip(1) * x).sum(-1), [(X,), (normal(2, 7),)]),
    "after_a_product": (
        lambda x, w: torch.cat([x @ w, x], 1).relu(),
        [(X, normal(4, 5)), (normal(2, 3), normal(3, 3))],
    ),
}
EASY = {
    "stack": (lambda x: torch.stack([x, x + 1], 1), (X,)),
    "bool": (lambda x: torch.cat([x > 0, x < 0]), (X,)),
    "empty_piece": (lambda x: torch.cat([x[:, :0], x], 1), (X,)),
    "replicate": (lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"), (normal(1, 2, 3, 4),)),
    "roll_flat": (lambda x: torch.roll(x, 3), (X,)),
    "rows": (lambda x, i: x.index_select(0, i), (X, index(5))),
    "gather": (lambda x, i: x.gather(1, i), (X, index(3, 2))),
    "pairs": (lambda x, i: x[i, i], (normal(3, 4, 2), index(5))),
    "scatter": (lambda x, i: torch.zeros_like(x).scatter_(1, i, 1.0) + x, (X, index(3, 1))),
    "taken_twice": (lambda x: F.pad(x.flip(1), (1, 1)).roll(1, 1), (X,)),
    "table": (lambda x: x + torch.tensor([[2, 2, 0.5, -0.0], [math.nan, 3, 3, 3]], device=x.device)[:1], (X,)),
    "integer_table": (lambda i: i * torch.tensor([0, 0, 4, -4], dtype=torch.int32, device=i.device), (index(3, 4),)),
    "nothing_padded": (lambda x, y: F.pad(x[:0].flatten(), (1, 3), value=2.0) + y[0], (X, normal(2, 4))),
    "meshgrid": (lambda x: torch.stack(torch.meshgrid(x[0], x[:, 0], indexing="ij")), (X,)),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_CASES)])
def test_one_kernel_moves_elements(name, tmp_path):
    function, sets = {**CASES, **SLOW_CASES}[name]
    with emulated_device("sm_90a"):
        kernel = first_kernel(plan_kernel(trace_function(function, sets[0]), "sm_90a"), tmp_path)
        for given in sets:
            found = as_list(kernel.kernel_fn(*map(move, given)))
            for ours, exact in zip(found, exactly(function, given), strict=True):
                torch.testing.assert_close(ours.cpu(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", EASY)
def test_moved_elements_are_the_same(name):
    function, inputs = EASY[name]
    graph = trace_function(function, inputs)
    plan = plan_kernel(graph, "sm_90a")
    found = interpret(plan.graph, inputs) if plan.pattern == "elementwise" else interpret_chain(plan, inputs)
    for ours, exact in zip(found, exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours, exact.to(ours.dtype), rtol=1e-6, atol=1e-6)


@functools.cache
def sampled(mode, corners):
    """A function that samples images, and its graph for `IMAGE` and `GRID`."""
    function = lambda x, g: F.grid_sample(x, g, mode=mode, align_corners=corners)  # noqa: E731
    return function, trace_function(function, (IMAGE, GRID))


IMAGE, GRID = normal(2, 3, 5, 4), normal(2, 6, 7, 2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("corners", [False, True])
def test_points_outside_of_an_image_are_left_out_whatever_it_holds(mode, corners):
    function, graph = sampled(mode, corners)
    image = IMAGE.clone()
    image[:, :, 0, 0], image[:, :, 2, 1] = math.inf, -math.inf
    (found,) = interpret(graph, (image, GRID))
    torch.testing.assert_close(found, function(image.double(), GRID.double()).float(), equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("corners", [False, True])
def test_coordinates_that_are_not_finite_give_what_they_give_on_a_gpu(mode, corners):
    function, graph = sampled(mode, corners)
    grid = 0.5 * GRID
    grid[:, 0, :3, 0] = torch.tensor([math.nan, math.inf, -math.inf])
    (found,) = interpret(graph, (IMAGE, grid))
    torch.testing.assert_close(found, as_on_a_gpu(function)(IMAGE, grid), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
def test_points_of_a_volume_are_sampled(mode, padding, corners):
    volume, grid = normal(2, 3, 5, 4, 1), 1.5 * normal(2, 3, 4, 5, 3, seed=1)
    function = lambda x, g: F.grid_sample(x, g, mode, padding, align_corners=corners)  # noqa: E731
    (found,) = interpret(trace_function(function, (volume, grid)), (volume, grid))
    torch.testing.assert_close(found, *exactly(function, (volume, grid)), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_points_of_a_volume_are_one_launch(mode, tmp_path):
    inputs = normal(1, 2, 3, 4, 5), normal(1, 2, 3, 4, 3, seed=1)
    function = lambda x, g: F.grid_sample(x, g, mode, align_corners=False)  # noqa: E731
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert plan.pattern == "elementwise"
    with emulated_hopper():
        ours = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(ours, *exactly(function, inputs), rtol=1e-5, atol=1e-5)


def corners(boxes):
    """Of centres and sizes, as detectors have them."""
    x, y, w, h = boxes.unbind(-1)
    return torch.stack((x - w / 2, y - h / 2, x + w / 2, y + h / 2), -1)


def intersections(a, b):
    a, b = corners(a), corners(b)
    size = (torch.minimum(a[:, None, 2:], b[:, 2:]) - torch.maximum(a[:, None, :2], b[:, :2])).clamp(min=0)
    return size[..., 0] * size[..., 1]


PIECES = {
    "corners": (intersections, [normal(7, 4), normal(5, 4, seed=1)]),
    "the rest": (lambda x, y: torch.cat((x, y), 0)[x.shape[0] :] * 2, [X, normal(5, 4)]),
    "the last": (lambda x, y: torch.cat((x[:, :1], y), 1)[:, -1] + x[:, 0], [X, Y]),
    "two types": (lambda x, y: torch.cat((x.half(), y), 1).chunk(3, 1)[0] * 2, [X, Y]),
    "repeated": (lambda x: torch.cat((x[:1].expand(3, 4), x), 0)[1:3] + 1, [X]),
}


@pytest.mark.parametrize("name", PIECES)
def test_slices_of_what_was_joined_are_slices_of_its_pieces(name):
    function, inputs = PIECES[name]
    graph = trace_function(function, inputs)
    assert not any(node.op in ("take", "stored") for node in graph.nodes())
    for ours, theirs in zip(interpret(graph, inputs), exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_slice_of_two_pieces_is_read_from_both():
    function = lambda x, y: torch.cat((x, y), 0)[1:-1] * 2  # noqa: E731
    inputs = [X, normal(5, 4)]
    (ours,) = interpret(trace_function(function, inputs), inputs)
    torch.testing.assert_close(ours, function(*inputs))


def test_pieces_may_have_other_sizes(tmp_path):
    function = lambda x, y: torch.cat((x, y), 0)[x.shape[0] :] * 2 + y.shape[0]  # noqa: E731
    plan = plan_kernel(trace_function(function, [X, normal(5, 4)]), "sm_90a")
    with emulated_device("sm_90a"):
        module = first_kernel(plan, tmp_path)
        for x, y in [(X, normal(5, 4)), (normal(6, 4), normal(2, 4))]:
            assert torch.equal(module.kernel_fn(move(x), move(y)).cpu(), function(x, y))


def test_elements_at_places_from_memory_are_read_as_an_h200_did_it_best():
    """It took 74.4 us, by a thread for each element 97.9: a grid lies two numbers apart, but reads decide."""
    x, grid = torch.empty(8, 64, 128, 128, device="meta"), torch.empty(8, 128, 128, 2, device="meta")
    plan = plan_kernel(trace_function(lambda x, grid: F.grid_sample(x, grid, align_corners=False), [x, grid]), "sm_90a")
    first, *_ = plan.configurations()
    assert (first.threads, first.vector, first.vectors, plan.kernel.scattered) == (256, 4, 1, 4)
    assert 60e-6 < H200.seconds(plan) < 90e-6


def test_pairs_below_each_other_share_their_loads(tmp_path):
    a = torch.empty(4096, 4, device="meta")
    nearer = lambda a: ((a[:, None, 2] * a[:, 0] + a[:, None, 3] * a[:, 1]) > a[:, 2]).triu(1)  # noqa: E731
    plan = plan_kernel(trace_function(nearer, [a]), "sm_90a")
    assert plan.kernel.pairs and plan.configurations()[0].vectors == 4
    with session("sm_90a") as recorded:
        first_kernel(plan, tmp_path).kernel_fn(like(a))
    assert recorded.modules[0].ptx.count("ld.global") == 4 * 2 + 3  # two numbers of each row, and three of the column


def test_shifted_neighbours_are_parts_of_two_vectors(tmp_path):
    u = torch.empty(64, 128, device="meta")
    plan = plan_kernel(trace_function(spread, [u]), "sm_90a")
    with session("sm_90a") as recorded:
        first_kernel(plan, tmp_path).kernel_fn(like(u))
    (kernel,) = read_ptx(recorded.modules[0].ptx).values()
    assert (kernel.widest_load_bits, kernel.widest_store_bits) == (128, 128)


@pytest.mark.slow
def test_a_launch_of_a_chain_reads_vectors_as_a_kernel_alone_does(tmp_path):
    function = lambda x, w, y: torch.cat((x @ w, y), 1) * 2  # noqa: E731
    half = functools.partial(normal, dtype=torch.float16)
    plan = plan_kernel(trace_function(function, [half(16, 32), half(32, 16), half(16, 8)]), "sm_90a")
    joined = trace_function(lambda x, y: torch.cat((x, y), 1) * 2, [half(16, 16), half(16, 8)])
    kernel, alone = plan.launches[-1].plan.kernel, plan_kernel(joined, "sm_90a").kernel
    assert (len(kernel.wholes), kernel.instructions) == (len(alone.wholes), alone.instructions)
    with emulated_device("sm_90a"):
        kernel = first_kernel(plan, tmp_path)
        for columns, more in [(16, 8), (12, 4), (5, 3)]:
            inputs = [half(16, 32), half(32, columns), half(16, more)]
            (expected,) = exactly(function, inputs)
            torch.testing.assert_close(kernel.kernel_fn(*map(move, inputs)).cpu(), expected)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 6, 8), (2, 1, 4, 3, 5)])
def test_a_grid_of_places_is_that_of_pytorch(size, corners):
    theta = normal(2, len(size) - 2, len(size) - 1)
    function = lambda t: F.affine_grid(t, size, align_corners=corners)  # noqa: E731
    (ours,) = interpret(trace_function(function, [theta]), [theta])
    torch.testing.assert_close(ours, function(theta.double()).to(ours.dtype), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_an_image_is_sampled_at_places_that_are_computed_where_they_are_used(tmp_path):
    def turned(x, theta):
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)

    inputs = [normal(2, 3, 6, 8), normal(2, 2, 3, seed=1)]
    plan = plan_kernel(trace_function(turned, inputs), "sm_90a")
    assert plan.pattern == "elementwise"
    with emulated_device("sm_90a"):
        found = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    torch.testing.assert_close(found, turned(*inputs), rtol=1e-4, atol=1e-4)
