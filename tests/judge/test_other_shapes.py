"""Inputs of other sizes, layouts and types: each is what its name says, and leaves the others alone."""

import pytest
import torch

from cutesmith.judge.reference_side.other_inputs import OtherInputs
from cutesmith.judge.reference_side.other_shapes import OTHER_TYPE, OtherShapes
from cutesmith.judge.reference_side.size_rules import FREE


def native_of(function):
    return lambda values: ([function(*values)], False)


def draws_of(shapes):
    return [shapes.draws[name] for case in shapes.cases() for name in case.draws]


def derive(shapes, name):
    return shapes.draws[name].derive(shapes.inputs, FREE)


def test_labels_stay_inside_their_classes():
    torch.manual_seed(0)
    shapes = OtherShapes(("x", "y"), [torch.randn(64, 100), torch.randint(100, (64,))], sizes=True)
    for draw in draws_of(shapes):
        if draw.places and not draw.related:
            continue  # another size of one of them alone, which the reference refuses
        x, y = draw.derive(shapes.inputs, FREE)
        assert x.shape[0] == y.shape[0]
        torch.nn.functional.cross_entropy(x.float(), y)


LAYOUTS = {
    "transposed": lambda x: x.stride(-1) == x.shape[-2] and x.stride(-2) == 1,
    "with gaps between rows": lambda x: x.stride(-2) > x.shape[-1] and x.stride(-1) == 1,
    "one element past an aligned address": lambda x: x.is_contiguous() and x.storage_offset() == 1,
    "with every second element": lambda x: x.stride(-1) == 2,
    "expanded": lambda x: x.stride(0) == 0,
    "with gaps between batches": lambda x: x.stride(0) > x.stride(1) * x.shape[1] and x.stride(1) == x.shape[2],
    "with outer dimensions permuted": lambda x: x.stride(1) > x.stride(0) > x.stride(2) == 1,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [True, False])
def test_each_layout_is_of_one_input_alone(layout, sizes):
    inputs = [torch.randn(3, 10, 20), torch.randn(3, 10, 20)]
    shapes = OtherShapes(("x", "w"), inputs, sizes=sizes)
    for place, name in enumerate(shapes.names):
        draw = f"`{name}` {layout}"
        assert draw in [each.name for each in draws_of(shapes)] and shapes.changed_by(draw) == (place,)
        values = derive(shapes, draw)
        assert LAYOUTS[layout](values[place]) and values[1 - place].is_contiguous()
        assert sizes or values[place].shape == inputs[place].shape


def test_of_many_inputs_each_gets_one_layout_beside_those_of_all():
    """A network of 150 parameters had seven layouts for each: `verify` compiled for longer than nine minutes."""
    inputs = [torch.randn(4, 6, 8) if place % 3 else torch.randn(5) for place in range(40)]
    shapes = OtherShapes(tuple(f"w{place}" for place in range(40)), inputs, sizes=False)
    (alone,) = (case for case in shapes.cases() if case.name == "layouts of some inputs")
    assert len(alone.draws) == len(LAYOUTS)
    moved = [place for name in alone.draws for place in shapes.changed_by(name)]
    assert len(moved) == len(set(moved)) and all(place in moved for place in range(40) if place % 3)
    for name in alone.draws:
        places, values = shapes.changed_by(name), derive(shapes, name)
        is_so = next(LAYOUTS[layout] for layout in LAYOUTS if name.endswith(layout))
        assert all(is_so(values[place]) for place in places if inputs[place].ndim == 3)
        assert all(values[place] is inputs[place] for place in range(40) if place not in places)
        assert name.startswith(f"`w{places[0]}` and {len(places) - 1} others ")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_eight_bits_get_each_layout_too(layout):
    """PyTorch does not flip 8-bit floats: no layout of such an input was drawn."""
    x = torch.randn(3, 10, 20).to(torch.float8_e4m3fn)
    (value,) = derive(OtherShapes(("x",), [x], sizes=False), f"`x` {layout}")
    assert value.dtype == x.dtype and LAYOUTS[layout](value.view(torch.uint8))
    assert layout == "expanded" or torch.equal(value.view(torch.uint8), x.view(torch.uint8))


def test_without_promised_sizes_only_layouts_and_types_change():
    shapes = OtherShapes(("x",), [torch.randn(32, 48)], sizes=False)
    for draw in draws_of(shapes):
        assert draw.derive(shapes.inputs, FREE)[0].shape == (32, 48)
        assert list(draw.rules(shapes.inputs, lambda: FREE)) == [FREE]


