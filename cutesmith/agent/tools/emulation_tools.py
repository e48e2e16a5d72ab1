"""`emulate_kernel`: one call on the emulated GPU, to see why."""

from __future__ import annotations

from cutesmith.agent.outcome import Outcome
from cutesmith.agent.texts.verdict_texts import describe
from cutesmith.agent.tools import judging
from cutesmith.agent.tools.judging import take_snapshot
from cutesmith.agent.tools.workbench import Workbench


class EmulationTools:
    """The emulated GPU as an instrument: it is no judge."""

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench

    async def emulate_kernel(self, *words: str) -> Outcome:
        bench, kernel = self.workbench, take_snapshot(self.workbench)
        verdict = await judging.judge(bench, "emulate", kernel, *words)
        return Outcome(
            text=describe(verdict, names=judging.shown_names(bench, kernel)), is_error=verdict["exit_code"] == 2
        )
