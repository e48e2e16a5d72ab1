"""Small tables that a function makes of numbers, as `torch.tensor([0, 0, 4, 4])` does: functions of the place."""

from __future__ import annotations

import itertools

import torch

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import dtype_name
from cutesmith.patterns.graph.nodes import Node

MOST_RUNS = 16
"""Of equal neighbours in a table: one comparison and one choice for each element that is computed."""


def table(build: GraphBuilder, values: torch.Tensor) -> Node | None:
    """A tensor in memory as a choice among its values by the place; None where there are too many of them."""
    dtype, shape = dtype_name(values.dtype), tuple(values.shape)
    # `repr` tells zeros of different sign apart, and one NaN equals another
    runs = [list(run) for _, run in itertools.groupby(values.flatten().tolist(), key=repr)]
    if not runs or len(runs) > MOST_RUNS:
        return None
    place = build.constant(0, "int64")
    for dim, step in enumerate(values.contiguous().stride()):
        place = build("add", place, build("mul", build.iota(shape, dim), step))
    *earlier, last = runs
    found, end = build.constant(last[0], dtype), values.numel() - len(last)
    for run in reversed(earlier):
        found = build("where", build("lt", place, end), build.constant(run[0], dtype), found)
        end -= len(run)
    return build.expand(build.retype(found, dtype), shape)
