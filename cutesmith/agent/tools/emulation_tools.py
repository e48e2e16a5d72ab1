"""`emulate_kernel`: one call on the emulated GPU, to see why. The docstring is what the model reads."""

from __future__ import annotations

from cutesmith.agent.outcome import Outcome
from cutesmith.agent.texts.verdict_texts import describe
from cutesmith.agent.tools import judging
from cutesmith.agent.tools.judging import take_snapshot
from cutesmith.agent.tools.workbench import Workbench

MOST_STEPS = 400  # of a trace: what an answer has room for


class EmulationTools:
    """The emulated GPU as an instrument: it is no judge."""

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench

    async def emulate_kernel(
        self, profile: bool = False, trace: str = "", lane: int = 0, launch: int = 0, steps: int = 120
    ) -> Outcome:
        """Run kernel.py once on the emulated GPU: races, missing waits, accesses out of bounds, by Python line; printf.

        For finding out why; it compares nothing with the reference, that is verify_kernel. It needs no GPU and has no
        wgmma, TMA or tcgen05. Inputs are those of get_inputs() with fewer rows.

        Args:
            profile: also count instructions, sectors and bank conflicts by line.
            trace: WARP or BLOCK:WARP, such as 0:0: every instruction of that warp and what it set in one lane.
            lane: whose values a trace shows, 0 to 31.
            launch: which launch is traced, from 0.
            steps: the most instructions of a trace, at most 400.
        """
        bench, kernel = self.workbench, take_snapshot(self.workbench)
        options = ["--profile"] if profile else []
        if trace:
            options += [f"--trace={trace}", f"--lane={lane}", f"--launch={launch}"]
            options.append(f"--steps={max(1, min(steps, MOST_STEPS))}")
        verdict = await judging.judge(bench, "emulate", kernel, *options)
        return Outcome(
            text=describe(verdict, names=judging.shown_names(bench, kernel)), is_error=verdict["exit_code"] == 2
        )
