"""How far each size of shrunk inputs grows again in the cases of one verification."""

from __future__ import annotations

import pytest
import torch

from cutesmith.judge.reference_side import full_inputs
from cutesmith.judge.reference_side.cases import fit, resize
from cutesmith.judge.reference_side.declared_sizes import DeclaredSizes
from cutesmith.judge.reference_side.full_inputs import too_much
from cutesmith.judge.reference_side.longer_cases import Growth, long_sizes, narrow
from cutesmith.judge.reference_side.requests import LongSize

pytestmark = pytest.mark.timeout(300)


def growth(*inputs, other_columns=True, elements=1 << 22, refusal=lambda values: ""):
    return Growth(
        inputs=inputs,
        shrunk=fit(inputs, 1 << 18, lambda values: "").sizes,
        other_columns=other_columns,
        elements=elements,
        refusal=refusal,
    )


def cases(grown):
    found = [grown.longest(long) for long in long_sizes(grown.inputs, grown.shrunk, grown.refusal)]
    return [(case.long, case.kept, case.sizes) for case in found]


@pytest.mark.slow
def test_a_long_size_stays_and_the_others_give_way():
    x, weight = torch.empty(16384, 4096), torch.empty(4096)
    assert cases(growth(x, weight)) == [(16384, 16384, {4096: 32})]


def test_columns_stay_where_no_others_were_promised():
    """As many rows as their number of elements affords."""
    grown = growth(torch.empty(16384, 4096), other_columns=False)
    assert cases(grown) == [(16384, 1024, {16384: 1024})]
    assert "elements take the emulated GPU too long" in grown.longest(LongSize(16384)).why


def test_every_size_that_was_shrunk_is_long_once():
    """A matrix product: rows, columns and the sum."""
    a, b, residual = torch.empty(4096, 1024), torch.empty(2048, 1024), torch.empty(4096, 2048)
    grown = growth(a, b, residual)
    assert set(grown.shrunk) == {4096, 2048, 1024}
    assert sorted(kept for _, kept, _ in cases(grown)) == [1024, 2048, 4096]


def test_what_the_reference_refuses_is_tried_with_larger_others():
    """Halves of a head must stay halves; then columns must stay."""
    x, angles = torch.empty(48, 4096, 128), torch.empty(4096, 64)
    assert cases(growth(x, angles))[0] == (4096, 4096, {48: 2, 128: 32, 64: 16})
    whole = lambda values: "" if values[0].shape[-1] == 128 else "heads of 128"  # noqa: E731
    assert cases(growth(x, angles, refusal=whole))[0] == (4096, 4096, {48: 2})
    assert narrow({1001, 64}) == {1001: 1001, 64: 64}


def test_columns_that_are_rows_of_another_input_give_way_first():
    """Groups of quantised weights: a kernel may have a path of its own for groups that are not whole."""
    x, packed, scales = torch.empty(16, 32, 128), torch.empty(28672, 32, 64), torch.empty(32, 28672)
    found = {long: sizes for long, _, sizes in cases(growth(x, packed, scales))}
    assert found[32] == {16: 2, 28672: 56} and all(128 not in sizes for sizes in found.values())


def test_a_reference_that_multiplies_too_much_ends_the_climb():
    """Attention: its scores grow with the square of the length."""
    q = torch.randn(1, 1, 2048, 256)
    attention = lambda q: torch.softmax(q @ q.transpose(-1, -2), -1) @ q  # noqa: E731
    grown = growth(q, other_columns=False, refusal=lambda values: too_much(attention, values))
    case = grown.longest(LongSize(2048))
    assert case.kept == 0 and "multiply-adds" in case.why


def refusing(reference_fn):
    def refusal(values):
        try:
            reference_fn(*values)
        except (RuntimeError, IndexError) as error:
            return str(error)
        return ""

    return refusal


