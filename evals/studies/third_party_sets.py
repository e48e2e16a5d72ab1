"""Problems of public sets of functions, read from their checkouts: what `third_party.py` asks the generator about."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.utils._pytree import tree_flatten, tree_unflatten

from cutesmith.patterns.tracing.trace import drawn
from cutesmith.problems.loading import LoadedFile, load_file
from cutesmith.recording.facade import cuda_as_cpu

Function = Callable[..., Any]

KERNELBENCH_OWN = ("arch", "convolution", "fuse")
"""Folders of MultiKernelBench that hold KernelBench's problems."""


@dataclass(frozen=True)
class Problem:
    """A function and its inputs, or a problem file that has been run; `tried` is a smaller one to compare results of.

    `inputs` is called on CUDA tensors without storage, or within `cuda_as_cpu()`.
    """

    name: str
    function: Function
    inputs: Callable[[], Sequence[Any]]
    file: LoadedFile | None = None
    tried: Problem | None = None
    copied: bool = False  # the function is of copies of its arguments


def files_of_multikernelbench(checkout: Path) -> list[Path]:
    """All but KernelBench's."""
    folders = [each for each in sorted((checkout / "reference").iterdir()) if each.is_dir()]
    own = [each for each in folders if each.name not in KERNELBENCH_OWN and "npukernelbench" not in each.name]
    return [path for folder in own for path in sorted(folder.glob("*.py"))]


def files_of_npukernelbench(checkout: Path) -> list[Path]:
    """Those of NPUKernelBench, which MultiKernelBench has as PyTorch functions."""
    return sorted((checkout / "reference").glob("npukernelbench_level*/*.py"))


def as_they_are(path: Path, folder: Path) -> Iterator[Problem]:
    """A KernelBench file."""
    yield _of_file(path.stem, path)


def of_first_inputs(path: Path, folder: Path) -> Iterator[Problem]:
    """A file whose inputs come in groups that a JSON file beside it describes: the first of them."""
    (folder / path.with_suffix(".json").name).write_bytes(path.with_suffix(".json").read_bytes())
    copy = folder / path.name
    copy.write_text(f"{path.read_text()}\n\ndef get_inputs():\n    return get_input_groups()[0]\n", "utf-8")
    yield _of_file(path.stem, copy)


def _of_file(name: str, path: Path) -> Problem:
    loaded = load_file(path)
    if loaded.contract.wraps_model:
        loaded.module.reference_model()  # its initialisation is not part of the function
    return Problem(name, loaded.reference_fn, loaded.get_inputs, loaded)


def files_of_robust_kbench(checkout: Path) -> list[Path]:
    """All but KernelBench's."""
    paths = sorted((checkout / "tasks").glob("*/func_*.py"))
    return [path for path in paths if path.parent.name != "kernelbench"]


def of_configuration(path: Path, folder: Path) -> Iterator[Problem]:
    """A model whose sizes a JSON file names; of a backward one the gradients, by the gradient of its result."""
    direction = path.stem.removeprefix("func_")
    settings = json.loads((path.parent / f"config_{direction}.json").read_text())
    shared = settings["single_shared_configs"][0]
    model = {**settings["single_init_configs"][0], **shared}
    sizes = {**settings["single_input_configs"][0], **shared}
    copy = folder / f"{path.parent.name}_{direction}.py"
    copy.write_text(
        f"{path.read_text()}\n\nof_sizes = get_inputs\n\n\ndef get_inputs():\n    return of_sizes(**{sizes!r})\n\n\n"
        f"def get_init_inputs():\n    return [[], {model!r}]\n",
        "utf-8",
    )
    problem = _of_file(copy.stem, copy)
    yield _gradients(problem) if direction == "backward" else problem


def _gradients(forward: Problem) -> Problem:
    """Gradients of all arguments that are floating-point tensors; that of the result is the first argument."""

    def function(gradient: torch.Tensor, *inputs: Any) -> Any:
        places = [at for at, value in enumerate(inputs) if _is_float(value)]

        def of_floats(*values: torch.Tensor) -> Any:
            given = dict(zip(places, values, strict=True))
            return forward.function(*(given.get(at, value) for at, value in enumerate(inputs)))

        return torch.func.vjp(of_floats, *(inputs[at] for at in places))[1](gradient)

    def inputs() -> list[Any]:
        values = [value.detach() if isinstance(value, torch.Tensor) else value for value in forward.inputs()]
        return [torch.randn_like(forward.function(*values)), *values]

    return Problem(forward.name, function, inputs)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def files_of_tritonbench(checkout: Path) -> list[Path]:
    """Functions of PyTorch, each with a test of some calls."""
    return sorted((checkout / "data" / "TritonBench_T_v1").glob("*.py"))


