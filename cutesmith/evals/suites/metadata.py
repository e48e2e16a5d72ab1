"""What a problem file says of itself at module scope, read off its AST: level, tags, dtypes, architectures.

Nothing is run. Values are literals, and names defined above them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutesmith.errors import UsageError
from cutesmith.evals.records import Task
from cutesmith.problems import contract

DTYPE_TAGS = ("fp64", "fp32", "fp16", "bf16", "fp8", "int64", "int32", "int8", "int4", "bool")
"""Tags that name what a task's tensors hold; they are its dtypes where the file declares none."""

LEVEL_FOLDER = re.compile(r"level_?(\d+)")


def read_task(path: Path, task_id: str, *, tolerance: str = "strict") -> Task:
    """The task that a file holds; its level is `LEVEL`, else that of the folder (`level3/`), else 0.

    Raises ContractError for a file that cannot be read or is not a problem, UsageError for metadata of another type.
    """
    found = contract.inspect(path)
    if not found.has_problem:
        missing = " and ".join(name for name in ("reference_fn", "get_inputs") if name not in found.names)
        raise UsageError(f"{path}: no task: it defines no {missing}", hint=contract.PROBLEM_LINES)
    facts = Facts(path, dict(constants(contract.parse(found.source, path))))
    facts.require_counts("ALGORITHMIC_FLOPS", "ALGORITHMIC_BYTES")
    tags = facts.texts("TAGS")
    return Task(
        id=task_id,
        path=path.absolute(),
        sha256=contract.content_hash(path),
        level=facts.level(),
        tags=tags,
        dtypes=facts.texts("DTYPES") or tuple(tag for tag in tags if tag in DTYPE_TAGS),
        archs=facts.texts("ARCHS"),
        tolerance=tolerance,
    )


@dataclass(frozen=True)
class Facts:
    """The constants of one file as the fields of a task; what is there and of another type is a UsageError."""

    path: Path
    values: Mapping[str, Any]

    def level(self) -> int:
        """`LEVEL`, else the number in the folder's name, else 0."""
        folder = LEVEL_FOLDER.fullmatch(self.path.absolute().parent.name)
        level: int = self.values.get("LEVEL", int(folder.group(1)) if folder else 0)
        self._require("LEVEL", type(level) is int and level >= 0, "a number from 0 up, such as 2")
        return level

    def texts(self, name: str) -> tuple[str, ...]:
        """A tuple or list of names; empty where there is none."""
        value: tuple[str, ...] = self.values.get(name, ())
        named = isinstance(value, tuple) and all(isinstance(item, str) and item for item in value)
        self._require(name, named, 'names, such as ("softmax", "bf16")')
        return value

    def require_counts(self, *names: str) -> None:
        """Numbers of operations or bytes; what is not a literal is counted or evaluated by the benchmark alone."""
        for name in names:
            value = self.values.get(name, 0)
            counted = type(value) in (int, float) and value >= 0
            self._require(name, counted, "a number from 0 up, or a function of the inputs")

    def _require(self, name: str, fits: bool, wanted: str) -> None:
        if not fits:
            raise UsageError(f"{self.path}: {name} is {self.values[name]!r:.80}, not {wanted}")


def constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Names at module scope and their values, where those can be told without running anything."""
    known: dict[str, Any] = {}
    for statement in tree.body:
        for name, node in _assignments(statement):
            try:
                known[name] = constant(node, known)
            except (ValueError, TypeError, RecursionError):
                known.pop(name, None)
                continue
            yield name, known[name]


def _assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """`a = 1`, `a: int = 1`, and `a, b = 1, 2` as pairs of name and value."""
    targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    value = getattr(statement, "value", None)
    for target in targets:
        if isinstance(target, ast.Name) and value is not None:
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = zip(target.elts, value.elts)
            yield from ((name.id, node) for name, node in pairs if isinstance(name, ast.Name))


def constant(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A literal, a known name, a negative number, or a tuple, list (as a tuple) or dict of such.

    Raises ValueError or TypeError for anything else.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(constant(item, known) for item in node.elts)
    if isinstance(node, ast.Dict):
        keys = (constant(key, known) for key in node.keys if key is not None)
        return dict(zip(keys, (constant(value, known) for value in node.values), strict=True))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -constant(node.operand, known)
    raise ValueError(f"line {node.lineno}: no constant")
