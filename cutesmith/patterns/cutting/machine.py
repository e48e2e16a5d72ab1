"""How long launches take on an H200, predicted: what chooses between two ways to cut a graph."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.attention.plan import AttentionPlan
from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.plan import ContractionPlan


@dataclass(frozen=True)
class Machine:
    """Rates of a GPU: bytes and floating-point operations a second, and the seconds that a launch takes at least."""

    bytes_per_second: float
    flops_per_second: dict[Arithmetic, float]
    scalar_flops_per_second: float
    launch_seconds: float

    def seconds(self, plan: SinglePlan | ChainPlan) -> float:
        """The predicted time of all launches: each waits for memory or for arithmetic, whichever is slower."""
        if isinstance(plan, ChainPlan):
            return sum(self.seconds(launch.plan) for launch in plan.launches)
        moved = plan.algorithmic_bytes / self.bytes_per_second
        return self.launch_seconds + max(moved, plan.algorithmic_flops / self._rate(plan))

    def _rate(self, plan: SinglePlan) -> float:
        if isinstance(plan, ContractionPlan):
            return self.flops_per_second[arithmetic_of(plan.problem)]
        return (
            self.flops_per_second[Arithmetic.HALF] if isinstance(plan, AttentionPlan) else self.scalar_flops_per_second
        )


H200 = Machine(
    bytes_per_second=4.2e12,
    flops_per_second={
        Arithmetic.HALF: 400e12,
        Arithmetic.TF32: 200e12,
        Arithmetic.TF32_THRICE: 65e12,
        Arithmetic.FMA: 15e12,
    },
    scalar_flops_per_second=15e12,
    launch_seconds=2e-6,
)
"""The rate of a copy was measured (evals/results/h200), those of mma.sync are estimates: about 60 % of wgmma's."""
