"""Functions of libraries that compute whole tasks, the strongest baselines: read off their files, which are not run.

A file of `evals/libraries/` says `TASKS = {"level1/softmax": "softmax", …}`: which of its functions takes the inputs of
which task and returns what its reference returns. The judge imports it beside the reference, on the machine that times.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.evals.records import Library
from cutesmith.evals.suites.metadata import constants
from cutesmith.problems import contract

NAME = "TASKS"
HINT = 'Such as TASKS = {"level1/softmax": "softmax"}: ids of tasks, and functions of the same file.'


def libraries_of(folder: Path) -> Mapping[str, tuple[Library, ...]]:
    """The library functions of each task, by its id, in the order of the files' names.

    Raises as `read_library`, and UsageError for a folder without such files.
    """
    paths = sorted(folder.glob("*.py"))
    if not paths:
        raise UsageError(f"{folder}: no folder of library files", hint=HINT)
    found: dict[str, list[Library]] = defaultdict(list)
    for path in paths:
        for task, function in read_library(path).items():
            found[task].append(Library(path=path, function=function, data=path.read_bytes()))
    return {task: tuple(functions) for task, functions in found.items()}


def read_library(path: Path) -> dict[str, str]:
    """Functions by the ids of tasks. Raises UsageError for a file without them, ContractError for no Python file."""
    tree = contract.parse(contract.problem_source(path), path)
    tasks = dict(constants(tree)).get(NAME)
    if not isinstance(tasks, dict) or not all(isinstance(text, str) for pair in tasks.items() for text in pair):
        raise UsageError(f"{path}: it names no {NAME}", hint=HINT)
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if missing := sorted(set(tasks.values()) - defined):
        raise UsageError(f"{path}: {NAME} names functions that it does not define: {', '.join(missing)}", hint=HINT)
    return tasks
