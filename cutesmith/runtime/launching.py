"""`kernel_fn = tuned(plan_fn)`: a kernel under development that runs in the tiling that tuning found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cutesmith.errors import UsageError
from cutesmith.runtime.plan import Compiled, KernelPlan
from cutesmith.runtime.tiling import Tiling
from cutesmith.runtime.tuning import remembered_results
from cutesmith.runtime.tuning_cache import TuningCache

if TYPE_CHECKING:
    import torch


def tuned(
    plan_fn: Callable[..., KernelPlan], *, cache: TuningCache | None = None
) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    """A function of the inputs that launches the plan: in the tiling that `autotune` found fastest for such inputs on
    this device, else in the first that the device would run. It never times anything.

    It returns the plan's output, a tuple where there are several. For development: a file that is judged or shipped
    holds the winner itself (`AutotuneResult.frozen_source`). Raises UsageError where the device runs none.
    """
    compiled: dict[tuple[str, Tiling], Compiled] = {}
    chosen: dict[str, Tiling] = {}

    def kernel_fn(*inputs: Any) -> torch.Tensor | tuple[torch.Tensor, ...]:
        from cutesmith.judge.transfer.tensors import summarize

        plan, signature = KernelPlan.for_inputs(plan_fn, inputs), summarize(inputs)
        if signature not in chosen:
            chosen[signature] = _choose(plan, plan_fn, inputs, cache or TuningCache())
        key = (signature, chosen[signature])
        if key not in compiled:
            compiled[key] = plan.build(chosen[signature])
        plan.launch(compiled[key])
        return plan.outputs[0] if len(plan.outputs) == 1 else tuple(plan.outputs)

    return kernel_fn


def _choose(plan: KernelPlan, plan_fn: Callable[..., Any], inputs: Sequence[Any], cache: TuningCache) -> Tiling:
    """The winner of an earlier tuning while the plan still has it, else the first valid tiling."""
    for result in remembered_results(plan_fn, inputs, cache):
        if result.best is not None and result.best.tiling in plan.tilings:
            return result.best.tiling
    refusals = plan.refusals(_architecture())
    for tiling, refused in zip(plan.tilings, refusals, strict=True):
        if not refused:
            return tiling
    raise UsageError(f"no tiling of the plan runs on {_architecture()}: {refusals[0][0]}")


def _architecture() -> str:
    """Of the GPU that torch uses."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"
