"""What is drawn for each kind of input, and which structure of an input a draw keeps."""

import pytest
import torch
import torch.nn.functional as F

from cutesmith.judge.draws import values as v
from cutesmith.judge.draws.cases import IN_ITS_DOMAIN, NEGATIVE_INDICES, Drawing
from cutesmith.judge.draws.domains import declared
from cutesmith.judge.draws.kinds import Kind, Role, Structure, kind_of, kinds_of, structure_of, with_ends_of
from cutesmith.judge.draws.watching import Seen, watch
from cutesmith.judge.reference_side.other_inputs import _difference

pytestmark = pytest.mark.usefixtures("seeded")
SEEDED = torch.Generator().manual_seed(5)
ROWS = torch.randn(64, 48, generator=SEEDED)
NARROW = torch.randn(2, 30, 4, generator=SEEDED).to(torch.bfloat16)
TRIANGLE = torch.ones(40, 40).tril()


@pytest.mark.parametrize(
    ("value", "role", "structure"),
    [
        (ROWS, Role.FLOAT, Structure.NONE),
        (torch.ones(500), Role.FLOAT, Structure.CONSTANT),
        (torch.arange(64), Role.INTEGER, Structure.SEQUENCE),
        (torch.linspace(0, 1, 33), Role.FLOAT, Structure.SEQUENCE),
        (torch.arange(64).expand(3, 64), Role.INTEGER, Structure.SEQUENCE),
        (torch.randint(9, (200,), generator=SEEDED).sort().values, Role.INTEGER, Structure.SORTED),
        (TRIANGLE.bool(), Role.BOOLEAN, Structure.TRIANGLE),
        (TRIANGLE.mT.expand(2, 40, 40), Role.FLOAT, Structure.TRIANGLE),
        (torch.zeros(40, 40).masked_fill(TRIANGLE == 0, -torch.inf), Role.FLOAT, Structure.TRIANGLE),
        (torch.randn(40, 40, generator=SEEDED).tril(), Role.FLOAT, Structure.TRIANGLE),
        (torch.eye(12), Role.FLOAT, Structure.IDENTITY),
        (torch.zeros(64).masked_fill(ROWS[:, 0] < 0, -torch.inf), Role.FLOAT, Structure.TWO_VALUES),
        (ROWS @ ROWS.T, Role.FLOAT, Structure.SYMMETRIC),
        (ROWS[:, :48] < 0, Role.BOOLEAN, Structure.NONE),
        (torch.randint(-5, 5, (64,), generator=SEEDED), Role.INTEGER, Structure.NONE),
        (0.5, Role.SCALAR, Structure.NONE),
        (torch.empty(0, 8), Role.OTHER, Structure.NONE),
        (torch.zeros(4, dtype=torch.complex64), Role.OTHER, Structure.NONE),
    ],
)
def test_an_input_is_known_by_its_values(value, role, structure):
    kind = kind_of("x", value)
    assert (kind.role, kind.structure) == (role, structure)


def test_a_structure_is_found_in_a_corner_of_what_is_large():
    assert kind_of("mask", torch.ones(3000, 3000, dtype=torch.bool).tril()).structure is Structure.TRIANGLE
    assert kind_of("x", torch.randn(3000, 3000)).structure is Structure.NONE


def test_ranges_are_those_that_were_drawn_up_to_0_and_1():
    unit, shares, signed = (kind_of("x", x) for x in (torch.rand(500), ROWS.softmax(-1), ROWS))
    assert (unit.low, unit.high, unit.bounded) == (0.0, 1.0, True)
    assert shares.shares and not unit.shares and not signed.bounded
    far = kind_of("x", torch.rand(500) + 0.5)
    assert 0.5 <= far.low < 0.6 and 1.4 < far.high <= 1.5
    assert shares.words == f"float from 0 to {shares.high:.4g}, rows sum to 1"


def test_inputs_are_called_as_the_reference_calls_them():
    names = [kind.name for kind in kinds_of(lambda x, weight, *rest: x, [ROWS, ROWS, ROWS])]
    assert names == ["x", "weight", "input 2"]


