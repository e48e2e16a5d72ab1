"""Whether this process's GPU still computes, asked in a process of its own: a broken context must not be ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutesmith.checks.isolation.worker import Limits, run_isolated
from cutesmith.devices import current_device
from cutesmith.errors import CandidateError

PROBE_SECONDS = 180.0


def handler() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """For the worker: one small computation."""
    return lambda request: {"sum": _computed()}


def _computed() -> float:
    import torch

    return float(torch.ones(1024, device="cuda").sum().item())


def probe() -> str:
    """Why the GPU does not answer, "" when it does."""
    if current_device() is None:
        return "nvidia-smi lists no GPU any more"
    limits = Limits(wall_seconds=PROBE_SECONDS)
    try:
        run_isolated("cutesmith.evals.engines.gpu_probe:handler", {}, limits=limits, gpu=True)
    except CandidateError as error:
        return f"the GPU does not answer: {error.message}"
    return ""
