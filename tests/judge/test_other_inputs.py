"""What a reference decides of the inputs that are drawn for it: it refuses some, and a domain forbids some."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import ContractError
from cutesmith.judge.draws.cases import REDRAWN
from cutesmith.judge.draws.watching import watch
from cutesmith.judge.reference_side.cases import resize
from cutesmith.judge.reference_side.other_inputs import OtherInputs
from cutesmith.judge.reference_side.problem_calls import native_outputs

pytestmark = pytest.mark.usefixtures("seeded")
SEEDED = torch.Generator().manual_seed(5)
ROWS = torch.randn(64, 48, generator=SEEDED)
TRIANGLE = torch.ones(40, 40).tril()


def other_inputs(reference, inputs, domain=None, *, gpu=False) -> OtherInputs:
    return OtherInputs.of(
        reference,
        inputs,
        inputs,
        lambda values: native_outputs(reference, values),
        gpu=gpu,
        domain=domain,
        sizes=False,
    )


def test_what_the_reference_refuses_is_left_out_with_its_reason():
    labels = torch.randint(48, (64,))
    other = other_inputs(lambda x, y: F.nll_loss(x, y), [ROWS, labels])
    _, why = other.draw("whole range", [ROWS, labels])
    assert "IndexError" in why
    values, why = other.draw("special integers", [ROWS, labels])
    assert not why and (values[1] == -100).any()


def test_one_value_everywhere_is_drawn_positive_where_the_reference_takes_nothing_else():
    ones = torch.ones(48)
    other = other_inputs(lambda x, variance: x * torch.rsqrt(variance), [ROWS, ones])
    values, why = other.draw(REDRAWN, [ROWS, ones])
    assert not why and values[1].min() > 0 and values[1].std() > 0.1
    assert torch.equal(values[0], ROWS)
    plain = other_inputs(lambda x, weight: x * weight, [ROWS, ones])
    assert plain.draw(REDRAWN, [ROWS, ones])[0][1].min() < 0


def test_casts_that_pytorch_leaves_undefined_decide_nothing():
    other = other_inputs(lambda x: x.round().to(torch.int8), [ROWS])
    assert "undefined" in other.draw("large offset", [ROWS])[1]
    assert other.draw("tiny values", [ROWS])[1] == ""


def masked_sum(x, mask, k):
    return torch.where(mask, x, 0.0).sum(-1) * k


@pytest.mark.parametrize(
    ("domain", "unchanged"),
    [
        ({}, set()),
        ({"mask": "causal"}, {"mask"}),
        ({"mask": "fixed", "k": "fixed"}, {"mask", "k"}),
        ({"k": "positive"}, set()),
    ],
)
def test_what_a_problem_declares_keeps_its_inputs(domain, unchanged):
    inputs = [torch.randn(40, 40), TRIANGLE.bool(), 3]
    planned = other_inputs(masked_sum, inputs, domain).plan(quick=False)
    of_values = {
        kind.name: [draw for draw in kind.drawn if not draw.startswith(f"`{kind.name}` with")] for kind in planned.kinds
    }
    layouts = {"`mask` transposed", "`mask` one element past an aligned address"}
    assert {name for name, draws in of_values.items() if set(draws) <= layouts} == unchanged
    assert {kind.name: kind.domain for kind in planned.kinds if kind.domain} == domain


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ("causal", "is 'causal', no dict"),
        ({"masks": "causal"}, "names 'masks', which reference_fn does not take"),
        ({"mask": "lower"}, "says that mask is 'lower'"),
        ({"x": "probability"}, "but get_inputs draws: float"),
        ({"mask": "arange"}, "but get_inputs draws: boolean, a triangle"),
        ({"x": "causal"}, "says that x is causal, but get_inputs draws: float"),
        ({"x": "sorted"}, "says that x is sorted, but get_inputs draws: float"),
        ({"x": "positive"}, "says that x is positive, but get_inputs draws: float"),
        ({"mask": "positive"}, "says that mask is positive, but get_inputs draws: boolean"),
    ],
)
def test_a_domain_that_its_own_draws_contradict_is_a_broken_contract(domain, words):
    with pytest.raises(ContractError, match=words):
        other_inputs(masked_sum, [torch.randn(40, 40), TRIANGLE.bool(), 3], domain)


@pytest.mark.parametrize("gpu", [False, True])  # on a GPU each way is tried on the CPU first, not only the first one
def test_borders_are_redrawn_in_the_way_that_the_reference_takes(gpu):
    borders = torch.arange(0, 65, 8)

    def sums(x, borders):
        return torch.stack([part.sum(0) for part in x.split(borders.diff().tolist())])

    split = other_inputs(sums, [ROWS, borders], gpu=gpu)
    values, why = split.draw(REDRAWN, [ROWS, borders])
    assert not why and not torch.equal(values[1], borders)


@pytest.mark.parametrize("new", [5, 90])
def test_smaller_and_larger_inputs_keep_an_order_a_triangle_and_a_permutation(new):
    ordered, permuted = torch.randint(4, (48,)).sort().values, torch.randperm(48)
    drawn, other = resize([ordered, permuted], {48: new})
    assert (drawn.diff() >= 0).all() and drawn.shape == (new,)
    assert torch.equal(other.sort().values, torch.arange(new))
    (mask,) = resize([TRIANGLE.bool()], {40: 9})
    assert torch.equal(mask, torch.ones(9, 9, dtype=torch.bool).tril())


@pytest.mark.parametrize(("new", "places"), [(5, 300), (48, 60)])
def test_places_stay_different_where_there_are_fewer_of_them(new, places):
    cache, slots = torch.zeros(300, 4), torch.randperm(300)[:48]
    cache, slots = resize([cache, slots], {48: new, 300: places})
    assert slots.unique().numel() == new and slots.max() < len(cache) == places


@pytest.mark.parametrize(
    ("reference", "ids", "why"),
    [
        (lambda x, ids: x[ids], torch.arange(64).flip(0), ""),
        (lambda x, ids: x.index_select(0, ids), torch.arange(64), "IndexError"),
        (lambda x, ids: x.gather(0, ids[:, None]), torch.arange(64), "RuntimeError"),
        (lambda x, ids: x[ids.clamp(min=0)], torch.arange(64), "it changes no input"),
        (lambda x, ids: x + ids[:, None], torch.arange(64), "takes any integer"),
    ],
)
def test_indices_are_counted_from_the_end_where_the_reference_takes_that(reference, ids, why):
    values, refused = other_inputs(reference, [ROWS, ids]).draw("negative indices", [ROWS, ids])
    assert why in refused and bool(why) == bool(refused)
    assert why or (values[1].min() < 0 <= values[1].max() and torch.equal(ROWS[values[1]], ROWS[ids]))


def test_of_two_integer_inputs_that_alone_is_negative_which_may_be():
    inputs = [ROWS, torch.randint(64, (8,)), torch.randint(48, (8,))]
    other = other_inputs(lambda x, ids, labels: F.nll_loss(x[ids], labels, ignore_index=5), inputs)
    values, why = other.draw("negative indices", inputs)
    assert not why and values[1].min() < 0 <= values[2].min()


def test_a_draw_that_changes_nothing_is_not_counted():
    ones = torch.ones(8)
    assert "changes no input" in other_inputs(lambda x: x + 1, [ones]).draw("few values", [ones])[1]


def watched(function):
    """PyTorch's results as on a GPU, and a list of the indices that would have ended its process there."""
    reached = []

    def native(values):
        try:
            return native_outputs(function, values)
        except IndexError as error:
            reached.append(str(error))
            raise

    return native, reached


