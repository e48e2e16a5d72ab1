"""Evaluates a graph with torch on real tensors: what the patterns' kernels are tested against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cutesmith.patterns.building.dtypes import is_float, torch_dtype
from cutesmith.patterns.tracing import operations
from cutesmith.patterns.tracing.graph import LEAVES, Graph, Node


def interpret(graph: Graph, inputs: Sequence[Any], *, precision: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """The outputs, in their dtypes; floats are computed in `precision`, rounded where a cast or an output asks for it.

    `inputs` are tensors and numbers as the traced function takes them.
    """
    values: dict[int, torch.Tensor] = {}
    for node in graph.nodes():
        operands = [values[id(child)] for child in node.inputs]
        values[id(node)] = _evaluate(node, operands, inputs, precision)
    return [values[id(node)].expand(node.shape).to(torch_dtype(node.dtype)) for node in graph.outputs]


def _evaluate(node: Node, operands: list[torch.Tensor], inputs: Sequence[Any], precision: torch.dtype) -> torch.Tensor:
    kind = precision if is_float(node.dtype) else torch_dtype(node.dtype)
    if node.op in LEAVES:
        return _leaf(node, inputs, kind)
    if node.op == "cast":
        return _cast(operands[0], node, kind).expand(node.shape)
    if node.op == "reshape":
        return operands[0].reshape(node.shape)
    if node.op == "gather":
        index = operands[1]
        return torch.gather(operands[0], node.attrs["dim"], index.expand(node.shape))
    if node.is_reduction:
        return operations.reduce(node.op, operands[0], node.attrs["dims"], dict(node.attrs)).to(kind)
    return operations.POINTWISE[node.op](*operands).to(kind).expand(node.shape)


def _leaf(node: Node, inputs: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    if node.op == "constant":
        return torch.tensor(node.attrs["value"], dtype=kind)
    if node.op == "sized":
        return torch.tensor(node.attrs["law"].value([getattr(value, "shape", ()) for value in inputs]), dtype=kind)
    if node.op == "iota":
        return _iota(node.shape, node.attrs["dim"])
    value = inputs[node.attrs["index"]]
    if node.op == "scalar":
        return torch.tensor(value, dtype=kind)
    for view in node.attrs["views"]:
        value = eval(view.code.format("x"), {"x": value})  # view code that we wrote ourselves
    return value.to(kind)  # type: ignore[no-any-return]


def _iota(shape: tuple[int, ...], dim: int) -> torch.Tensor:
    along = [size if at == dim else 1 for at, size in enumerate(shape)]
    return torch.arange(shape[dim]).reshape(along).expand(shape)


def _cast(value: torch.Tensor, node: Node, kind: torch.dtype) -> torch.Tensor:
    """Through the node's own dtype, so that the rounding that it asks for happens."""
    return value.to(torch_dtype(node.dtype)).to(kind)