def test_sizes_around_powers_of_two_are_seen_for_every_dimension():
    torch.manual_seed(0)
    shapes = OtherShapes(("x",), [torch.randn(4, 6, 64, 128)], sizes=True)
    seen = [draw.derive(shapes.inputs, FREE)[0].shape for draw in draws_of(shapes) for _ in range(4)]
    assert all(any(shape[axis] > 64 for shape in seen) for axis in range(4))
    for axis in (2, 3):
        sizes = {shape[axis] for shape in seen}
        assert sizes & {65, 129, 257, 513} and sizes & {63, 127, 255, 511}
        assert any(size % 4 == 0 and size % 32 for size in sizes) and any(
            size % 16 == 0 and size % 32 for size in sizes
        )
    assert any(s[2] > s[3] for s in seen) and any(s[2] < s[3] for s in seen)


def test_one_input_gets_other_layouts_at_its_own_sizes_first():
    def added(x, w):
        return x + w

    inputs = [torch.randn(32, 40), torch.randn(32, 40)]
    others = OtherInputs.of(added, inputs, inputs, native_of(added), gpu=False, domain=None, sizes=True)
    for draw, own_sizes, shape in (
        ("`x` transposed", False, (32, 40)),
        ("all inputs transposed", False, (24, 48)),
        ("all inputs transposed", True, (32, 40)),
    ):
        (x, _), why = others.draw(draw, inputs, own_sizes=own_sizes)
        assert why == "" and x.shape == shape and x.stride(0) == 1, draw


