"""How long launches take on an H200, predicted: what chooses between two ways to cut a graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutesmith.patterns.attention.gradient_plan import AttentionGradientPlan
from cutesmith.patterns.attention.plan import AttentionPlan
from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan
from cutesmith.patterns.contraction.hopper.prediction import LAUNCH_SECONDS
from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.contraction.proposals import BYTES_PER_SECOND
from cutesmith.patterns.graph.instructions import ISSUED_PER_SECOND, WHERE_ROUNDED, more_instructions
from cutesmith.patterns.recurrences.plan import RecurrencesPlan
from cutesmith.patterns.writing.expressions import is_fast


@dataclass(frozen=True)
class Machine:
    """Rates of a GPU a second: bytes, instructions of threads; the seconds of a launch."""

    name: str
    bytes_per_second: float
    instructions_per_second: float
    rounding_instructions_per_second: float
    """Where results are rounded to 16 bits, which takes instructions of its own; `warp_instructions` count at this."""
    launch_seconds: float
    block_bytes_per_second: float
    """Of a block alone on its multiprocessor."""
    shared_bytes_per_second: float
    """Of the shared memory of all multiprocessors."""

    def seconds(self, plan: SinglePlan | ChainPlan, arch: str = "sm_90a") -> float:
        """The predicted time of all launches: each waits for the slowest of memory, arithmetic, instructions.

        Rounds through shared memory, with barriers, overlap with memory and instructions in part: the root of the sum
        of squares of the three.
        Products have the form that `arch` gives them; infinite where it gives them none.
        """
        if isinstance(plan, ChainPlan):
            return sum(self.seconds(launch.plan, arch) for launch in plan.launches)
        if isinstance(plan, ContractionPlan):
            found = plan.configurations(arch)
            return self.launch_seconds + plan.seconds(found[0]) - LAUNCH_SECONDS if found else math.inf
        rounds = is_fast(plan.computed)
        rate = self.rounding_instructions_per_second if rounds else self.instructions_per_second
        arithmetic = (plan.computed.flops + more_instructions(plan.computed, fast=rounds)) / rate
        moved = plan.algorithmic_bytes + plan.repeated_bytes
        memory = moved / min(self.bytes_per_second, self.block_bytes_per_second * plan.blocks)
        instructions = 32 * plan.warp_instructions / self.rounding_instructions_per_second
        if plan.shared_bytes:
            shared = plan.shared_bytes / self.shared_bytes_per_second
            return self.launch_seconds + math.hypot(memory, instructions, shared)
        if isinstance(plan, AttentionPlan | AttentionGradientPlan | RecurrencesPlan):
            arithmetic = plan.seconds(arch)
        return self.launch_seconds + max(memory, arithmetic, instructions)

    def prediction(self, plan: SinglePlan | ChainPlan) -> str:
        """A sentence: what the plan moves and computes at the traced shapes, and the time that is predicted for it."""
        count, slowest = "one launch", ""
        if isinstance(plan, ChainPlan):
            count, slowest = f"{len(plan.launches)} launches", f", most of it in {plan.launches[plan.tuned].name}"
        gigaflops, microseconds = plan.algorithmic_flops / 1e9, self.seconds(plan) * 1e6
        work = f"{plan.algorithmic_bytes / 1e6:.3g} MB to move and {gigaflops:.3g} GFLOP in {count}"
        return f"{work}: the prediction for an {self.name} is {microseconds:.3g} µs{slowest}."


H200 = Machine(
    name="H200",
    bytes_per_second=BYTES_PER_SECOND,
    instructions_per_second=ISSUED_PER_SECOND,
    rounding_instructions_per_second=ISSUED_PER_SECOND * WHERE_ROUNDED,
    launch_seconds=2e-6,
    block_bytes_per_second=58e9,  # a layer norm of 16 rows of 4 million floats
    shared_bytes_per_second=132 * 128 * 1.755e9,  # 32 banks of 4 bytes a cycle
)
