"""float32 products with 16-bit numbers, whose other factor tensor cores take as 16 bits."""

from __future__ import annotations

import pytest
import torch

from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.reference_side.rounded_factors import HALVES, rounded_factors
from cutesmith.verdicts import Precision
from tests.judge.test_rounded_convolutions import Problem, to_bits

BITS = {torch.float16: 11, torch.bfloat16: 8}


def attention(x, weights=lambda p: p):
    """x [3, heads, length, width]: queries, keys, values; computed in float32, or in float64 where x has it."""
    wide = torch.float32 if x.dtype != torch.float64 else x.dtype
    q, k, v = x.to(wide)
    p = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1)
    return (weights(p) @ v).to(x.dtype)


def drawn(dtype, shape=(3, 2, 512, 64)):
    torch.manual_seed(6)
    return torch.randn(shape).to(dtype)


def cut_off(x, bits):
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**bits).trunc() / 2**bits, exponent)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", BITS, ids=str)
def test_probabilities_may_have_the_type_of_the_values_and_no_fewer_bits(tmp_path, dtype):
    x, problem, bits = drawn(dtype), Problem(tmp_path, attention), BITS[dtype]
    rounded = problem.says(x, attention(x, lambda p: p.to(dtype).float()))
    assert rounded.violation is None and HALVES[dtype].words in rounded.note and not rounded.rounded
    for faulty in (lambda p: to_bits(p, bits - 2), lambda p: cut_off(p, bits - 1), lambda p: p * (1 + 2**-6)):
        assert problem.says(x, attention(x, faulty)).violation is not None
    assert problem.says(x, attention(x)).note == ""  # what needs nothing is allowed nothing
    asked = problem.says(x, attention(x, lambda p: p.to(dtype).float()), precision=Precision.FLOAT32)
    assert asked.violation is not None


@pytest.mark.slow
def test_small_probabilities_are_rounded_as_float16_has_them(tmp_path):
    x = drawn(torch.float16, (3, 1, 2048, 16)) * 0.1  # each weight is about 2**-11, some of their bits below 2**-24
    problem = Problem(tmp_path, attention)
    assert problem.says(x, attention(x, lambda p: p.half().float())).violation is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[0].float() @ x[1].float().mT,
        lambda x: torch.softmax(x[0].float(), -1) * x[1].float(),
        lambda x: torch.softmax(x[0], -1) @ x[1].mT,
    ],
    ids=["both are inputs", "no product of matrices", "16 bits already"],
)
def test_nothing_else_may_be_rounded(function):
    x = drawn(torch.float16, (2, 3, 40, 40))
    assert rounded_factors(function, [x], [in_float64(function, [x])]) == [None]


def test_a_product_of_float32_inputs_may_not_be_rounded():
    x = drawn(torch.float32, (3, 2, 40, 16))
    assert rounded_factors(attention, [x], [in_float64(attention, [x])]) == [None]