def grouped(x, scales):
    """Rows of x in groups of four, each with a scale; of no rows it takes any number of scales."""
    return x * (scales[torch.arange(len(x)) // 4] if len(scales) * 4 == len(x) or not len(x) else scales[0:-1])


def spans(x, offsets):
    """A sum for each row's span of x; of no rows it takes offsets of any length."""
    return torch.stack([x[a:b].sum(0) for a, b in zip(offsets[: len(x)], offsets[1:])]) if len(x) else x.clone()


@pytest.mark.parametrize(
    ("reference", "inputs", "related"),
    [
        (grouped, [torch.randn(96, 8), torch.rand(24, 1)], lambda x, scales: len(x) == 4 * len(scales)),
        (spans, [torch.randn(24, 8), torch.arange(25)], lambda x, offsets: len(offsets) == len(x) + 1),
    ],
    ids=["groups", "offsets"],
)
def test_where_a_dimension_is_empty_related_sizes_stay_related(reference, inputs, related):
    others = OtherInputs.of(reference, inputs, inputs, native_of(reference), gpu=False, domain=None, sizes=True)
    values, why = others.draw("empty", inputs)
    assert why == "" and len(values[0]) == 0 and related(*values), [value.shape for value in values]


def test_an_empty_dimension_is_left_out_where_the_reference_takes_no_other_sizes():
    def fixed(x):
        return x + torch.ones(47) if x.numel() else x + 1

    inputs = [torch.randn(47)]
    others = OtherInputs.of(fixed, inputs, inputs, native_of(fixed), gpu=False, domain=None, sizes=True)
    values, why = others.draw("empty", inputs)
    assert values == [] and why.startswith("of other sizes: RuntimeError: The size of tensor a (37)")


def test_layouts_of_more_elements_than_a_case_may_have_are_drawn_at_small_sizes():
    def negative(x):
        return -x

    inputs = [torch.zeros(1 << 21, 1)]
    others = OtherInputs.of(negative, inputs, inputs, native_of(negative), gpu=False, domain=None, sizes=True)
    ((x,), why), (none, too_many) = (others.draw("`x` transposed", inputs, own_sizes=own) for own in (False, True))
    assert (
        why == "" and x.numel() < 100 and none == [] and "2,097,152 elements take the emulated GPU too long" in too_many
    )


def test_calls_in_turn_have_as_many_elements_and_another_type():
    shapes = OtherShapes(("x",), [torch.randn(100, 200, dtype=torch.float16)], sizes=True)
    cases = {case.name: case for case in shapes.cases() if case.back}
    first, second = (derive(shapes, draw)[0] for draw in cases["as many elements in another shape"].draws)
    assert first.shape == second.shape[::-1] and first.shape[0] != first.shape[1]
    first, second = (derive(shapes, draw)[0] for draw in cases["the same shape in another type"].draws)
    assert first.shape == second.shape and second.dtype == OTHER_TYPE[first.dtype]


def test_as_many_heads_as_batches_stay_few_and_calls_in_turn_have_as_many_elements():
    """A size that counts twice had been made 24 and 48: 576 and 2304 blocks, and other numbers of elements."""
    inputs = [torch.randn(4, 4, 8, 256), torch.rand(4)]
    shapes = OtherShapes(("x", "decay"), inputs, sizes=True)
    assert derive(shapes, "small sizes")[0].shape == (4, 4, 24, 48)
    assert derive(shapes, "sizes swapped")[0].shape == (4, 4, 48, 24)
    assert derive(shapes, "more than 2^10 rows")[0].shape[2] > 1024


def test_a_quick_plan_names_the_cases_that_it_leaves_to_a_full_one():
    def scaled(x, scale):
        return x * scale

    inputs = [torch.randn(32, 48), 0.5]
    others = OtherInputs.of(scaled, inputs, inputs, native_of(scaled), gpu=False, domain=None, sizes=True)
    quick, full = others.plan(quick=True), others.plan(quick=False)
    assert full.left == () and {"offsets", "zeros", "other values of `scale`", "layouts of `x`"} <= {*quick.left}
    assert "odd sizes" not in quick.left and "layouts of all inputs" not in quick.left
    drawn = {name for case in quick.cases for name in case.draws}
    assert {case.name for case in full.cases} == {*quick.left} | {c.name for c in full.cases if drawn >= {*c.draws}}


def test_quick_draws_change_sizes_and_the_layout_of_all_inputs_where_sizes_are_promised():
    inputs = [torch.randn(32, 48), torch.randn(48)]
    quick = [case.name for case in OtherShapes(("x", "w"), inputs, sizes=True).cases(quick=True)]
    assert quick == ["odd sizes", "empty", "size 1 for 48", "size 1 for 32", "layouts of all inputs"]
    assert not list(OtherShapes(("x", "w"), inputs, sizes=False).cases(quick=True))


@pytest.mark.slow
def test_a_size_that_the_reference_needs_stays_where_others_change():
    """Points have two coordinates: with 24 no layout of any input was tried."""

    def sampled(value, points):
        return torch.nn.functional.grid_sample(value, points, align_corners=False)

    inputs = [torch.randn(3, 5, 16, 16), torch.rand(3, 40, 4, 2)]
    others = OtherInputs.of(sampled, inputs, inputs, native_of(sampled), gpu=False, domain=None, sizes=True)
    for draw in ("all inputs transposed", "all inputs with gaps between rows", "odd sizes"):
        (value, points), why = others.draw(draw, inputs)
        assert why == "" and points.shape[-1] == 2 and value.shape != inputs[0].shape, draw
    assert "size 2" in others.draw("size 1 for 2", inputs)[1]


def by_chunks(x, w):
    gate, value = x.chunk(2, -1)
    return torch.nn.functional.silu(gate) * value * w


def rotated(packed, cosines):
    parts = packed.view(len(packed), 3, 8, cosines.shape[-1])
    return parts * cosines[:, None, None]


RELATED = {
    "twice the width": (by_chunks, [(64, 256), (128,)]),
    "an even width": (lambda x: by_chunks(x, 1.0), [(64, 250)]),
    "heads times width": (lambda q, k: q * k.flatten(2), [(2, 9, 96), (2, 9, 6, 16)]),
    "three times eight heads": (rotated, [(9, 768), (9, 32)]),
    "one more border than parts": (lambda borders, scales: borders.diff() * scales, [(33,), (32,)]),
    "eight groups": (lambda x, w: torch.nn.functional.group_norm(x, 8, w), [(4, 32, 9), (32,)]),
    "four times a width of whole warps": (
        lambda x, w: x.unflatten(-1, (4, -1)).sum(-2).unflatten(-1, (-1, 32)).sum(-1) @ w.unflatten(0, (-1, 32))[:, 0],
        [(64, 512), (128, 24)],
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", RELATED)
def test_sizes_that_belong_together_change_together(name, seed):
    torch.manual_seed(seed)
    reference, shapes = RELATED[name]
    inputs = [torch.randn(shape) for shape in shapes]
    others = OtherInputs.of(reference, inputs, inputs, native_of(reference), gpu=False, domain=None, sizes=True)
    seen = set()
    for draw in ("odd sizes", "2^n + 1", "multiples of 4", "all inputs one element past an aligned address"):
        values, why = others.draw(draw, inputs)
        assert why == "", draw
        reference(*values)
        seen.add(tuple(value.shape for value in values))
    assert len(seen) == 4 and tuple(value.shape for value in inputs) not in seen


def test_sizes_that_a_reference_keeps_are_looked_for_once():
    calls = []

    def reference(x, w):
        calls.append(1)
        if x.shape != (64, 256):
            raise ValueError("other sizes")
        return x[:, :128] * w

    inputs = [torch.randn(64, 256), torch.randn(128)]
    others = OtherInputs.of(reference, inputs, inputs, native_of(reference), gpu=False, domain=None, sizes=True)
    assert "other sizes" in others.draw("odd sizes", inputs)[1]
    searched = len(calls)
    assert "other sizes" in others.draw("2^n + 1", inputs)[1]
    assert searched < 150 and len(calls) - searched < 8


def causal(q, k):
    scores = q @ k.mT
    return scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(k.shape[-2] - q.shape[-2]), -1e4)


def test_sizes_that_are_equal_by_chance_are_drawn_apart():
    inputs = [torch.randn(64, 32), torch.randn(64, 32)]
    others = OtherInputs.of(causal, inputs, inputs, native_of(causal), gpu=False, domain=None, sizes=True)
    draws = next(case.draws for case in others.plan(quick=False).cases if case.name == "equal sizes apart")
    assert "`k` with another size for 64" in draws
    (q, k), why = others.draw("`k` with another size for 64", inputs)
    assert not why and (q.shape, k.shape) == ((64, 32), (37, 32))
    assert "RuntimeError" in others.draw("`k` with another size for 32", inputs)[1]


def test_a_batch_of_one_becomes_one_of_three_different_ones():
    inputs = [torch.randn(1, 64, 48), torch.randn(1, 1, 48)]
    reference = torch.add
    others = OtherInputs.of(reference, inputs, inputs, native_of(reference), gpu=False, domain=None, sizes=True)
    (x, bias), why = others.draw("three where one is drawn", inputs)
    assert not why and x.shape == (3, 64, 48) and bias.shape == (1, 1, 48)
    assert not torch.equal(x[0], x[1]) and not torch.equal(x[0], x[2])


def ctc(scores, labels):
    frames, batch = scores.shape[:2]
    lengths = [torch.full((batch,), size, dtype=torch.long) for size in (frames, labels.shape[1])]
    log_probabilities = scores.float().log_softmax(2)
    return torch.nn.functional.ctc_loss(log_probabilities, labels.clamp(min=1), *lengths, reduction="none")


def test_sizes_with_finite_results_are_drawn_before_those_with_inf_alone():
    """Odd sizes gave 5 frames for 37 labels: no path was possible, and every loss was Inf."""
    torch.manual_seed(0)
    inputs = [torch.randn(120, 6, 40), torch.randint(1, 40, (6, 24))]
    others = OtherInputs.of(ctc, inputs, inputs, native_of(ctc), gpu=False, domain=None, sizes=True)
    free = others.shapes.draws["odd sizes"].derive(inputs, FREE)
    assert not ctc(*free).isfinite().any()
    (scores, labels), why = others.draw("odd sizes", inputs)
    assert why == "" and ctc(scores, labels).isfinite().any() and scores.shape != inputs[0].shape


def test_a_draw_without_finite_results_is_made_where_there_is_no_other():
    inputs = [torch.randn(64, 48)]

    def scaled(x):
        return x.sum(-1) / (x.shape[-1] - 1)

    others = OtherInputs.of(scaled, inputs, inputs, native_of(scaled), gpu=False, domain=None, sizes=True)
    (x,), why = others.draw("size 1 for 48", inputs)
    assert why == "" and x.shape == (64, 1)


@pytest.mark.slow
def test_sizes_for_which_a_state_is_too_large_are_left_out():
    """Few inputs may have a state of many elements, which the judge would hold in float64 several times over."""

    def states(x):
        return x[:, :, None] * x[:, None, :]

    inputs = [torch.randn(4, 64)]
    others = OtherInputs.of(states, inputs, inputs, native_of(states), gpu=False, domain=None, sizes=True)
    drawn = {name: others.draw(name, inputs) for name in ("2^n + 1", "more than 2^13 columns")}
    assert drawn["2^n + 1"][0] and not drawn["2^n + 1"][1]
    values, why = drawn["more than 2^13 columns"]
    assert not values and "makes a tensor of" in why and why.endswith("MB of it")
    assert others.drawing.seen.largest == 4 * 64 * 64 * 4


@pytest.mark.parametrize(
    "reference",
    [lambda x: x.to_sparse().to_dense() + 1, lambda x: torch.vmap(lambda row: row / row.sum())(x)],
    ids=["sparse", "vmap"],
)
def test_a_tensor_without_memory_of_its_own_is_not_measured(reference):
    inputs = [torch.rand(4, 64) + 1]
    others = OtherInputs.of(reference, inputs, inputs, native_of(reference), gpu=False, domain=None, sizes=True)
    values, why = others.draw("2^n + 1", inputs)
    assert values and not why
