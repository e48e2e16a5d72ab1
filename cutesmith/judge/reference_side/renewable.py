"""The handler of a trusted problem's process that serves one judging after another, each by a reference of its own.

Where a problem left anything behind in its process, no other problem may follow it there.
"""

from __future__ import annotations

import builtins
import gc
import math
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Forget, Load
from cutesmith.judge.surroundings import Surroundings
from cutesmith.judge.transfer.mapped_files import FILES
from cutesmith.problems.loading import FILE_MODULE
from cutesmith.sandbox.messages import Request

LEFT_BYTES = 64 << 20  # of GPU memory that stays allocated: workspaces of libraries

_STATES: tuple[tuple[str, Any, str], ...] = (
    ("torch", torch, "get_default_dtype get_default_device get_float32_matmul_precision get_num_threads"),
    ("torch", torch, "is_grad_enabled is_inference_mode_enabled are_deterministic_algorithms_enabled"),
    ("torch", torch, "is_autocast_enabled is_deterministic_algorithms_warn_only_enabled"),
    ("torch.backends.cudnn", torch.backends.cudnn, "enabled benchmark deterministic allow_tf32"),
    ("torch.backends.mkldnn", torch.backends.mkldnn, "enabled deterministic allow_tf32"),
    ("torch.backends.cuda.matmul", torch.backends.cuda.matmul, "allow_tf32 allow_fp16_accumulation"),
    ("torch.backends.cuda.matmul", torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    ("torch.backends.cuda.matmul", torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    ("torch.backends.cuda", torch.backends.cuda, "flash_sdp_enabled mem_efficient_sdp_enabled math_sdp_enabled"),
    ("torch.backends.cuda", torch.backends.cuda, "cudnn_sdp_enabled preferred_linalg_library preferred_blas_library"),
    ("torch._C", torch._C, "_len_torch_function_stack _len_torch_dispatch_stack"),
    ("os", os, "getcwd"),
    ("sys", sys, "getrecursionlimit"),
)
_OWNERS = (torch, torch.Tensor, torch.nn, torch.nn.Module, torch.nn.functional, builtins, math, random)
_CLASSES = (torch.Tensor.__name__, torch.nn.Module.__name__)


class Renewable:
    """A reference that can be told to forget everything; `make` gives a new one."""

    def __init__(self, make: Callable[[], Reference]) -> None:
        self._make, self._reference = make, make()
        self._before: Traces | None = None

    def handle(self, request: Request[Any]) -> Any:
        """As the reference does; of `Forget`, what the last problem left behind."""
        if isinstance(request, Forget):
            self._reference.exits.close()
            self._reference = self._make()
            free_memory()
            return () if self._before is None else tuple(self._before.left())
        if isinstance(request, Load) and self._before is None:
            self._before = Traces()
        return self._reference.handle(request)


class Traces:
    """The state of this process at one moment, to be compared with a later one."""

    def __init__(self) -> None:
        self._surroundings = Surroundings()
        self._states, self._functions = dict(_states()), dict(_functions())
        self._environment, self._path, self._modules = dict(os.environ), list(sys.path), set(sys.modules)

    def left(self) -> list[str]:
        """Since then, a name or a sentence for each; the files' own modules are taken away."""
        now, functions = dict(_states()), dict(_functions())
        found = [change.text for change in self._surroundings.changes()]
        found += [name for name, state in self._states.items() if now[name] != state]
        found += [f"{owner}.{name}" for owner, names in functions.items() for name in self._other(owner, names)]
        found += ["os.environ"] * (dict(os.environ) != self._environment)
        found += ["sys.path"] * (sys.path != self._path)
        left = torch.cuda.memory_allocated() if _uses_gpu() else 0
        memory = [f"{left} bytes of the GPU's memory"] if left > LEFT_BYTES else []
        return found + list(self._strange_modules()) + memory

    def _other(self, owner: str, now: dict[str, Any]) -> list[str]:
        """Names whose function is another; new ones hide others in a class, and in a module nothing."""
        before = self._functions[owner]
        added = now.keys() - before.keys() if owner in _CLASSES else ()
        return [name for name in before if now.get(name) is not before[name]] + sorted(added)

    def _strange_modules(self) -> Iterator[str]:
        """New ones from elsewhere than where everybody imports from: the next problem may mean another of that name."""
        for name in sys.modules.keys() - self._modules:
            if name.startswith(FILE_MODULE):
                del sys.modules[name]
                continue
            file = getattr(sys.modules[name], "__file__", None)
            if file and not any(file.startswith(os.path.join(entry, "")) for entry in self._path if entry):
                yield f"module {name}"


def free_memory() -> None:
    """Give back what nothing holds any more: mapped files, and memory of the GPU. Raises what a broken context does."""
    FILES.forget()
    gc.collect()
    if _uses_gpu():
        torch.cuda.synchronize()
        getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
        torch.cuda.empty_cache()


def _uses_gpu() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call,unused-ignore]


def _states() -> Iterator[tuple[str, Any]]:
    for title, owner, names in _STATES:
        for name in names.split():
            yield f"{title}.{name}", _state(owner, name)


def _state(owner: Any, name: str) -> Any:
    """A setting, or what its getter says; a release of torch without it has none."""
    value: Any = getattr(owner, name, None)
    try:
        return value() if callable(value) else value
    except RuntimeError as error:  # such as two ways of setting one thing that contradict each other
        return str(error)


def _functions() -> Iterator[tuple[str, dict[str, Any]]]:
    for owner in _OWNERS:
        yield owner.__name__, {name: value for name, value in list(vars(owner).items()) if callable(value)}
