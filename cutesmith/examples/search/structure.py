"""How elements depend on one another: a recurrence, a stencil, a gather or a scatter, read off code.

Each is a feature of the vocabulary, so that an example with the same structure is near whatever it computes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

STRUCTURES = ("recurrence", "stencil", "gather", "scatter")
"""The features that say how elements depend on one another."""

_SUBSCRIPT = re.compile(r"\b([A-Za-z_]\w*)\s*\[([^\[\]]*)\](\s*(?:[+*]?=)(?!=))?")
_SHIFTED = re.compile(r"\b([a-z])\s*[-+]\s*\d+\b")
_INDEX = re.compile(r"\b\w*(?:idx|ind(?:ex|ices)?|ids?|perm\w*|order)\b", re.IGNORECASE)
_CALLS = {
    "recurrence": "cumsum cumprod cummax cummin logcumsumexp RNN GRU LSTM RNNCell GRUCell LSTMCell",
    "stencil": "roll unfold diff gradient",
    "gather": "index_select gather embedding take take_along_dim",
    "scatter": "index_add index_add_ index_put index_put_ scatter scatter_ scatter_add scatter_add_ scatter_reduce"
    " bincount histc",
}
"""Names of PyTorch, in one string for each structure."""


def structures_of_text(text: str) -> tuple[str, ...]:
    """The structures that subscripts in a query show: `h[t-1]` beside `h[t] =`, `u[i+1]`, `x[idx]`, `y[idx] +=`."""
    found, stored, shifted = set[str](), set[str](), set[str]()
    for name, index, assigned in _SUBSCRIPT.findall(text):
        if _SHIFTED.search(index):
            shifted.add(name)
        if assigned:
            stored.add(name)
        if _INDEX.fullmatch(index.strip()):
            found.add("scatter" if assigned else "gather")
    if shifted & stored:
        found.add("recurrence")
    if shifted - stored:
        found.add("stencil")
    return tuple(name for name in STRUCTURES if name in found)


def structures_of_function(function: ast.AST) -> tuple[str, ...]:
    """The structures of a PyTorch function: a state that a loop carries, shifted slices, calls that index."""
    called = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    found = {structure for structure, names in _CALLS.items() if called & set(names.split())}
    if any(_carries(loop) for loop in ast.walk(function) if isinstance(loop, (ast.For, ast.While))):
        found.add("recurrence")
    if _has_shifted_slices(function):
        found.add("stencil")
    return tuple(name for name in STRUCTURES if name in found)


def _carries(loop: ast.For | ast.While) -> bool:
    """Whether a name that the loop assigns is read before it is assigned, beyond a plain sum or maximum of terms."""
    body = ast.Module(body=loop.body, type_ignores=[])
    assigned = set[str]()
    for node in ast.walk(body):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        plain = isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add) and _is(node.value.left, name)
        if name in _loaded(node.value) and name not in assigned and not (plain and _uses(body, name) == 1):
            return True
        assigned.add(name)
    sums = (node.target for node in ast.walk(body) if isinstance(node, ast.AugAssign))
    return any(_uses(body, target.id) for target in sums if isinstance(target, ast.Name))


def _loaded(tree: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def _uses(tree: ast.AST, name: str) -> int:
    return list(_loaded(tree)).count(name)


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _has_shifted_slices(function: ast.AST) -> bool:
    """Whether one tensor is read from a constant offset on and also up to one: `x[1:]` and `x[:-1]`."""
    kinds: dict[str, set[bool]] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Subscript):
            continue
        for part in ast.walk(node.slice):
            if isinstance(part, ast.Slice) and (part.lower is None) != (part.upper is None):
                bound = part.lower or part.upper
                if bound and all(isinstance(n, (ast.Constant, ast.UnaryOp, ast.USub)) for n in ast.walk(bound)):
                    kinds.setdefault(ast.unparse(node.value), set()).add(part.lower is None)
    return any(len(both) == 2 for both in kinds.values())
