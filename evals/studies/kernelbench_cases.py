"""Cases of `bench_patterns.py`: whole problems of KernelBench at full size (Ouyang et al. 2025).

Their inputs are their own, drawn on the GPU; a result is compared with eager PyTorch's in float32 without tf32.
`CUTESMITH_KERNELBENCH` names the checkout.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from pattern_cases import Case
from races import Tensor

from cutesmith.evals.suites.loading import KERNELBENCH_FULL, problems_of_checkout
from cutesmith.problems.loading import LoadedFile, load_file
from cutesmith.recording.facade import cuda_as_cpu


def level(number: int) -> Callable[[], Iterator[Case]]:
    """The cases of a level, by their numbers; a problem whose inputs cannot be described is left out with a line."""

    def cases() -> Iterator[Case]:
        problems = problems_of_checkout(Path(os.environ.get("CUTESMITH_KERNELBENCH", "KernelBench")))
        of_level = [
            (int(path.stem.split("_")[0]), path) for name, path in problems if name.startswith(f"level{number}/")
        ]
        for place, path in sorted(of_level):
            try:
                yield _case(f"{number}/{place} {path.stem.split('_', 1)[1]}", load_file(path))
            except Exception as error:  # noqa: BLE001
                print(f"{path.stem}: {type(error).__name__}: {error}"[:300], flush=True)

    return cases


def _case(name: str, problem: LoadedFile) -> Case:
    def exact(*inputs: Any) -> tuple[Any, torch.Tensor]:
        allowed = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False
        try:
            result = problem.reference_fn(*inputs)
        finally:
            torch.backends.cudnn.allow_tf32 = allowed
        return (), result[0] if isinstance(result, tuple | list) else result

    return Case(
        name, problem.reference_fn, arguments_of(problem), 1, compiled="default", exact=exact,
        problem=problem, tolerance=KERNELBENCH_FULL,
    )  # fmt: skip


def arguments_of(problem: LoadedFile) -> tuple[Any, ...]:
    """What the processes that compile make without values, of each input and parameter."""
    with cuda_as_cpu(fake=True):
        return tuple(Tensor(tuple(x.shape), x.dtype) if torch.is_tensor(x) else x for x in problem.get_inputs())