@pytest.mark.parametrize("rows", [1, 4096])
def test_labels_that_a_gpu_would_assert_on_never_reach_it(rows):
    """Some of many labels are beyond the classes, none of a few; a size that is drawn may have no class at all."""
    native, reached = watched(F.cross_entropy)
    inputs = [torch.randn(rows, 300, generator=SEEDED), torch.randint(0, 300, (rows,), generator=SEEDED)]
    drawn = OtherInputs.of(F.cross_entropy, inputs, inputs, native, gpu=True, domain=None, sizes=True)
    for name in dict.fromkeys(name for case in drawn.plan(quick=False).cases for name in case.draws):
        drawn.draw(name, inputs)
    assert reached == []


def rows_of(table, ids):
    return table[ids]


@pytest.mark.parametrize("rows", [64, 20000])
def test_a_table_that_is_made_shorter_alone_never_reaches_a_gpu(rows):
    """Of 64 rows and 64 indices, one of both is drawn shorter, so that an index may be beyond the rows."""
    native, reached = watched(rows_of)
    inputs = [torch.randn(rows, 500, generator=SEEDED), torch.randint(0, rows, (rows,), generator=SEEDED)]
    drawn = OtherInputs.of(rows_of, inputs, inputs, native, gpu=True, domain=None, sizes=True)
    names = [name for name in drawn.shapes.draws if "with another size" in name]
    assert names
    for name in names * 3:
        drawn.draw(name, inputs)
    assert reached == []