def of_test(path: Path, folder: Path) -> Iterator[Problem]:
    """The distinct calls that a file's test makes of the function of its name."""
    text = path.read_text()
    definition, _, test = text.partition("#" * 80)
    calls: dict[str, Problem] = {}
    module: dict[str, Any] = {"__name__": "problem", "__file__": str(path)}
    with cuda_as_cpu():
        exec(compile(definition, str(path), "exec"), module)
        name = path.stem if path.stem in module else [key for key, value in module.items() if _is_defined(value)][-1]
        function = module[name]

        def recorded(*arguments: Any, **named: Any) -> Any:
            problem = call_of(f"{path.stem}#{len(calls) + 1}", function, (arguments, named))
            calls.setdefault(_told(arguments, named), problem)
            return function(*arguments, **named)

        module[name] = recorded
        error = None
        try:
            exec(compile("\n" * definition.count("\n") + test.lstrip("#"), str(path), "exec"), module)
        except Exception as failed:  # noqa: BLE001 - the calls before it are calls
            error = failed
    yield from calls.values()
    if error is not None and not calls:
        raise error


def _is_defined(value: Any) -> bool:
    return inspect.isfunction(value) and value.__module__ == "problem"


def _told(*values: Any) -> str:
    leaves, spec = tree_flatten(values)
    told = [(each.shape, each.stride(), each.dtype) if isinstance(each, torch.Tensor) else each for each in leaves]
    return f"{told} {spec}"


def call_of(name: str, function: Function, values: tuple[Any, dict[str, Any]]) -> Problem:
    """A call: its tensors, also those in lists and dictionaries, are the inputs, all else is a constant."""
    leaves, spec = tree_flatten(values)
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    kept = [leaves[at].detach().clone() for at in places]

    def called(*tensors: torch.Tensor) -> Any:
        given = dict(zip(places, tensors, strict=True))
        arguments, named = tree_unflatten([given.get(at, leaf) for at, leaf in enumerate(leaves)], spec)
        return function(*arguments, **named)

    return Problem(name, called, lambda: [value.clone() for value in kept])


def files_of_gpu_mode(checkout: Path) -> list[Path]:
    """References with `generate_input`; those over several GPUs are left out."""
    paths = sorted((checkout / "problems").glob("*/*/reference.py"))
    return [path for path in paths if path.parts[-3] != "amd_distributed"]


def of_task(path: Path, folder: Path) -> Iterator[Problem]:
    """The last benchmark of its task.yml; its kernel is compared on the first of the tests."""
    task = yaml.safe_load((path.parent / "task.yml").read_text())
    with _importing(path.parent, path.parent.parent), cuda_as_cpu():
        spec = importlib.util.spec_from_file_location("reference", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

    def called(sizes: dict[str, Any]) -> Problem:
        values = module.generate_input(**sizes)
        return call_of(f"{path.parts[-3]}/{path.parts[-2]}", module.ref_kernel, ((values,), {}))

    large = drawn(lambda: called(task["benchmarks"][-1]))
    with cuda_as_cpu():
        small = called(task["tests"][0])
    yield replace(large, tried=small)


@contextmanager
def _importing(*folders: Path) -> Iterator[None]:
    before = sys.path[:]
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = before


SETS: dict[str, tuple[Callable[[Path], list[Path]], Callable[[Path, Path], Iterator[Problem]]]] = {
    "multikernelbench": (files_of_multikernelbench, as_they_are),
    "npukernelbench": (files_of_npukernelbench, of_first_inputs),
    "robust_kbench": (files_of_robust_kbench, of_configuration),
    "tritonbench": (files_of_tritonbench, of_test),
    "gpu_mode": (files_of_gpu_mode, of_task),
}
"""Of each set: its files in a checkout, and the problems of a file, which may write into a folder of its own."""