@pytest.mark.parametrize(
    "change",
    [v.zeros_scattered, v.zeros, v.ties, v.one_value, v.mixed_sizes, v.ends, v.redrawn, v.offset, v.tiny, v.specials],
)
@pytest.mark.parametrize("tensor", [ROWS, ROWS.mT, torch.rand(70, generator=SEEDED), NARROW])
def test_a_draw_keeps_shape_dtype_and_the_order_in_memory_and_leaves_what_it_was_given(change, tensor):
    before = tensor.clone()
    drawn = change(tensor, kind_of("x", tensor))
    assert (drawn.shape, drawn.dtype, drawn.stride()) == (tensor.shape, tensor.dtype, tensor.stride())
    assert torch.equal(tensor, before) and not torch.equal(drawn, tensor)


@pytest.mark.parametrize("scalar", [torch.tensor(0.3), torch.tensor(3), torch.tensor(True)])
def test_draws_of_a_tensor_without_dimensions_have_none(scalar):
    kind = kind_of("scale", scalar)
    for change in (v.one_value, v.ties, v.zeros, v.redrawn, v.infinite_runs, v.between_its_ends):
        drawn = change(scalar, kind)
        assert (drawn.shape, drawn.dtype) == (scalar.shape, scalar.dtype)
    assert torch.equal(v.one_value(scalar, kind), scalar), "its one element"


def test_zeros_have_both_signs_rows_and_columns():
    drawn = v.zeros_scattered(ROWS, kind_of("x", ROWS))
    zeros = drawn == 0
    assert zeros.all(-1).any() and zeros.all(0).any() and not zeros.all()
    assert drawn.signbit()[zeros].any() and not drawn.signbit()[zeros].all()


def test_equal_values_stand_in_runs_in_rows_and_scattered_and_were_there_before():
    drawn = v.ties(ROWS, kind_of("x", ROWS))
    assert len(drawn.unique()) <= v.LEVELS and torch.isin(drawn, ROWS).all()
    assert (drawn[::4] == drawn[::4, :1]).all() and not (drawn[1] == drawn[1, 0]).all()
    assert len(v.one_value(ROWS, kind_of("x", ROWS)).unique()) == 1


def test_what_is_bounded_stays_between_its_ends_which_are_drawn_exactly():
    unit = torch.rand(64, 48)
    kind = kind_of("p", unit)
    for change in (v.ends, v.mixed_sizes, v.zeros_scattered, v.ties, v.redrawn):
        drawn = change(unit, kind)
        assert drawn.min() >= 0 and drawn.max() <= 1
    drawn = v.ends(unit, kind)
    assert (drawn == 0).all(-1).any() and (drawn == 1).all(-1).any() and not ((drawn == 0) | (drawn == 1)).all()


def test_rows_that_sum_to_one_still_do():
    shares = ROWS.softmax(-1)
    drawn = v.ends(shares, kind_of("p", shares))
    assert torch.equal(drawn.sum(-1), torch.ones(64)) and set(drawn.unique().tolist()) == {0.0, 1.0}
    drawing = Drawing((kind_of("p", shares),), Seen())
    assert {draw for case in drawing.cases(quick=False) for draw in case.draws} == {"ends"}


def test_numbers_that_decide_are_drawn_and_passed_on_both_sides():
    seen = watch(lambda x: F.hardtanh(x, -3000.0, 3000.0).where(x != 7, 0.0), [ROWS])
    assert seen.floats == {-3000.0, 3000.0, 7.0}
    drawn = v.ends(ROWS, kind_of("x", ROWS), sorted(seen.floats))
    assert drawn.min() < -3000 and drawn.max() > 3000 and (drawn == 7).any()


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (lambda x, y: F.cross_entropy(x, y), {-100}),
        (lambda x, y: F.nll_loss(x, y, ignore_index=-1), {-1}),
        (lambda x, y: x[y.clamp(min=0)] * (y != 3)[:, None], {0, 3}),
        (lambda x, y: x[y], set()),
    ],
)
def test_special_labels_are_those_that_the_reference_knows(reference, expected):
    assert watch(reference, [ROWS, torch.randint(48, (64,))]).integers == expected


@pytest.mark.parametrize(
    ("reference", "open_ties"),
    [
        (lambda x: x.argmax(-1), False),
        (lambda x: torch.topk(x, 3), True),
        (lambda x: x.sort(-1), True),
        (lambda x: x.sort(dim=-1, stable=True), False),
    ],
)
def test_functions_that_leave_the_order_of_equal_elements_open_are_known(reference, open_ties):
    assert watch(reference, [ROWS]).open_ties == open_ties


