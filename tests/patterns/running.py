"""What the tests of both patterns share: inputs, generated modules, recorded launches."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from cutesmith.patterns.graph.interpret import interpret
from cutesmith.recording.open_session import session


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def load(source: str, folder: Path):
    """The generated source as a module."""
    path = folder / "kernel.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("generated_kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def like(value):
    """A tensor on the (recorded) GPU with the same metadata; a number as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")


def recorded_launches(plan, function, inputs, folder: Path) -> int:
    """How many kernels the first configuration launches; its outputs have the shapes and dtypes of the function's."""
    with session("sm_90a") as recorded:
        outs = as_list(load(plan.render(plan.configurations()[0]), folder).kernel_fn(*map(like, inputs)))
    expected = as_list(function(*inputs))
    assert [(o.shape, o.dtype) for o in outs] == [(e.shape, e.dtype) for e in expected]
    assert not recorded.errors
    return len(recorded.launches)


def as_list(result):
    """What a function returned, one output or several."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def move(value):
    """On the GPU with the same strides and offset; a number as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    base = value.new_empty(0).set_(value.untyped_storage()).cuda()
    return base.as_strided(value.shape, value.stride(), value.storage_offset())


def interpret_chain(plan, inputs):
    """What the last launch of a chain returns when PyTorch computes each launch's graph in float64."""
    known, found = list(inputs), []
    shapes = [getattr(value, "shape", ()) for value in inputs]
    for launch in plan.launches:
        sizes = [law.value(shapes) for law in launch.laws]
        found = interpret(launch.plan.graph, [*(known[place] for place in launch.takes), *sizes])
        known += found
    return found