def test_labels_that_another_ignore_index_uncovers_never_reach_a_gpu():
    """A fifth of the labels is -100, and none of the two that the CPU tries may be."""

    def loss(x, weight, target, ignored):
        return F.cross_entropy(x @ weight.T, target, ignore_index=ignored)

    native, reached = watched(loss)
    target = torch.randint(0, 100, (40,), generator=SEEDED)
    target[::5] = -100
    inputs = [torch.randn(40, 16384, generator=SEEDED), torch.randn(100, 16384, generator=SEEDED), target, -100]
    drawn = OtherInputs.of(loss, inputs, inputs, native, gpu=True, domain=None, sizes=True)
    names = [name for name in drawn.drawing.draws if "ignored" in name or "integer" in name]
    assert any("ignored" in name for name in names)
    for name in names * 3:
        drawn.draw(name, inputs)
    assert reached == []


def test_layouts_of_a_large_table_whose_sizes_stay_are_drawn_on_a_gpu():
    inputs = [torch.randn(4096, 300, generator=SEEDED), torch.randint(0, 4096, (64,), generator=SEEDED)]
    native, reached = watched(rows_of)
    drawn = OtherInputs.of(rows_of, inputs, inputs, native, gpu=True, domain=None, sizes=False)
    layouts = [name for case in drawn.plan(quick=False).cases if "layouts" in case.name for name in case.draws]
    assert layouts and all(drawn.draw(name, inputs)[0] for name in layouts)
    assert reached == []


DRAWN_ON_A_GPU = {
    "indices from the end": (
        rows_of,
        [torch.randn(300, 500, generator=SEEDED), torch.randint(0, 300, (64,), generator=SEEDED)],
        "negative indices",
    ),
    "lengths that sum to the rows": (
        lambda x, lengths: torch.stack([part.sum(0) for part in x.split(lengths.tolist())]),
        [torch.randn(64, 96, generator=SEEDED), torch.full((8,), 8)],
        "without structure `lengths`",
    ),
    "groups that divide the channels": (F.group_norm, [torch.randn(8, 64, 16, 16, generator=SEEDED), 8], "64 for 8"),
    "many groups": (F.group_norm, [torch.randn(32, 64, 8, 8, generator=SEEDED), 8], "64 for 8"),
}


@pytest.mark.parametrize(("reference", "inputs", "wanted"), DRAWN_ON_A_GPU.values(), ids=DRAWN_ON_A_GPU)
def test_what_the_cpu_tries_first_is_drawn_on_a_gpu_too(reference, inputs, wanted):
    told = {}
    for on_gpu in (False, True):
        drawn = other_inputs(reference, inputs, gpu=on_gpu)
        names = dict.fromkeys(name for case in drawn.plan(quick=False).cases for name in case.draws)
        draws = {name: drawn.draw(name, inputs)[0] for name in names}
        told[on_gpu] = {name: drawn.changes(name, inputs, values) for name, values in draws.items() if values}
    assert set(told[True]) == set(told[False])
    assert any(wanted in f"{name} {change}" for name, change in told[True].items())


def test_where_one_integer_input_is_an_index_the_other_is_drawn_large_all_the_same():
    """Such as letters that index a table of scores: kernels that add scores in 16 bits passed before."""
    inputs = [torch.randint(4, (64,)), torch.randint(-4, 5, (4, 4))]
    other = other_inputs(lambda letters, scores: scores[letters].sum(0), inputs)
    for name in ("large integers", "whole range", "close integers"):
        (letters, scores), why = other.draw(name, inputs)
        assert not why and torch.equal(letters, inputs[0]) and scores.max() > 16
    (letters, scores), why = other.draw("negative indices", inputs)
    assert not why and letters.min() < 0 and torch.equal(scores, inputs[1])


