"""What the judge says of `kernel.py`: `lint_kernel` and its like for every stage; and what the emulated GPU shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cutesmith.agent.outcome import Effect, Outcome, RecordVerdict
from cutesmith.agent.texts.verdict_texts import describe
from cutesmith.agent.tools import judging
from cutesmith.agent.tools.judging import Snapshot, Verdict, take_snapshot
from cutesmith.agent.tools.workspace import Workbench
from cutesmith.errors import UsageError
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from cutesmith.verb_process import run_verb
from cutesmith.verdicts import ExitCode

LINT_FIRST = "{} was not run: correct these findings in kernel.py first, then call it again."
UNVERIFIED = "This very text is not verified yet: its time counts only once verify_kernel passes on it."


class JudgingTools:
    """The judge's stages on `kernel.py` as it is now."""

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench

    async def lint_kernel(self) -> Outcome:
        kernel = take_snapshot(self.workbench)
        return self._told(kernel, await judging.judge(self.workbench, "lint", kernel))

    async def compile_kernel(self) -> Outcome:
        kernel = take_snapshot(self.workbench)
        return self._told(kernel, await judging.judge(self.workbench, "compile", kernel))

    async def verify_kernel(self, *words: str, note: str = "") -> Outcome:
        bench, kernel = self.workbench, take_snapshot(self.workbench)
        known = bench.state.kernels.get(kernel.sha256)
        lint = known.verdicts.get("lint") if known else None
        lint = await judging.judge(bench, "lint", kernel) if lint is None else lint
        if lint["exit_code"] != ExitCode.PASSED:
            return self._told(kernel, lint, closing=LINT_FIRST.format("verify_kernel"))
        verified = await judging.judge(bench, "verify", kernel, *words)
        if verified["exit_code"] != ExitCode.PASSED:
            return self._told(kernel, verified, closing=judging.comparison(bench, kernel, [verified]))
        timed = None
        if verified.get("ran_on") == "gpu" and (known is None or known.median_us is None):
            timed = await judging.judge(bench, "benchmark", kernel, *judging.QUICK)
        return self.passed(kernel, verified, timed, note)

    async def check_kernel(self, note: str = "") -> Outcome:
        """All stages in one call of the verb; what it comes to is what the calls of the single tools would."""
        bench, kernel = self.workbench, take_snapshot(self.workbench)
        checked = await judging.judge(bench, "check", kernel, "--no-backup")
        if not (stages := list(checked.get("stages", ()))):  # it could not even begin
            return self._told(kernel, {**checked, "stage": "verify"})
        verdicts, last = {verdict["stage"]: verdict for verdict in stages}, stages[-1]
        verified = verdicts.get("verify")
        if verified is not None and verified["exit_code"] == ExitCode.PASSED:
            told, before = self.passed(kernel, verified, verdicts.get("benchmark"), note), stages[:2]
        else:
            closing = "" if verified is None else judging.comparison(bench, kernel, [verified])
            told, before = self._told(kernel, last, closing=closing), stages[:-1]
        names = judging.shown_names(bench, kernel)
        text = "\n".join([*(describe(verdict, names=names) for verdict in before), told.text])
        recorded = (RecordVerdict(kernel.sha256, kernel.text, verdict) for verdict in before)
        return replace(told, text=text, effects=(*recorded, *told.effects))

    def passed(self, kernel: Snapshot, verified: Verdict, timed: Verdict | None, note: str) -> Outcome:
        """What a passing verification comes to, with its quick timing where there was one: verdicts and a checkpoint.

        What the timing found to be a cheat, or wrong, is not kept.
        """
        bench, verdicts = self.workbench, [verified, *([timed] if timed else [])]
        effects: list[Effect] = [RecordVerdict(kernel.sha256, kernel.text, verdict) for verdict in verdicts]
        closing = [judging.comparison(bench, kernel, verdicts)]
        if judging.after(bench.state, kernel, bench.line, verdicts).grade:
            effects.append(judging.kept(kernel, verified, timed, note))
            closing.insert(0, f"Kept as checkpoint {len(bench.checkpoints.checkpoints()) + 1}.")
        names = judging.shown_names(bench, kernel)
        timing = [describe(timed, names=names)] if timed else []
        return Outcome(text=describe(verified, closing=[*timing, *closing], names=names), effects=tuple(effects))

    async def benchmark_kernel(self) -> Outcome:
        bench, kernel = self.workbench, take_snapshot(self.workbench)
        verdict = await judging.judge(bench, "benchmark", kernel)
        trial = judging.after(bench.state, kernel, bench.line, [verdict])
        unverified = verdict["exit_code"] == ExitCode.PASSED and not trial.grade
        closing = UNVERIFIED if unverified else judging.comparison(bench, kernel, [verdict])
        return self._told(kernel, verdict, closing=closing)

    async def profile_kernel(self) -> Outcome:
        kernel = take_snapshot(self.workbench)
        return self._told(kernel, await judging.judge(self.workbench, "profile", kernel))

    async def emulate_kernel(self, *words: str) -> Outcome:
        """One call on the emulated GPU, to see why: it does not judge."""
        bench, kernel = self.workbench, take_snapshot(self.workbench)
        verdict = await judging.judge(bench, "emulate", kernel, *words)
        text = describe(verdict, names=judging.shown_names(bench, kernel))
        return Outcome(text=text, status=str(verdict["status"]), is_error=verdict["exit_code"] == ExitCode.USAGE)

    async def emulate_script(self, *words: str) -> Outcome:
        """A script of the work folder on the emulated GPU; it may read that folder alone."""
        bench = self.workbench
        for word in words:
            path = Path(word.split("::")[0])
            if path.is_absolute() or ".." in path.parts:
                raise UsageError(f"{word}: a script and its arguments name files of your folder, such as try.py")
        arguments = (f"--arch={bench.arch}", *words)
        verdict = await run_verb(
            "emulate", *arguments, follower=bench.follower, lender=lend_fork_server, folder=bench.folder
        )
        text = describe({**verdict, "stage": "script"}, names={str(bench.folder.resolve()): "."})
        return Outcome(text=text, status=str(verdict["status"]), is_error=verdict["exit_code"] == ExitCode.USAGE)

    def _told(self, kernel: Snapshot, verdict: Verdict, *, closing: str = "") -> Outcome:
        names = judging.shown_names(self.workbench, kernel)
        text = describe(verdict, closing=[closing] if closing else [], names=names)
        unable = verdict["exit_code"] == ExitCode.UNAVAILABLE and verdict["stage"] != "verify"
        return Outcome(text=text, effects=() if unable else (RecordVerdict(kernel.sha256, kernel.text, verdict),))