def test_upper_ends_of_labels_are_those_of_the_sizes_at_hand():
    labels = torch.randint(40, (64,))
    kind = with_ends_of(Kind("y", Role.INTEGER, low=0, high=30000), labels, [ROWS, labels])
    assert kind.high == 47
    drawn = v.integer_ends(labels, kind)
    assert {0, 47} <= set(drawn.tolist()) and drawn.max() == 47


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_come_from_all_over_their_type(dtype):
    drawn = v.whole_range(torch.zeros(4096, dtype=dtype), Kind("x", Role.INTEGER))
    limits = torch.iinfo(dtype)
    assert drawn.dtype == dtype and drawn.double().max() > limits.max * 0.9 and drawn.double().min() <= limits.min * 0.9


def test_a_mask_is_drawn_in_all_ways_that_matter():
    mask = TRIANGLE.bool()
    kind = kind_of("mask", mask)
    assert v.masked(mask, kind).diagonal().all() and not torch.equal(v.masked(mask, kind).tril(), v.masked(mask, kind))
    single = v.single(mask, kind)
    assert set(single.sum(-1).tolist()) == {0, 1}


@pytest.mark.parametrize("value", [True, 3, -2, 0, 0.75, 0.0, 1e-5])
def test_other_values_of_a_scalar_are_others_of_its_type(value):
    others = v.scalar_values(value)
    assert others and value not in others and {type(other) for other in others} == {type(value)}


def test_integer_ends_stay_within_their_type_where_a_size_of_another_input_is_beyond_it():
    """Packed weights from 0 to 255 beside 384 columns: the draw raised, and was left out."""
    packed, columns = torch.arange(256, dtype=torch.uint8).repeat(2, 1), torch.randn(2, 384)
    (kind,) = kinds_of(lambda packed: packed, [packed])
    assert with_ends_of(kind, packed, [packed, columns]).high == 255
    assert v.integer_ends(packed, with_ends_of(kind, packed, [packed, columns])).max() == 255
    places = packed.long()
    assert with_ends_of(kind, places, [places, columns]).high == 383


def test_draws_of_a_scalar_are_named_by_its_values():
    """The numbers of draws read as values: "`k` in 6 more ways: value 1, 2, 3" was taken for small ones alone."""
    drawing = Drawing(kinds_of(lambda x, k, scale: x, [ROWS, 8, 0.75]), Seen())
    assert {"`k` = 9", "`k` = 64", "`k` = -8", "`scale` = 9", "`scale` = 0.858333"} <= set(drawing.draws)


def test_other_numbers_of_groups_divide_as_many_channels_and_sizes_stay_affordable():
    assert {16, 64} <= set(v.scalar_values(8)) and max(v.scalar_values(4096)) == 8192


def test_quick_draws_floats_moved_or_scaled_as_a_whole_and_one_other_set_of_scalars():
    kinds = kinds_of(lambda x, y, n, scale: x, [ROWS, torch.arange(9), 3, 0.5])
    drawing = Drawing(kinds, Seen())
    *of_floats, scalars = drawing.cases(quick=True)
    assert [case.name for case in of_floats] == ["large offset", "tiny values", "large values", "NaN and Inf"]
    (name,) = scalars.draws
    assert drawing.changed(drawing.draws[name][0], [ROWS, None, 3, 0.5])[2:] == [4, pytest.approx(0.35 + 1 / 3)]
    assert Drawing(kinds[1:2], Seen()).cases(quick=True) == []
    assert Drawing(declared({"x": "fixed", "n": "fixed", "scale": "fixed"}, kinds), Seen()).cases(quick=True) == []


def test_other_scalars_come_before_most_other_draws_as_a_crash_ends_the_verification():
    names = [case.name for case in Drawing(kinds_of(lambda x, n: x, [ROWS, 3]), Seen()).cases(quick=False)]
    assert names[:2] == ["the same beginning", "other values of `n`"]