def test_of_several_floats_those_change_that_the_reference_takes_so():
    inputs = [ROWS.clone(), torch.rand(64, 48) + 0.5]

    def reference(x, positive):
        if (positive <= 0).any():
            raise ValueError("not positive")
        return x / positive

    (x, positive), why = other_inputs(reference, inputs).draw("scattered zeros", inputs)
    assert not why and (x == 0).any() and torch.equal(positive, inputs[1])


@pytest.mark.parametrize(
    ("reference", "drawn"),
    [
        (lambda x: x.topk(4), True),  # the places are returned
        (lambda x: x.topk(4).values, True),  # they do not matter
        (lambda x: torch.zeros_like(x).scatter(-1, x.topk(4).indices, 1.0), False),
        (lambda x: x.argmax(-1), True),
    ],
)
def test_equal_values_are_drawn_where_pytorch_says_what_comes_of_them_or_a_result_shows_it(reference, drawn):
    other = other_inputs(reference, [ROWS])
    for name in ("few values", "one value", "halves"):
        assert ("leaves open" not in other.draw(name, [ROWS])[1]) == drawn


def network(x, taps, bias, mean, variance, seen, weight):
    """Convolution, batch norm, pooling and a product of matrices, as image networks have them."""
    x = F.batch_norm(F.conv2d(x, taps, padding=1), mean, variance, eps=0.1)
    x = F.adaptive_avg_pool2d(F.max_pool2d(F.relu(x + bias[:, None, None], inplace=True), 2), 1)
    return F.softmax(torch.flatten(x, 1) @ weight.T / 3, -1)


def test_a_network_that_refuses_no_values_is_not_tried_on_the_cpu():
    """Of VGG16 each of some 33 draws was run there six times, and one of DenseNet-121 eight times."""
    calls = []

    def counted(x, taps, bias, mean, variance, seen, weight):
        calls.append(x.shape)
        return network(x, taps, bias, mean, variance, seen, weight)

    shapes = (64, 3, 8, 8), (8, 3, 3, 3), (8,), (8,)
    inputs = [*(torch.randn(shape, generator=SEEDED) for shape in shapes), torch.rand(8, generator=SEEDED)]
    inputs += [torch.zeros((), dtype=torch.int64), torch.randn(5, 8, generator=SEEDED)]
    native = partial(native_outputs, network)
    drawn = OtherInputs.of(counted, inputs, inputs, native, gpu=True, domain=None, sizes=False)
    draws = dict.fromkeys(name for case in drawn.plan(quick=False).cases for name in case.draws)
    names = [name for name in draws if "integer" not in name and "indices" not in name]  # of one, which may stay 0
    assert len(names) > 50 and all(drawn.draw(name, inputs)[0] for name in names)
    assert len(calls) == 1  # when it was watched
    tried = replace(drawn, drawing=replace(drawn.drawing, seen=replace(drawn.drawing.seen, may_refuse=True)))
    assert [name for name in names if not tried.draw(name, inputs)[0]] == []
    assert len(calls) > len(names)


REFUSES = {
    "an index": (lambda x, i: x[i], [torch.randn(9, 4), torch.arange(5)]),
    "an embedding": (lambda i, x: F.embedding(i, x), [torch.arange(5), torch.randn(9, 4)]),
    "a class": (F.cross_entropy, [torch.randn(5, 9), torch.arange(5)]),
    "a probability": (F.binary_cross_entropy, [torch.rand(5), torch.rand(5)]),
    "a branch": (lambda x: x * 2 if x.sum() > 0 else x, [torch.randn(5)]),
    "a division of integers": (lambda x, y: x // y, [torch.arange(5), torch.arange(1, 6)]),
    "an operation called by its own name": (
        lambda x, i: torch.ops.aten.index_select(x, 0, i),
        [torch.randn(9, 4), torch.arange(5)],
    ),
}


@pytest.mark.parametrize("what", [*REFUSES])
def test_what_may_refuse_values_is_tried_on_the_cpu(what):
    assert watch(*REFUSES[what]).may_refuse
