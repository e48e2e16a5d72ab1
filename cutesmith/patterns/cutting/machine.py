"""How long launches take on an H200, predicted: what chooses between two ways to cut a graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutesmith.patterns.attention.plan import AttentionPlan
from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.hopper.proposals import LAUNCH_SECONDS, predict
from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.pattern_plan import HopperConfiguration


@dataclass(frozen=True)
class Machine:
    """Rates of a GPU: bytes and floating-point operations a second, and the seconds that a launch takes at least."""

    name: str
    bytes_per_second: float
    flops_per_second: dict[Arithmetic, float]
    scalar_flops_per_second: float
    launch_seconds: float
    multiprocessors: int

    def seconds(self, plan: SinglePlan | ChainPlan) -> float:
        """The predicted time of all launches: each waits for memory or for arithmetic, whichever is slower."""
        if isinstance(plan, ChainPlan):
            return sum(self.seconds(launch.plan) for launch in plan.launches)
        if isinstance(plan, ContractionPlan):
            return self.launch_seconds + self._product_seconds(plan)
        attends = isinstance(plan, AttentionPlan)
        rate = self.flops_per_second[Arithmetic.HALF] if attends else self.scalar_flops_per_second
        return self.launch_seconds + max(plan.algorithmic_bytes / self.bytes_per_second, plan.algorithmic_flops / rate)

    def prediction(self, plan: SinglePlan | ChainPlan) -> str:
        """A sentence: what the plan moves and computes at the traced shapes, and the time that is predicted for it."""
        count, slowest = "one launch", ""
        if isinstance(plan, ChainPlan):
            count, slowest = f"{len(plan.launches)} launches", f", most of it in {plan.launches[plan.tuned].name}"
        gigaflops, microseconds = plan.algorithmic_flops / 1e9, self.seconds(plan) * 1e6
        work = f"{plan.algorithmic_bytes / 1e6:.3g} MB to move and {gigaflops:.3g} GFLOP in {count}"
        return f"{work}: the prediction for an {self.name} is {microseconds:.3g} µs{slowest}."

    def _product_seconds(self, plan: ContractionPlan) -> float:
        """As Hopper's form predicts it; else whole tiles in whole waves of blocks, and memory slower for few blocks."""
        problem, c = plan.problem, plan.configurations()[0]
        if isinstance(c, HopperConfiguration):
            return predict(problem, c).seconds - LAUNCH_SECONDS
        blocks = problem.batches * math.ceil(problem.m / c.tile_m) * math.ceil(problem.n / c.tile_n)
        waves, busy = math.ceil(blocks / self.multiprocessors), min(1.0, blocks / self.multiprocessors)
        rate = self.flops_per_second[arithmetic_of(problem)] / self.multiprocessors
        arithmetic = waves * 2 * c.tile_m * c.tile_n * problem.k / rate
        return max(arithmetic, plan.algorithmic_bytes / (self.bytes_per_second * max(busy, 1e-3)))


H200 = Machine(
    name="H200",
    bytes_per_second=4.2e12,
    flops_per_second={
        Arithmetic.HALF: 400e12,
        Arithmetic.TF32: 200e12,
        Arithmetic.TF32_THRICE: 65e12,
        Arithmetic.FMA: 15e12,
    },
    scalar_flops_per_second=15e12,
    launch_seconds=2e-6,
    multiprocessors=132,
)
"""The rate of a copy was measured (evals/results/h200), those of mma.sync are estimates: about 60 % of wgmma's."""
