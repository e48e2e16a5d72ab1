"""Of equal elements a kernel may name others than PyTorch where that leaves it open; nothing else may differ."""

from __future__ import annotations

import pytest
import torch

from cutesmith.judge.reference_side.known_results import KnownResults
from cutesmith.judge.reference_side.open_ties import undecided_orders
from cutesmith.judge.reference_side.tolerance import tolerance_for


def said(function, x, outputs):
    """What is wrong with outputs of a function of `x`, output by output."""
    known, values = KnownResults(function), [x]
    native, _, _ = known.of("a", values)
    stated = [tolerance_for(own.dtype, None, None) for own in native]
    outputs = [output.to(own.dtype) for output, own in zip(outputs, native)]
    results = known.compared("a", values, outputs, stated, strict=True, rounding=True)
    return [result.violation.text if result.violation else "" for result in results], results[0].note


def tied(rows=33, columns=64, dtype=torch.bfloat16):
    return torch.randn(rows, columns).to(dtype)


def first(x, k, *, descending=True):
    """The k largest of each row, the first of equal ones first."""
    order = x.sort(dim=-1, stable=True, descending=descending).indices[..., :k]
    return x.gather(-1, order), order


def last(x, k, *, descending=True):
    """The same with the last of equal ones first."""
    values, order = first(x.flip(-1), k, descending=descending)
    return values, x.shape[-1] - 1 - order


FUNCTIONS = {
    "topk": lambda x: x.topk(4),
    "of another type": lambda x: (x.topk(4).values, x.topk(4).indices.int()),
    "smallest": lambda x: x.topk(4, largest=False),
    "sort": lambda x: x.sort(descending=True),
    "first of argsort": lambda x: (x.argsort(-1, descending=True)[:, :4],),
    "along columns": lambda x: torch.topk(x, 4, dim=0),
    "weights": lambda x: (x.float().softmax(-1).topk(4).values, x.float().softmax(-1).topk(4).indices),
}


def kernels(name):
    """Two honest kernels for a function."""
    k, descending = (64 if name == "sort" else 4), name != "smallest"
    for choose in (first, last):

        def kernel(x, choose=choose):
            if name == "along columns":
                return [each.mT for each in choose(x.mT, k)]
            values, order = choose(x, k, descending=descending)
            if name == "weights":
                return [x.float().softmax(-1).gather(-1, order), order]
            return [order] if name == "first of argsort" else [values, order]

        yield kernel


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_equal_elements_passes(name, seed):
    torch.manual_seed(seed)
    x = tied(columns=64 if name != "along columns" else 33)
    notes = []
    for kernel in kernels(name):
        wrong, note = said(FUNCTIONS[name], x, kernel(x))
        assert not any(wrong), (wrong, note)
        notes.append(note)
    assert any("another order" in note for note in notes)  # that of PyTorch's CPU kernels is neither first nor last


def of_a_tie(x, order):
    """A row, the place of an element in it that was not named, and one that was, of equal elements."""
    for row in range(x.shape[0]):
        for column, place in enumerate(order[row].tolist()):
            if others := [p for p in (x[row] == x[row, place]).nonzero().view(-1).tolist() if p != place]:
                return row, column, others[0]
    raise AssertionError("no ties were drawn")


