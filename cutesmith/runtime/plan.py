"""A hand-written kernel as a plan: inputs in, and out come outputs, the tilings worth trying, and how each is launched.

A file under development defines `plan_fn(*inputs) -> KernelPlan`; `autotune` times its tilings, and the fastest is then
written down in the kernel file, which needs nothing of this package (`AutotuneResult.frozen_source`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cutesmith.devices import Device, SmVersion
from cutesmith.errors import ContractError
from cutesmith.runtime.tiling import TiledShape, Tiling

if TYPE_CHECKING:
    import torch

PLAN_NAME = "plan_fn"
PLAN_LINES = """\
def plan_fn(x):
    y = torch.empty_like(x)
    tilings = [Tiling(threads=threads, vector=8) for threads in (128, 256, 512)]
    return KernelPlan(inputs=(x,), outputs=(y,), tilings=tilings, build=compiled, launch=lambda run: run(x, y))"""

Compiled = Any
"""What `build` returns: as a rule what `cute.compile` does."""


@dataclass(frozen=True, kw_only=True)
class CuteKernel:
    """A device kernel in one tiling, bound to its tensors.

    `build` compiles the tiling (`cute.compile`), `call` launches what it returned on the current stream. `tilings` are
    all that the plan would try; `flops` and `bytes` the algorithm's own, whatever the kernel does.
    """

    build: Callable[[Tiling], Compiled]
    call: Callable[[Compiled], Any]
    inputs: tuple[Any, ...]
    outputs: tuple[torch.Tensor, ...]
    tiling: Tiling
    tilings: tuple[Tiling, ...]
    flops: int
    bytes: int
    _compiled: list[Compiled] = field(default_factory=list, repr=False, compare=False)

    def compile(self) -> Compiled:
        """The compiled function, made at the first call; raises what the compiler raises."""
        if not self._compiled:
            self._compiled.append(self.build(self.tiling))
        return self._compiled[0]

    def launch(self) -> tuple[torch.Tensor, ...]:
        """Launch once on the current stream; the outputs, which the device may not have written yet."""
        self.call(self.compile())
        return self.outputs


@dataclass(frozen=True, kw_only=True)
class KernelPlan:
    """What a kernel would do with given inputs: outputs, sizes, tilings in the order of promise, how to run each.

    `build(tiling)` compiles, `launch(compiled)` launches on the current stream and writes `outputs`. `flops` are the
    algorithm's tensor-core or arithmetic operations (0: not worth counting); `bytes` what it must move, which is that
    of all inputs and outputs where None.
    """

    inputs: Sequence[Any]
    outputs: Sequence[torch.Tensor]
    tilings: Sequence[Tiling]
    build: Callable[[Tiling], Compiled]
    launch: Callable[[Compiled], Any]
    shape: TiledShape = field(default_factory=TiledShape)
    flops: int = 0
    bytes: int | None = None

    @classmethod
    def for_inputs(cls, plan_fn: Callable[..., Any], inputs: Sequence[Any]) -> KernelPlan:
        """The plan that `plan_fn(*inputs)` makes. Raises ContractError for anything else, or without tilings."""
        plan = plan_fn(*inputs)
        name = getattr(plan_fn, "__name__", PLAN_NAME)
        if not isinstance(plan, cls):
            raise ContractError(f"{name} returned {type(plan).__name__}, not a KernelPlan", hint=PLAN_LINES)
        if not plan.tilings or not all(isinstance(tiling, Tiling) for tiling in plan.tilings):
            raise ContractError(f"{name}: the plan has no tilings, or some that are not a Tiling", hint=PLAN_LINES)
        if not plan.outputs:
            raise ContractError(f"{name}: the plan has no outputs", hint=PLAN_LINES)
        return plan

    @property
    def algorithmic_bytes(self) -> int:
        """Bytes that must cross device memory once: as stated, else inputs read and outputs written."""
        if self.bytes is not None:
            return self.bytes
        tensors = [value for value in (*self.inputs, *self.outputs) if hasattr(value, "element_size")]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def kernel(self, tiling: Tiling) -> CuteKernel:
        """The kernel in one tiling; nothing is compiled yet."""
        return CuteKernel(
            build=self.build,
            call=self.launch,
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            tiling=tiling,
            tilings=tuple(self.tilings),
            flops=self.flops,
            bytes=self.algorithmic_bytes,
        )

    def refusals(self, device: SmVersion | Device | str) -> tuple[tuple[str, ...], ...]:
        """For each tiling why `device` would not run it; an empty tuple where nothing is known against it."""
        return tuple(tiling.validate(self.shape, device) for tiling in self.tilings)