SQUARES = {
    "elements": (lambda x, y: x + y, 2, [((0, 0), (1, 0)), ((0, 1), (1, 1))]),
    "product": (lambda a, b: a @ b, 2, [((0, 0),), ((0, 1), (1, 0)), ((1, 1),)]),
    "transposed factor": (lambda a, b: a @ b.T, 2, [((0, 0),), ((0, 1), (1, 1)), ((1, 0),)]),
    "sum of rows": (lambda x: x.sum(1), 1, [((0, 0),), ((0, 1),)]),
    "with a vector of columns": (lambda x, v: x * v, 2, [((0, 0),), ((0, 1), (1, 0))]),
    "three inputs": (lambda x, y, z: x * y + z, 3, [((0, 0), (1, 0), (2, 0)), ((0, 1), (1, 1), (2, 1))]),
    "product of three": (lambda a, b, c: a @ b @ c, 3, [((0, 0),), ((0, 1), (1, 0)), ((1, 1), (2, 0)), ((2, 1),)]),
    "inverse": (torch.linalg.inv, 1, [()]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SQUARES)
def test_each_axis_of_a_square_is_long_alone_where_the_reference_takes_it(name):
    function, count, groups = SQUARES[name]
    inputs = [torch.rand(2048, 2048) + torch.eye(2048) for _ in range(count)]
    if "vector" in name:
        inputs[1] = inputs[1][0]
    grown = growth(*inputs, refusal=refusing(function))
    longs = long_sizes(inputs, grown.shrunk, grown.refusal)
    assert [long.axes for long in longs] == groups
    for long in longs if groups != [()] else ():
        found = grown.longest(long)
        assert found.kept == 2048 and found.axes == dict.fromkeys(long.axes, 2048)
        values = resize(inputs, found.sizes, found.axes)
        for index, value in enumerate(values):
            lengths = {(index, axis): length for axis, length in enumerate(value.shape) if length == 2048}
            assert lengths == {axis: 2048 for axis in long.axes if axis[0] == index}
        function(*values)


PRODUCTS = {
    "a @ b": (lambda a, b: a @ b, 4 * 8 * 16),
    "einsum": (lambda a, b: torch.einsum("mk,kn->mn", a, b), 4 * 8 * 16),
    "addmm": (lambda a, b: torch.addmm(torch.ones(16), a, b), 4 * 8 * 16),
    "linear": (lambda a, b: torch.nn.functional.linear(a, b.T), 4 * 8 * 16),
    "attention": (lambda a, b: torch.nn.functional.scaled_dot_product_attention(a, a, a), 2 * 4 * 4 * 8),
    "convolution": (lambda a, b: torch.conv1d(b[None], torch.ones(5, 8, 3)), 5 * 14 * 24),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_a_reference_multiplies_is_counted(name, monkeypatch):
    function, count = PRODUCTS[name]
    values = [torch.ones(4, 8), torch.ones(8, 16)]
    monkeypatch.setattr(full_inputs, "MULTIPLY_ADDS", count)
    assert too_much(function, values) == ""
    monkeypatch.setattr(full_inputs, "MULTIPLY_ADDS", count - 1)
    assert too_much(function, values) == f"{count:,} multiply-adds take the emulated GPU too long"


def declared(**sizes):
    def get_inputs(rows=1000, columns=48, name="x", scale=2.0):
        return [torch.ones(rows, columns), torch.ones(rows, 2 * columns)]

    return DeclaredSizes.of(sizes, get_inputs, lambda chosen: get_inputs(**chosen))


def test_arguments_that_emulated_sizes_has_smaller_are_long_in_turn():
    sizes = declared(rows=60, columns=48, name="y", scale=1.0)
    assert sizes.long_sizes() == [LongSize(1000, argument="rows")]
    assert [long.words for long in declared(rows=60, columns=3).long_sizes()] == ["rows = 1000", "columns = 48"]


def test_an_argument_is_doubled_as_far_as_can_be_afforded():
    sizes, rows, columns = declared(rows=60, columns=3), *declared(rows=60, columns=3).long_sizes()
    whole = sizes.longest(columns, 10_000, lambda values: "")
    assert (whole.kept, whole.why, [value.shape for value in whole.inputs]) == (48, "", [(60, 48), (60, 96)])
    part = sizes.longest(rows, 9 * 500, lambda values: "")
    assert (part.kept, part.inputs[0].shape) == (480, (480, 3)) and part.why.startswith("8,640 elements take")
    odd = sizes.longest(columns, 10_000, lambda values: "" if values[0].shape[1] % 12 else "multiples of 12")
    assert (odd.kept, odd.why, odd.inputs[0].shape) == (6, "multiples of 12", (60, 6))
    assert sizes.longest(rows, 1, lambda values: "").kept == 0


def test_an_odd_long_size_stays_whole():
    assert cases(growth(torch.empty(70_001, 64)))[0][:2] == (70_001, 70_001)
