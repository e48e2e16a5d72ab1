"""Functions that write into views, into `out=` and to the places of a mask, against PyTorch itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, normal
from tests.patterns.test_scatters import compare, on_emulator


def rotated(x, cosine, sine):
    """Rotary embedding of neighbours, its halves written apart."""
    out, even, odd = torch.empty_like(x), x[..., ::2], x[..., 1::2]
    out[..., ::2] = even * cosine - odd * sine
    out[..., 1::2] = even * sine + odd * cosine
    return out


def shifted(x):
    """Temporal shift: a quarter of the channels from the next step, a quarter from the one before."""
    out, part = torch.zeros_like(x), x.shape[-1] // 4
    out[:, :-1, :part] = x[:, 1:, :part]
    out[:, 1:, part : 2 * part] = x[:, :-1, part : 2 * part]
    out[:, :, 2 * part :] = x[:, :, 2 * part :]
    return out


def swapped(x):
    y, half = x.clone(), x.shape[-1] // 2
    y[..., :half], y[..., half:] = y[..., half:].clone(), y[..., :half].clone()
    return y


def steps(x):
    out = x.new_zeros(x.shape[0], 3, x.shape[1])
    for step in range(3):
        out[:, step] = x * step
    return out


def gates(x):
    """What a cell of an LSTM does to the chunks of one product."""
    first, second, third = (x * 2).chunk(3, 1)
    return first.sigmoid_() * second.tanh_() + third.sigmoid_()


def both_views(x):
    """A write through one view is seen through another that was made before, and in the whole."""
    y = x + 1
    left, column = y[:, :4], y[:, 2]
    left.mul_(10)
    column.add_(1)
    return y, left, column * 2


def written(change, make=torch.Tensor.clone):
    def function(x, *more):
        y = make(x)
        change(y, *more)
        return y

    return function


def masked(x, y):
    z = x.clone()
    z[:, y[0] > 0] = 7
    z[y > 1] = y[:1, :1]
    return z


X, Y = normal(6, 8), normal(6, 8, seed=1)
CASES = {
    "rotary embedding": (rotated, (normal(2, 5, 16), normal(5, 8), normal(5, 8, seed=1))),
    "temporal shift": (shifted, (normal(2, 6, 16),)),
    "halves swapped": (swapped, (X,)),
    "steps of a loop": (steps, (X,)),
    "gates": (gates, (normal(4, 12),)),
    "views of each other": (both_views, (X,)),
    "masks": (masked, (X, Y)),
    "a column": (written(lambda y: y[:, 0].zero_()), (X,)),
    "a part that grows": (written(lambda y, z: y[:, :3].add_(z[:, 1:4])), (X, Y)),
    "all of it by a flat view": (written(lambda y: y.view(-1).mul_(2)), (X,)),
    "every third of a flat view": (written(lambda y: y.view(-1)[1::3].mul_(2)), (X,)),
    "a split dimension": (written(lambda y: y.view(6, 2, 4)[:, 1].neg_()), (X,)),
    "diagonals of matrices": (written(lambda y: y.diagonal(dim1=-2, dim2=-1).add_(1.0)), (torch.randn(2, 3, 5, 5),)),
    "a diagonal of leading dimensions": (written(lambda y: y.diagonal(1).mul_(3.0)), (torch.randn(2, 4, 3),)),
    "the diagonal": (written(lambda y: y.diagonal().fill_(1.0)), (X,)),
    "backwards transposed": (written(lambda y, z: y.t().copy_(z.t())), (X, Y)),
    "a part of a transposed copy": (written(lambda y: y[1:3, ::2].neg_(), lambda x: x.t().clone()), (X,)),
    "an activation of a part": (written(lambda y: F.relu_(y[:, :4])), (X,)),
    "a part in bfloat16": (written(lambda y, z: y[1:4].copy_(z[:3])), (X.bfloat16(), Y)),
    "one element": (written(lambda y: y[2, 3].fill_(9.0)), (X,)),
    "a part twice": (written(lambda y: (y[:4].add_(1), y[2:].mul_(3))), (X,)),
    "what is made of nothing": (written(lambda y, z: y[:, 1:].copy_(z[:, :-1]), torch.zeros_like), (X, Y)),
    "out": (lambda x, y: torch.add(x, y, out=torch.empty_like(x)), (X, Y)),
    "out into a part": (written(lambda y, z: torch.mul(z[:, :4], 2, out=y[:, 4:])), (X, Y)),
    "circular padding": (lambda x: F.pad(x, (2, 3, 1, 1), mode="circular"), (normal(2, 3, 5, 6),)),
    "a cell": (
        lambda x, h, c, w, v: torch.lstm_cell(x, (h, c), w, v),
        (normal(4, 8), normal(4, 8, seed=1), normal(4, 8, seed=2), normal(32, 8, seed=3), normal(32, 8, seed=4)),
    ),
    "parts that are summed up": (lambda x: F.fold(x, (6, 7), 3, padding=1, stride=2), (normal(2, 36, 12),)),
    **{
        f"a mask without dimensions that is {truth}, {name}": (
            written(lambda y, mask, value: y[:, 2:].__setitem__(mask, value)),
            (X, torch.tensor(truth), value),
        )
        for truth in (True, False)
        for name, value in {"values": normal(6, 6), "one more dimension": normal(1, 6, 6), "one": normal(1)[0]}.items()
    },
    "the elements of another mask in their order": (
        lambda x, mask, y: x.masked_scatter(mask, y.flatten()[(~mask).flatten().argsort(descending=True, stable=True)]),
        (X, Y > 0.3, Y),
    ),
    "causal mask": (
        lambda s, m: written(lambda y: y.__setitem__((slice(None), m.triu(1) > 0), -torch.inf))(s).softmax(-1),
        (normal(2, 6, 6), torch.ones(6, 6)),
    ),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = CASES[name]
    graph = trace_function(function, inputs)
    for ours, theirs in zip(interpret(graph, inputs), as_list(function(*inputs)), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
def test_parts_that_are_read_and_written_many_times_do_not_multiply():
    def function(x, count):
        y = x.clone()
        for start in range(count):
            y[:, start:] += x[:, : x.shape[1] - start]
        return y

    few, many = (trace_function(lambda x, n=n: function(x, n), (normal(4, 32),)) for n in (6, 18))
    assert sum(1 for _ in many.nodes()) < 4 * sum(1 for _ in few.nodes())
    torch.testing.assert_close(interpret(many, (normal(4, 32),))[0], function(normal(4, 32), 18))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rotary embedding", "temporal shift"])
def test_one_kernel_serves_other_sizes(name, tmp_path):
    function, inputs = CASES[name]
    others = {
        "rotary embedding": (normal(3, 7, 24, seed=2), normal(7, 12, seed=3), normal(7, 12, seed=4)),
        "temporal shift": (normal(3, 4, 24, seed=2),),
    }[name]
    for given, found in zip((inputs, others), on_emulator(function, inputs, (others,), tmp_path), strict=True):
        compare(function, given, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["views of each other", "masks", "every third of a flat view", "a split dimension"])
def test_kernels(name, tmp_path):
    compare(*CASES[name], *on_emulator(*CASES[name], (), tmp_path))


REFUSED = {
    "a part of an argument": (lambda x: x[:, 0].fill_(1), "changes argument x in place"),
    "values of each place": (written(lambda y: y.__setitem__(y > 0, y[0])), "values of their own to the places"),
    "values of another mask": (
        written(lambda y: y.__setitem__(y > 0, y[~(y > 0)])), r"argsort\(descending=True, stable=True\)"
    ),
    "a mask beside an index": (
        written(lambda y: y.__setitem__((torch.tensor([0, 1], device=y.device)[:, None], y[0] > 0), 1)),
        "aten.index",
    ),
    "windows that overlap": (
        written(lambda y: (y.view(-1).as_strided((3, 4), (5, 3)).neg_())),
        "elements another view has in another order",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_says_so(name):
    function, message = REFUSED[name]
    with pytest.raises(UnmatchedError, match=message):
        trace_function(function, (normal(6, 8),))


def stochastically_rounded(x, noise):
    """To bfloat16 by the bits below it."""
    return ((x.view(torch.int32) + (noise & 0xFFFF)) & -65536).view(torch.float32)


def exponents(x):
    halves = (x * 2).bfloat16().view(torch.int16)
    return (halves >> 7 & 255).to(torch.uint8).view(torch.int8), (halves & -128).view(torch.bfloat16)


NOISE = torch.arange(40, dtype=torch.int32).view(5, 8) * 7919
BITS = {
    "stochastic rounding": (stochastically_rounded, [normal(5, 8), NOISE]),
    "exponents": (exponents, [normal(5, 8)]),
}


@pytest.mark.parametrize("name", BITS)
def test_bits_of_numbers_as_other_types(name):
    function, inputs = BITS[name]
    for found, expected in zip(interpret(trace_function(function, inputs), inputs), as_list(function(*inputs))):
        assert found.dtype == expected.dtype and torch.equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", BITS)
def test_kernels_that_read_bits(name, tmp_path):
    function, inputs = BITS[name]
    for found, expected in zip(on_emulator(function, inputs, (), tmp_path)[0], as_list(function(*inputs))):
        assert found.dtype == expected.dtype and torch.equal(found, expected)


def test_a_write_into_the_bits_of_another_tensor_is_refused():
    def cut(x):
        y = x.clone()
        y.view(torch.int32).bitwise_and_(-65536)
        return y

    with pytest.raises(UnmatchedError, match="seen as another type"):
        trace_function(cut, [normal(4)])
