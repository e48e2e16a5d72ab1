"""What is done with the functions of a problem file: seeded, called, their results taken apart."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from cutesmith.errors import ContractError
from cutesmith.problems import contract
from cutesmith.problems.loading import load_file


def load_problem(path: Path) -> Any:
    """The problem's part of a file, and nothing of a kernel in it: what its functions need not is left out."""
    wanted = (*contract.PROBLEM_NAMES, *contract.DRAWING_OPTIONS, "torch")
    return load_file(path, strip=names_beside(contract.problem_source(path), path, wanted), with_problem=True)


def names_beside(source: str, path: Path, wanted: Iterable[str]) -> list[str]:
    """Top-level names of a file that none of `wanted` needs, however indirectly."""
    body = list(contract.module_scope(contract.parse(source, path).body))
    needs: dict[str, set[str]] = {}
    for statement in body:
        for name in contract.defined_names(statement):
            needs.setdefault(name, set()).update(n.id for n in ast.walk(statement) if isinstance(n, ast.Name))
    kept, todo = set(), [name for name in wanted if name in needs]
    while todo:
        if (name := todo.pop()) not in kept:
            kept.add(name)
            todo += [other for other in needs[name] if other in needs]
    return sorted(needs.keys() - kept)


def seed_everything(seed: int) -> None:
    """Seed every generator that `get_inputs` may draw from."""
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed % 2**32)


def call_of_file(function: Callable[..., Any], arguments: Sequence[Any], name: str) -> Any:
    """The result of a function of the problem file; ContractError with what it raised."""
    try:
        return function(*arguments)
    except ContractError:
        raise
    except Exception as error:
        raise ContractError(f"{name} raised {type(error).__name__}: {str(error)[:1000]}") from error


def items_of(sets: Callable[[], Any], name: str) -> Iterable[Any]:
    """The items of `get_input_sets()`; what it raises is a broken contract."""
    iterator = iter(call_of_file(sets, (), name))
    while True:
        try:
            item = call_of_file(next, (iterator,), name)
        except ContractError as error:
            if isinstance(error.__cause__, StopIteration):
                return
            raise
        yield item


def promises_shapes(module: Any, sets: int) -> bool:
    """Whether kernels of a problem file with so many input sets take other shapes, as DERIVED_SHAPES or a set says."""
    return bool(getattr(module, "DERIVED_SHAPES", sets > 0))


def emulated_sizes(module: Any) -> dict[str, Any]:
    """Keyword arguments of get_inputs that a file declares for the emulated GPU; empty without any.

    Raises ContractError for anything but a dict.
    """
    sizes = getattr(module, "EMULATED_SIZES", None) or {}
    if not isinstance(sizes, dict):
        hint = 'Such as EMULATED_SIZES = {"batch": 2}: keyword arguments of get_inputs.'
        raise ContractError(f"EMULATED_SIZES is {sizes!r:.80}, no dict", hint=hint)
    return sizes


def native_outputs(reference_fn: Callable[..., Any], values: Sequence[Any]) -> tuple[list[torch.Tensor], bool]:
    """What the reference returns for these very inputs, and whether it is a tuple; ContractError for anything else."""
    with torch.no_grad():
        returned = reference_fn(*values)
    outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if not outputs or not all(isinstance(output, torch.Tensor) for output in outputs):
        kinds = ", ".join(type(output).__name__ for output in outputs) or "nothing"
        raise ContractError(f"reference_fn returned {kinds}, not a tensor or a tuple of tensors")
    return [output.detach() for output in outputs], isinstance(returned, (tuple, list))
