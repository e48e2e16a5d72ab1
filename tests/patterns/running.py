"""What the tests of both patterns share: inputs, generated modules, recorded launches."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch


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


def move(value):
    """On the GPU with the same strides and offset; a number as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    base = value.new_empty(0).set_(value.untyped_storage()).cuda()
    return base.as_strided(value.shape, value.stride(), value.storage_offset())
