"""Which names of a function stand for a tensor of one kind, or for a part of one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

PARTS = (
    "partition_D", "retile", "zipped_divide", "logical_divide", "tiled_divide", "flat_divide", "local_tile",
    "local_partition", "group_modes",
)  # fmt: skip


def parts_of(nodes: Iterable[ast.AST], is_first: Callable[[ast.expr], bool], known: Iterable[str] = ()) -> set[str]:
    """The names bound in `nodes` to a tensor that `is_first` accepts, the `known` ones, and those of their parts."""
    pairs = [pair for node in nodes if isinstance(node, ast.Assign) for pair in _bound(node)]
    found = set(known)
    while new := {name for name, value in pairs if name not in found and (is_first(value) or base(value) in found)}:
        found |= new
    return found


def base(node: ast.expr) -> str:
    """The name of the tensor that an expression is a part of: `s[None, 0]`, `cute.zipped_divide(s, tile)`."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Subscript):
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in PARTS
            and node.args
        ):
            node = node.args[0]
        else:
            return ""
    return node.id


def _bound(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Names and their values; of `a, b = (f(m) for m in (x, y))`, where f is a part of m, what m stands for."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple):
        if isinstance(value, ast.GeneratorExp) and base(value.elt) == base(value.generators[0].target):
            value = value.generators[0].iter
        for part, made in zip(target.elts, value.elts if isinstance(value, ast.Tuple) else ()):
            if isinstance(part, ast.Name):
                yield part.id, made