def test_a_probability_is_drawn_with_both_ends_and_neither_moved_nor_scaled():
    p = torch.rand(64, 48) * 0.5 + 0.25
    kinds = declared({"p": "probability"}, kinds_of(lambda p: p, [p]))
    drawing = Drawing(kinds, Seen())
    assert not {"large offset", "large values", "NaN and Inf"} & set(drawing.draws)
    drawn = drawing.changed(drawing.draws["ends"][0], [p])[0]
    assert drawn.max() == 1.0 and drawn.min() == 0.0


def test_a_mask_that_is_added_gets_other_finite_values_and_keeps_its_infinite_ones():
    mask = torch.zeros(64, 48).masked_fill(torch.rand(64, 48) < 0.3, -torch.inf)
    drawn = v.redrawn(mask, kind_of("mask", mask))
    assert drawn.isinf().sum() == mask.isinf().sum() and drawn[drawn.isfinite()].std() > 0.5


def test_borders_and_lengths_keep_their_ends_and_their_sum():
    borders, lengths = torch.arange(0, 65, 8), torch.full((8,), 8)
    drawn = v.between_its_ends(borders, kind_of("borders", borders))
    assert (drawn[0], drawn[-1]) == (0, 64) and (drawn.diff() >= 0).all() and not torch.equal(drawn, borders)
    drawn = v.between_its_ends(lengths, kind_of("lengths", lengths))
    assert drawn.sum() == 64 and drawn.min() >= 0 and not torch.equal(drawn, lengths)


@pytest.mark.parametrize("places", [64, 200], ids=["all places", "some places"])
@pytest.mark.parametrize(
    ("reference", "draws"),
    [
        (lambda x, ids: x.new_zeros(200, x.shape[1]).index_copy(0, ids, x), set()),
        (lambda x, ids: x.repeat(4, 1)[ids], {"integer ends", "one integer"}),
    ],
)
def test_places_are_repeated_only_where_pytorch_says_what_comes_of_it(reference, draws, places):
    inputs = [ROWS, torch.randperm(places)[:64]]
    drawing = Drawing(kinds_of(reference, inputs), watch(reference, inputs))
    assert {"integer ends", "one integer"} & set(drawing.draws) == draws
    assert {"integer ends", "one integer"} - set(drawing.left_out(1)) == draws


def test_places_that_the_problem_repeats_itself_are_repeated():
    inputs = [ROWS, torch.randint(8, (64,))]
    reference = lambda x, ids: torch.zeros_like(x).index_copy(0, ids, x)  # noqa: E731
    drawing = Drawing(kinds_of(reference, inputs), watch(reference, inputs))
    assert {"integer ends", "one integer"} <= set(drawing.draws)


@pytest.mark.parametrize("shape", [(64, 9, 9, 3, 40), (8, 8, 8, 8, 8), (16, 16, 16, 64), (4096, 8)])
def test_sorted_rows_are_seen_whatever_stands_before_them(shape):
    assert kind_of("x", torch.rand(shape).sort(-1).values).structure is Structure.SORTED
    assert kind_of("x", torch.rand(shape)).structure is Structure.NONE


def test_numbers_that_cannot_be_compared_have_no_structure():
    ones = torch.ones(8, 16)
    assert structure_of(ones) is Structure.CONSTANT
    assert {structure_of(ones.to(kind)) for kind in (torch.float8_e4m3fn, torch.complex64)} == {Structure.NONE}


def test_what_is_not_drawn_for_an_input_is_told_with_its_reason():
    values = [ROWS, ROWS.abs(), TRIANGLE.bool(), torch.randint(9, (48,))]
    kinds = declared({"mask": "causal", "ids": "positive"}, kinds_of(lambda x, p, mask, ids: x, values))
    drawing = Drawing(kinds, Seen(exponentials=True))
    told = {kind.name: drawing.left_out(place) for place, kind in enumerate(kinds)}
    assert told["mask"] == {"other values": "DOMAIN declares that it is causal"}
    assert told["ids"] == {NEGATIVE_INDICES: "DOMAIN declares that it is positive"}
    assert "exponentials" in told["x"]["squares above"]
    assert "negative offset" in told["p"] and "negative offset" not in told["x"]
    for place in range(len(kinds)):
        assert not any(place in drawing.changed_by(name) for name in told[kinds[place].name])
    assert "negative offset" in drawing.draws and drawing.changed_by("negative offset") == (0,)


