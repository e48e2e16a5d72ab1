"""Every task is worth solving: its output varies, depends on each input and repeats, and its inputs are large."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

TASKS = Path(__file__).resolve().parents[2] / "evals" / "tasks"
FILES = sorted(str(path.relative_to(TASKS)) for path in TASKS.rglob("*.py"))
MEGABYTE = 1 << 20


class CudaElsewhere(TorchFunctionMode):
    """Makes every factory that asks for "cuda" use another device ("cpu", or "meta" to look at sizes only)."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = self.device
        return function(*args, **kwargs)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are small: threads would only wait for each other where several tests run at once."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def same(left: Any, right: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(as_tuple(left), as_tuple(right), strict=True))


def largest(sets: list[list[Any]]) -> list[Any]:
    return max(sets, key=lambda inputs: sum(x.numel() for x in inputs if isinstance(x, torch.Tensor)))


def redrawn(inputs: list[Any], fresh: list[Any], position: int) -> list[Any]:
    value = inputs[position]
    other = fresh[position] if isinstance(value, torch.Tensor) else value + 0.5
    return [*inputs[:position], other, *inputs[position + 1 :]]


@pytest.mark.parametrize("name", FILES)
def test_task_is_sound(name: str) -> None:
    task = runpy.run_path(str(TASKS / name))
    assert task["LEVEL"] in (1, 2) and all(isinstance(tag, str) for tag in task["TAGS"])
    assert task["__doc__"].strip().endswith(".")
    torch.manual_seed(0)
    with CudaElsewhere("cpu"):
        sets, fresh_sets = list(task["get_input_sets"]()), list(task["get_input_sets"]())
    assert len(sets) >= 2
    for inputs in sets:
        outputs = as_tuple(task["reference_fn"](*inputs))
        assert all(type(output) is torch.Tensor for output in outputs)
    inputs, fresh = largest(sets), largest(fresh_sets)
    expected = task["reference_fn"](*inputs)
    assert same(expected, task["reference_fn"](*inputs)), "not deterministic"
    several = [output for output in as_tuple(expected) if output.numel() > 1]  # a total is a single number
    assert not several or any(output.float().std() > 0 for output in several), "constant output"
    for position in range(len(inputs)):
        changed = task["reference_fn"](*redrawn(inputs, fresh, position))
        assert not same(expected, changed), f"the output does not depend on input {position}"


@pytest.mark.parametrize("name", FILES)
def test_task_fills_a_gpu(name: str) -> None:
    task = runpy.run_path(str(TASKS / name))
    with CudaElsewhere("meta"):
        inputs = task["get_inputs"]()
        outputs = as_tuple(task["reference_fn"](*inputs))
    tensors = [x for x in (*inputs, *outputs) if isinstance(x, torch.Tensor)]
    assert all(x.device.type == "meta" for x in tensors)
    assert sum(x.numel() * x.element_size() for x in tensors) >= 64 * MEGABYTE


def test_there_are_enough_tasks_of_both_levels() -> None:
    levels = [name.split("/")[0] for name in FILES]
    assert levels.count("level1") >= 24 and levels.count("level2") >= 24
    assert levels.count("speed") == 20
