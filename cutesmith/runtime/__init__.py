"""Plans, tilings and autotuning of kernels that are written by hand or by the generator.

A tool of development: the kernel file that is judged and shipped stands alone, with the winner written down in it.
Names are loaded on first use, so that a tiling costs no import of torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutesmith.runtime.launching import tuned
    from cutesmith.runtime.plan import CuteKernel, KernelPlan
    from cutesmith.runtime.tiling import TiledShape, Tiling
    from cutesmith.runtime.trials import AutotuneResult, Trial
    from cutesmith.runtime.tuning import autotune
    from cutesmith.runtime.tuning_cache import TuningCache

__all__ = [
    "AutotuneResult",
    "CuteKernel",
    "KernelPlan",
    "TiledShape",
    "Tiling",
    "Trial",
    "TuningCache",
    "autotune",
    "tuned",
]

_HOMES = {
    "AutotuneResult": "trials",
    "CuteKernel": "plan",
    "KernelPlan": "plan",
    "TiledShape": "tiling",
    "Tiling": "tiling",
    "Trial": "trials",
    "TuningCache": "tuning_cache",
    "autotune": "tuning",
    "tuned": "launching",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