FAULTS = {
    "another element": lambda x, order: order.index_put((torch.tensor(3), torch.tensor(2)), x[3].argmin()),
    "beyond the row": lambda x, order: order.index_put((torch.tensor(3), torch.tensor(2)), torch.tensor(x.shape[1])),
    "counted from the end": lambda x, order: order.index_put((torch.tensor(3), torch.tensor(2)), order[3, 2] - 64),
    "one place twice": lambda x, order: torch.cat([order[:, :1], order[:, :1], order[:, 2:]], 1),
    "in another row": lambda x, order: order.roll(1, 0),
    "two of one row exchanged": lambda x, order: torch.cat([order[:, 3:], order[:, 1:3], order[:, :1]], 1),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_places_fail(fault):
    torch.manual_seed(0)
    x = tied()
    values, order = first(x, 4)
    assert not any(said(lambda x: x.topk(4), x, [values, order])[0])
    wrong, _ = said(lambda x: x.topk(4), x, [values, FAULTS[fault](x, order)])
    assert wrong[1] and not wrong[0], wrong


def test_one_place_twice_fails_where_all_elements_are_equal():
    x = torch.ones(4, 64)
    honest = torch.arange(8).expand(4, 8)
    assert not any(said(lambda x: x.topk(8), x, [torch.ones(4, 8), honest + 20])[0])
    assert any(said(lambda x: x.topk(8), x, [torch.ones(4, 8), honest // 2])[0])


@pytest.mark.parametrize(
    "function",
    [lambda x: x.sort(dim=-1, descending=True, stable=True), lambda x: torch.max(x, -1), lambda x: (x.argmax(-1),)],
)
def test_where_pytorch_says_which_element_no_other_passes(function):
    torch.manual_seed(0)
    x = tied().clamp(max=1.0)
    places = first(x, 64), last(x, 64)
    if function(x)[0].ndim == 1:
        places = [(values[:, 0], order[:, 0]) for values, order in places]
    right, wrong = (side[-len(function(x)) :] for side in places)
    assert not any(said(function, x, right)[0])
    assert said(function, x, wrong)[0][-1]


def routed(x):
    """Places, and a mask, counts and weights that are made from them."""
    values, order = x.topk(4)
    mask = torch.zeros_like(x).scatter(-1, order, 1.0)
    return order, mask, mask.sum(0), torch.zeros_like(x).scatter(-1, order, values.float().softmax(-1).to(x.dtype))


@pytest.mark.slow
def test_what_is_made_from_the_places_follows_those_that_a_kernel_returns():
    torch.manual_seed(0)
    x, generator = tied(), torch.Generator().manual_seed(1)
    shuffled = torch.randperm(64, generator=generator)
    values, order = first(x[:, shuffled], 4)
    order = shuffled[order]
    mask = torch.zeros_like(x).scatter(-1, order, 1.0)
    weights = torch.zeros_like(x).scatter(-1, order, values.float().softmax(-1).to(x.dtype))
    assert not any(said(routed, x, [order, mask, mask.sum(0), weights])[0])
    row, column, other = of_a_tie(x, order)
    moved = order.index_put((torch.tensor(row), torch.tensor(column)), torch.tensor(other))
    assert any(said(routed, x, [moved, mask, mask.sum(0), weights])[0])  # the mask is not that of the places


def test_a_mask_alone_passes_with_the_first_or_the_last_of_equal_elements():
    torch.manual_seed(0)
    x = tied()

    def chosen(x):
        return (torch.zeros_like(x).scatter(-1, x.topk(4).indices, 1.0),)

    def given(order):
        return [torch.zeros_like(x).scatter(-1, order, 1.0)]

    assert not any(said(chosen, x, given(first(x, 4)[1]))[0]) and not any(said(chosen, x, given(last(x, 4)[1]))[0])
    assert any(said(chosen, x, given(first(x, 5)[1][:, 1:]))[0])
    assert undecided_orders(chosen, [x]) == ["topk"] and not undecided_orders(lambda x: x.topk(4), [x])
    assert not undecided_orders(lambda x: x.topk(4).values, [x]) and not undecided_orders(torch.abs, [x])


@pytest.mark.slow
def test_two_steps_of_which_one_is_returned():
    """Groups are chosen first, as routers of many experts do: their order is open too, and no output shows it."""

    def reference(x):
        groups = x.view(-1, 8, 8).amax(-1).topk(2).indices
        kept = torch.zeros(len(x), 8).scatter(-1, groups, 1.0).repeat_interleave(8, -1).bool()
        return x.masked_fill(~kept, -100.0).topk(3)

    def kernel(x, choose):
        groups = choose(x.view(-1, 8, 8).amax(-1), 2)[1]
        kept = torch.zeros(len(x), 8).scatter(-1, groups, 1.0).repeat_interleave(8, -1).bool()
        return last(x.masked_fill(~kept, -100.0), 3)

    x = torch.randint(6, (40, 64)).float()
    assert not any(said(reference, x, kernel(x, first))[0]) and not any(said(reference, x, kernel(x, last))[0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["kthvalue", "median", "mode"])
def test_one_place_of_each_row(name):
    torch.manual_seed(0)
    x = torch.randint(5, (32, 16)).float()
    call = {"kthvalue": lambda x: x.kthvalue(3, -1), "median": lambda x: x.median(-1), "mode": lambda x: x.mode(-1)}
    values = call[name](x).values
    equal = x == values[:, None]
    first_place, last_place = equal.int().argmax(-1), 15 - equal.flip(-1).int().argmax(-1)
    for places in (first_place, last_place):
        assert not any(said(call[name], x, [values, places])[0])
    assert said(call[name], x, [values, (~equal).int().argmax(-1)])[0][1]


def test_nan_is_equal_to_nan():
    x = torch.randn(8, 32)
    x[:, [3, 9, 20]] = torch.nan
    assert not any(said(lambda x: x.topk(4), x, last(x, 4))[0])


def test_places_in_any_order_where_they_need_not_be_sorted():
    torch.manual_seed(0)
    x = tied()
    values, order = last(x, 4)
    assert not any(said(lambda x: x.topk(4, sorted=False), x, [values.roll(1, 1), order.roll(1, 1)])[0])
    assert any(said(lambda x: x.topk(4), x, [values.roll(1, 1), order.roll(1, 1)])[0])


def of_experts(experts, x):
    """What two experts of each token make of it: a sign and a shift."""
    return (x[:, :1].float() * (experts % 3 - 1) + experts).sum(-1)


@pytest.mark.parametrize("choose", [first, last])
def test_experts_whose_scores_bfloat16_rounds_to_one_number_may_be_either(choose):
    """Float64 tells these scores apart, and PyTorch's own result is not that of float64 either."""
    router = torch.randn(64, 16).to(torch.bfloat16)

    def function(x):
        return (of_experts(torch.softmax(x @ router, -1).topk(2).indices, x),)

    x = torch.randn(512, 64).to(torch.bfloat16)
    scores = torch.softmax(x @ router, -1)
    three = first(scores, 3)[0]
    tied_rows, apart = three[:, 1] == three[:, 2], (three[:, 1] - three[:, 2]) > 0.02
    experts = choose(scores, 2)[1]

    wrong, note = said(function, x, [of_experts(experts, x)])
    assert tied_rows.any() and not any(wrong) and "another order" in note
    token = int(apart.nonzero()[0])
    experts[token, 1] = first(scores, 3)[1][token, 2]
    assert any(said(function, x, [of_experts(experts, x)])[0])
