"""CUTLASS's Ampere examples as cases for the emulated GPU: scripts that draw inputs, launch, and compare with PyTorch.

They are BSD-3 and not part of this repository. Put the files of `examples/python/CuTeDSL/cute/ampere/kernel` (CUTLASS,
commit 7107b0553) side by side into a folder and name it in CUTLASS_EXAMPLES; without it there are no such cases.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

FOLDER = os.environ.get("CUTLASS_EXAMPLES", "")
SEED = 1024


class _Captured(Exception):
    """The example has come to its comparison: nothing after it (benchmarks) is of interest."""


def example_runs() -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """(name, function that runs the example and gives the kernel's output) of those that are there."""
    for name, file, place, call in _RUNS:
        if FOLDER and Path(FOLDER, f"{file}.py").is_file():
            yield name, partial(_run, file, place, call)


def _run(file: str, place: int, call: Callable[[Any], Any]) -> torch.Tensor:
    """The `place`-th argument of the example's first comparison; what it prints is dropped."""
    compared: list[Any] = []

    def capture(*sides: Any, **options: Any) -> None:
        compared.extend(sides)
        raise _Captured

    original = torch.testing.assert_close
    torch.testing.assert_close = capture
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(_Captured), DrawsOnTheCpu():
            torch.manual_seed(SEED)
            call(_module(file))
    finally:
        torch.testing.assert_close = original
    return compared[place]


def _module(file: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"cutlass_example_{file}", Path(FOLDER, f"{file}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class DrawsOnTheCpu(TorchFunctionMode):
    """Random tensors on a GPU get the values that the CPU's generator gives, in float32 or integers, then rounded."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func in (torch.randn, torch.rand, torch.randint):
            device, dtype = named.pop("device", None), named.pop("dtype", None)
            drawn = func(*args, **named)
            return drawn.to(device=device or "cpu", dtype=dtype or drawn.dtype)
        if func is torch.Tensor.random_ and args[0].is_cuda:
            drawn = torch.empty(tuple(args[0].shape), dtype=torch.int32).random_(*args[1:], **named)
            return args[0].copy_(drawn.to(args[0].device))
        return func(*args, **named)


def _dtype(name: str) -> Any:
    import cutlass

    return getattr(cutlass, name)


def _add(dtype: str, m: int, n: int) -> Callable[[Any], Any]:
    return lambda module: module.run_elementwise_add(m, n, _dtype(dtype), benchmark=False)


def _apply(operation: str, dtype: str) -> Callable[[Any], Any]:
    return lambda module: module.run_and_verify(operation, 64, 256, _dtype(dtype), benchmark=False)


def _sgemm(mnk: tuple[int, int, int], majors: str) -> Callable[[Any], Any]:
    return lambda module: module.run(mnk, *majors, warmup_iterations=0, iterations=1)


def _tensorop(mnkl: tuple[int, int, int, int], majors: str, dtype: str) -> Callable[[Any], Any]:
    return lambda module: module.run(
        mnkl, _dtype(dtype), _dtype(dtype), _dtype("Float32"), *majors, (2, 2, 1), warmup_iterations=0, iterations=1
    )


def _attention(dtype: str, head_dim: int, causal: bool) -> Callable[[Any], Any]:
    return lambda module: module.run(_dtype(dtype), 1, 128, 192, 2, head_dim, m_block_size=64, n_block_size=64, is_causal=causal)  # noqa: E501  # fmt: skip


_RUNS: tuple[tuple[str, str, int, Callable[[Any], Any]], ...] = (
    ("elementwise_add 64x512 fp16", "elementwise_add", 1, _add("Float16", 64, 512)),
    ("elementwise_add 63x500 fp32", "elementwise_add", 1, _add("Float32", 63, 500)),
    ("elementwise_apply add fp32", "elementwise_apply", 1, _apply("add", "Float32")),
    ("elementwise_apply leaky_relu fp32", "elementwise_apply", 1, _apply("leaky_relu", "Float32")),
    ("sgemm 128x128x32 mnn", "sgemm", 0, _sgemm((128, 128, 32), "mnn")),
    ("sgemm 200x136x40 kkn", "sgemm", 0, _sgemm((200, 136, 40), "kkn")),
    ("tensorop_gemm 128x128x64 fp16", "tensorop_gemm", 0, _tensorop((128, 128, 64, 1), "mnn", "Float16")),
    ("tensorop_gemm 256x128x96x2 fp16", "tensorop_gemm", 0, _tensorop((256, 128, 96, 2), "kkn", "Float16")),
    ("flash_attention_v2 bf16", "flash_attention_v2", 0, _attention("BFloat16", 64, False)),
    ("flash_attention_v2 fp16 causal", "flash_attention_v2", 0, _attention("Float16", 64, True)),
)
