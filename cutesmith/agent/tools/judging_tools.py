"""`lint_kernel`, `compile_kernel`, `verify_kernel`, `benchmark_kernel`, `profile_kernel`: what the judge says.

Docstrings here are what the model reads.
"""

from __future__ import annotations

from cutesmith.agent.outcome import Outcome
from cutesmith.agent.texts.verdict_texts import describe
from cutesmith.agent.tools import judging
from cutesmith.agent.tools.judging import Snapshot, Verdict, judged, take_snapshot
from cutesmith.agent.tools.workbench import Workbench
from cutesmith.verdicts import ExitCode

LINT_FIRST = "{} was not run: mend these findings in kernel.py first, then call it again."
UNVERIFIED = "This very text is not verified yet: its time counts only once verify_kernel passes on it."


class JudgingTools:
    """The judge's stages on `kernel.py` as it is now."""

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench

    async def lint_kernel(self) -> Outcome:
        """Check kernel.py without running it: API names against the installed DSL, the DSL's traps, the contract.

        Takes a fraction of a second: call it after every edit. Findings name the line and the fix; errors stop
        verify_kernel too.
        """
        kernel = take_snapshot(self.workbench)
        return self._told(kernel, await judging.judge(self.workbench, "lint", kernel))

    async def compile_kernel(self) -> Outcome:
        """Compile kernel.py for this session's architecture without running it; takes seconds.

        Says registers, spills, shared memory, occupancy and what limits it, the widest global accesses, tensor-core
        and TMA instructions, and what the hardware would refuse; or the DSL's error with its line. Call it once lint
        passes, and after a change of tiling, stages or layouts to see what it costs.
        """
        kernel = take_snapshot(self.workbench)
        return self._told(kernel, await judging.judge(self.workbench, "compile", kernel))

    async def verify_kernel(self, note: str = "", sanitize: bool = False) -> Outcome:
        """Let the judge decide whether kernel_fn of kernel.py computes what the problem's reference_fn computes.

        It draws secret inputs (several sets, odd shapes, large offsets, NaN and Inf) and compares with a float64
        reference; failing cases come with their inputs and the worst element. A pass is kept as a checkpoint by
        itself, timed where there is a GPU, and becomes the result if it is the best so far. Lint runs first. Takes
        seconds to minutes: call it once compile_kernel passes.

        Args:
            note: one line that says what this version is, kept with its checkpoint.
            sanitize: after a pass on a GPU also run memcheck and racecheck of compute-sanitizer where it is installed.
        """
        bench, kernel = self.workbench, take_snapshot(self.workbench)
        lint = await judging.judge_once(bench, "lint", kernel)
        if lint["exit_code"] != ExitCode.PASSED:
            return self._told(kernel, lint, closing=LINT_FIRST.format("verify_kernel"))
        verified = await judging.judge(bench, "verify", kernel, *(["--sanitize"] if sanitize else []))
        if verified["exit_code"] != ExitCode.PASSED:
            return self._told(kernel, verified, closing=judging.comparison(bench, kernel, [verified]))
        timed = await judging.time_quickly(bench, kernel, verified)
        return self.passed(kernel, verified, timed, note)

    def passed(self, kernel: Snapshot, verified: Verdict, timed: Verdict | None, note: str) -> Outcome:
        """What a passing verification comes to, with its quick timing where there was one: verdicts and a checkpoint.

        What the timing found to be a cheat, or wrong, is not kept.
        """
        bench, verdicts = self.workbench, [verified, *([timed] if timed else [])]
        effects = [judged(kernel, verdict) for verdict in verdicts]
        closing = [judging.comparison(bench, kernel, verdicts)]
        if judging.after(bench.standing, kernel, bench.line, verdicts).grade:
            effects.append(judging.kept(kernel, verified, timed, note))
            closing.insert(0, f"Kept as checkpoint {len(bench.checkpoints.checkpoints()) + 1}.")
        names = judging.shown_names(bench, kernel)
        timing = [describe(timed, names=names)] if timed else []
        return Outcome(text=describe(verified, closing=[*timing, *closing], names=names), effects=tuple(effects))

    async def benchmark_kernel(self) -> Outcome:
        """Time kernel.py beside eager PyTorch and torch.compile, with a cold L2, against the roofline's floor.

        Needs a GPU, and about a minute. verify_kernel times every version that passes already: use this for the full
        comparison of a version that you may finish with. Outputs of timed launches are checked.
        """
        bench, kernel = self.workbench, take_snapshot(self.workbench)
        verdict = await judging.judge(bench, "benchmark", kernel)
        trial = judging.after(bench.standing, kernel, bench.line, [verdict])
        unverified = verdict["exit_code"] == ExitCode.PASSED and not trial.grade
        closing = UNVERIFIED if unverified else judging.comparison(bench, kernel, [verdict])
        return self._told(kernel, verdict, closing=closing)

    async def profile_kernel(self) -> Outcome:
        """Say by Python line where kernel.py spends its work: what to change before the next experiment.

        On a GPU with Nsight Compute its metrics; elsewhere a static profile of the emulated GPU: instructions, sectors
        of global requests against the ideal, bank conflicts, the busiest pipe. Call it when a prediction and a
        measurement differ, and before you optimise.
        """
        kernel = take_snapshot(self.workbench)
        return self._told(kernel, await judging.judge(self.workbench, "profile", kernel))

    def _told(self, kernel: Snapshot, verdict: Verdict, *, closing: str = "") -> Outcome:
        names = judging.shown_names(self.workbench, kernel)
        text = describe(verdict, closing=[closing] if closing else [], names=names)
        unable = verdict["exit_code"] == ExitCode.UNAVAILABLE and verdict["stage"] != "verify"
        return Outcome(text=text, effects=() if unable else (judged(kernel, verdict),))