def test_nan_is_drawn_in_inputs_that_are_not_the_largest_too():
    """A kernel of deformable sampling that dropped NaN among its points passed while the map had more elements."""

    def scaled(x, weight, bias):
        return x * weight + bias

    inputs = [torch.randn(64, 32), torch.randn(32), torch.randn(32)]
    drawing = Drawing(kinds_of(scaled, inputs))
    assert ("NaN and Inf", "NaN elsewhere") in [case.draws for case in drawing.cases(quick=False)]
    for name, changed in (("NaN and Inf", [True, False, False]), ("NaN elsewhere", [False, True, True])):
        values = drawing.changed(drawing.draws[name][0], inputs)
        assert [bool(value.isnan().any()) for value in values] == changed
        assert scaled(*values).isnan().float().mean() < 0.2
    alone = Drawing(kinds_of(torch.relu, inputs[:1]))
    assert "NaN elsewhere" not in {draw for case in alone.cases(quick=False) for draw in case.draws}


def test_what_changed_is_said_by_values_or_by_what_is_not_finite():
    old = torch.ones(2, 4)
    new = old.clone()
    new[0, :3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    assert _difference(old, new) == "has NaN or Inf in 3 of 8 elements"
    new[1] = 3.0
    assert _difference(old, new) == "changed in 88% of its elements by up to 2, 3 NaN or Inf"


def test_numbers_far_out_are_of_one_sign_and_leave_the_usual_first_guesses_behind():
    for dtype, told in ((torch.float32, True), (torch.bfloat16, True), (torch.float16, False)):
        x = ROWS.to(dtype)
        above, below = v.far_above(x, kind_of("x", x)), v.far_below(x, kind_of("x", x))
        assert (bool((above > 1e9).all()) and bool((below < -1e9).all())) == told
        assert torch.equal(above, x) != told and above.dtype == dtype
    draws = Drawing(kinds_of(torch.relu, [ROWS, ROWS.abs()]), Seen()).draws
    assert draws["far above"][0].places == (0, 1) and draws["far below"][0].places == (0,)
    assert not {"far above", "far below"} & set(Drawing(kinds_of(torch.exp, [ROWS]), Seen(exponentials=True)).draws)


def test_what_is_sorted_or_each_value_once_stays_so_and_is_drawn_again():
    starts, order, x = torch.arange(0, 65, 4), torch.randperm(48), torch.randn(64, 48)
    domain = {"starts": "sorted", "order": "permutation"}
    kinds = declared(domain, kinds_of(lambda x, starts, order: x, [x, starts, order]))
    drawing = Drawing(kinds, Seen())
    assert IN_ITS_DOMAIN in {draw for case in drawing.cases(quick=False) for draw in case.draws}
    _, other, shuffled = drawing.changed(drawing.draws[IN_ITS_DOMAIN][0], [x, starts, order])
    assert (other[0], other[-1]) == (0, 64) and (other.diff() >= 0).all() and not torch.equal(other, starts)
    assert torch.equal(shuffled.sort().values, torch.arange(48)) and not torch.equal(shuffled, order)
    elsewhere = {name for name, ways in drawing.draws.items() if set(ways[0].places) & {1, 2}}
    assert elsewhere == {IN_ITS_DOMAIN}


def test_coordinates_of_the_unit_interval_are_drawn_with_both_ends():
    p = torch.rand(64, 48) * 0.5 + 0.25
    drawing = Drawing(declared({"p": "probability"}, kinds_of(lambda p: p, [p])), Seen())
    drawn = drawing.changed(drawing.draws["ends"][0], [p])[0]
    assert drawn.max() == 1.0 and drawn.min() == 0.0 and "large offset" not in drawing.draws


def test_indices_from_the_end_that_a_narrow_type_cannot_count_stay():
    """An error there took all other draws of int8 weights with it."""
    weights = torch.randint(-127, 128, (64, 48), dtype=torch.int8)
    weights[0, 0] = 127
    assert torch.equal(v.negative_indices(weights, kind_of("w", weights)), weights)
    few = torch.randint(0, 9, (64,), dtype=torch.int8)
    assert v.negative_indices(few, kind_of("ids", few)).min() < 0
