"""The table of pointwise operations: what a row says in torch and in the DSL belongs together."""

from __future__ import annotations

import re
import string

import pytest
import torch

from cutesmith.patterns.graph.operations import POINTWISE, Kind, Pointwise
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS


def expressions(row: Pointwise) -> set[str]:
    return {row.numbers, row.floats, row.float32, row.fast, row.integers, row.booleans} - {""}


def test_every_device_function_has_a_body_and_is_called():
    codes = [code for row in POINTWISE.values() for code in expressions(row)]
    called = {name for code in codes for name in re.findall(r"(?<![\w.])([a-z]\w*)\(", code)}
    others = {"place_in", "to_float8_e5m2", "float_of_small"}  # of searches, casts and weights, not in the table
    others |= {"quotient", "unit_beside"}  # of rows that one number divides
    assert called | others == SPECIAL_FUNCTIONS.keys()


@pytest.mark.parametrize("name", [name for name, row in POINTWISE.items() if row.kind is not Kind.CONVERSION])
def test_the_torch_function_takes_the_operands_of_the_expressions(name):
    row = POINTWISE[name]
    fields = {field for code in expressions(row) for _, field, _, _ in string.Formatter().parse(code) if field}
    operands = [torch.ones(2, dtype=torch.int32 if row.integers and not row.floats else torch.float32)] * len(
        fields - {"T"}
    )
    if row.kind is Kind.SELECTION:
        operands[0] = torch.ones(2, dtype=torch.bool)
    if row.kind is Kind.LOGIC:
        operands = [torch.ones(2, dtype=torch.bool)] * len(operands)
    result = row.torch(*operands)
    assert result.shape == (2,) and (result.dtype == torch.bool) == (row.own_dtype == "bool")
