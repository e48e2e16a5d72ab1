"""Evaluates a graph with torch on real tensors: what the patterns' kernels are tested against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cutesmith.patterns.graph.dtypes import is_float, torch_dtype
from cutesmith.patterns.graph.nodes import LEAVES, Constant, Gather, Graph, Input, Iota, Node, Reduction, Scalar, Sized
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.graph.reductions import REDUCTIONS


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
    if node.op == "cast":  # through the node's own dtype, so that the rounding that it asks for happens
        return operands[0].to(torch_dtype(node.dtype)).to(kind).expand(node.shape)
    if node.op == "reshape":
        return operands[0].reshape(node.shape)
    if node.op == "gather":
        return torch.gather(operands[0], Gather.of(node).dim, operands[1].expand(node.shape))
    if node.is_reduction:
        reduction = Reduction.of(node)
        return REDUCTIONS[node.op](operands[0], reduction.dims, reduction.correction).to(kind)
    return POINTWISE[node.op].torch(*operands).to(kind).expand(node.shape)


def _leaf(node: Node, inputs: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    if node.op == "constant":
        return torch.tensor(Constant.of(node).value, dtype=kind)
    if node.op == "sized":
        return torch.tensor(Sized.of(node).law.value([getattr(value, "shape", ()) for value in inputs]), dtype=kind)
    if node.op == "iota":
        dim = Iota.of(node).dim
        along = [size if at == dim else 1 for at, size in enumerate(node.shape)]
        return torch.arange(node.shape[dim]).reshape(along).expand(node.shape)
    if node.op == "scalar":
        return torch.tensor(inputs[Scalar.of(node).index], dtype=kind)
    value = inputs[Input.of(node).index]
    for view in Input.of(node).views:
        value = eval(view.format("x"), {"x": value})  # view code that we wrote ourselves
    return value.to(kind)  # type: ignore[no-any-return]
