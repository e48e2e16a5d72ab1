"""What a product's `kernel_fn` refuses: sizes, scales, groups and factors of other sizes than its kernel serves."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.graph.attributes import TensorCode
from cutesmith.patterns.graph.nodes import views_of
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.size_laws import EqualSizes
from cutesmith.patterns.graph.window_attributes import Windows
from cutesmith.patterns.writing.templating import broadcast_checks, size_checks


def compared_sizes(
    problem: ContractionProblem, factors: Collection[str], operands: Collection[str]
) -> tuple[tuple[EqualSizes, ...], tuple[EqualSizes, ...]]:
    """The sizes that are compared in the first call of a key, which holds them, and those of every call.

    What an operand of the epilogue must fit is the result, whose sizes are those of the factors.
    """
    fitting = {at for at, name in enumerate(problem.arguments) if name in operands and name not in factors}
    keyed = fitting.union(at for at, name in enumerate(problem.arguments) if name in factors)
    equal = [e for e in problem.graph.equal if sum(index not in fitting for index, _ in e.places) > 1]
    if problem.batch:  # which is broadcast before there is a key
        return (), tuple(equal)
    first = tuple(e for e in equal if keyed.issuperset(index for index, _ in e.places))
    return first, tuple(e for e in equal if e not in first)


def checks(problem: ContractionProblem, equal: tuple[EqualSizes, ...]) -> list[str]:
    """Statements that refuse other sizes of what has no law, and those of `equal` that differ, in every call."""
    graph = replace(problem.graph, equal=equal)
    places = graph.held if _holds_for_other_sizes(problem) else graph.places
    return [*size_checks(problem.arguments, graph, places), *broadcast_checks(problem.arguments, graph)]


def block_checks(
    problem: ContractionProblem, matrices: Sequence[str], names: Sequence[str], codes: Sequence[TensorCode]
) -> Iterator[str]:
    """Statements that refuse scales of other blocks; a factor may be passed as the transposed one."""
    sides = zip(matrices[:2], codes[:2], (problem.a, problem.b), problem.scales, ((-2, -1), (-1, -2)), strict=True)
    scaled = [(name, code, side, each, dims) for name, code, side, each, dims in sides if each is not None]
    for (matrix, code, side, blocks, dims), scales in zip(scaled, names, strict=True):
        found = dims if code == side.code else dims[::-1]
        of_matrix = [f"{matrix}.shape[{dim}]" for dim in found]
        sizes = zip((blocks.lines, blocks.k), dims, of_matrix, strict=True)
        expected = [f"{scales}.shape[{dim}] * {size or whole}" for size, dim, whole in sizes]
        told = " x ".join(str(size or "all") for size in (blocks.lines, blocks.k))
        yield f"if ({', '.join(of_matrix)}) != ({', '.join(expected)}):"
        refusal = f"this kernel takes a scale of {blocks.matrix.code.name} for {told} of {side.code.name}"
        yield f'    raise ValueError("{refusal}")'


def columns_check(problem: ContractionProblem, matrices: Sequence[str], codes: Sequence[TensorCode]) -> Iterator[str]:
    """The statement that refuses two right factors of other columns: the larger ones would be the result's."""
    sides = zip(matrices[1:], codes[1:], problem.right, strict=True)
    columns = [f"{name}.shape[{-1 if code == side.code else -2}]" for name, code, side in sides]
    if len(columns) > 1:
        yield f"if {' != '.join(columns)}:"
        yield f'    raise ValueError(f"this kernel takes equal sizes: {{{", ".join(columns)} = }}")'


def group_checks(
    problem: ContractionProblem, matrices: Sequence[str], indices: Sequence[str], codes: Sequence[TensorCode]
) -> Iterator[str]:
    """Statements that refuse ends of more or fewer groups than there are matrices, and matrices of another k."""
    if problem.ends is None:
        return
    rows, ends = matrices[0], indices[-1]
    for name, code, side in zip(matrices[1:], codes[1:], problem.right, strict=True):
        k = f"{name}.shape[{-2 if code == side.code else -1}]"
        yield f"if (len({ends}), {rows}.shape[-1]) != (len({name}), {k}):"
        told = f"{{len({ends})}} groups of rows of {{{rows}.shape[-1]}}; {{len({name})}} matrices for rows of {{{k}}}"
        yield f'    raise ValueError(f"{told}: pass an end and a matrix for each group, of one k")'


def _holds_for_other_sizes(problem: ContractionProblem) -> bool:
    """Whether all views do; the sizes of a result that is an image are computed in every call."""
    outputs = [o.viewed for o in problem.epilogue.outputs if o.viewed is not None]
    images = {id(node) for node in outputs if is_image(problem, node.shape)}
    others = (node for node in problem.graph.nodes() if id(node) not in images)
    return not problem.graph.fixed_shapes and all(view.is_proven for node in others for view in views_of(node))


def is_image(problem: ContractionProblem, viewed: Shape) -> bool:
    """Whether a result (N, groups, channels, positions) is seen as (N, channels, *sizes)."""
    if problem.image is None:
        return False
    return (
        len(viewed) == 2 + Windows.of(problem.product.inputs[1]).rank
        and viewed[0] == problem.batch[0]
        and math.prod(viewed[2:]) == problem.n
    )
