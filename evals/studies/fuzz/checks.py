"""A case through the offline generator: traced and drafted as `generate` does, run, and compared."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import CutesmithError, UnmatchedError
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from evals.studies.fuzz.cases import Case
from evals.studies.fuzz.comparison import differences, listed

ARCH = "sm_90a"
HELD, REFUSED, WRONG, FAILED = "held", "refused", "wrong", "failed"


@dataclass(frozen=True)
class Outcome:
    """What became of a case; `reason` names the class of a refusal or a failure, `pattern` what took the graph."""

    seed: int
    status: str  # held, refused, wrong, failed
    reason: str = ""
    families: tuple[str, ...] = ()
    pattern: str = ""
    configuration: int = 0
    seconds: float = 0.0


def check(case: Case, folder: Path, on: str = "emulator") -> Outcome:
    """Draft the case's kernel, run it on the GPU or the emulated one, and compare.

    Every second seed takes the first configuration, the others any that the pattern has.
    """
    began = time.monotonic()
    about: dict[str, object] = {"families": case.families}

    def outcome(status: str, reason: str = "") -> Outcome:
        return Outcome(case.seed, status, reason, **about, seconds=round(time.monotonic() - began, 2))  # type: ignore[arg-type]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = _module(case.source, folder).reference_fn
        try:
            plan = plan_kernel(trace_function(reference, case.inputs), ARCH)
            configurations = plan.configurations(ARCH)
            number = random.Random(case.seed).randrange(len(configurations)) if case.seed % 2 else 0
            about |= {"pattern": plan.pattern, "configuration": number}
            kernel = plan.render(configurations[number])
        except UnmatchedError as refusal:
            return outcome(REFUSED, f"{refusal.operation.split(' at ')[0]}: {refusal.message}")
        except Exception as error:  # a fault of the generator: its class is the finding
            return outcome(FAILED, f"draft: {told(error)}")
        try:
            found = results_of(kernel, case.inputs, folder, on)
        except Exception as error:  # the class of whatever the kernel's host code or its execution raised
            return outcome(FAILED, told(error))
        problem = differences(reference, case.inputs, found, case.coarsest)
    return outcome(WRONG, problem) if problem else outcome(HELD)


def results_of(kernel: str, inputs: Sequence[Any], folder: Path, on: str) -> list[torch.Tensor]:
    """What `kernel_fn` of this text returns on the GPU or the emulated one, on the CPU."""
    with emulated_device(ARCH) if on == "emulator" else contextlib.nullcontext():
        given = [_moved(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        found = [value.cpu() for value in listed(_module(kernel, folder).kernel_fn(*given))]
        if on == "gpu":
            torch.cuda.synchronize()
    return found


def told(error: Exception) -> str:
    """Class and first line with a text; of an error of ours the line says enough."""
    line = next((line for line in str(error).splitlines() if line.strip()), "")[:200]
    kind = type(error).__name__
    return f"{kind}: {line}" if not isinstance(error, CutesmithError) or kind not in line else line


def _moved(value: torch.Tensor) -> torch.Tensor:
    """On the GPU, with the same strides and offset."""
    base = value.new_empty(0).set_(value.untyped_storage()).cuda()
    return base.as_strided(value.shape, value.stride(), value.storage_offset())


def _module(source: str, folder: Path) -> ModuleType:
    path = Path(tempfile.mkdtemp(dir=folder)) / "module.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("fuzzed", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
