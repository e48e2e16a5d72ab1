"""From the stages' verdicts to an attempt: which stage comes next, and what they come to together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from cutesmith.agent.endings import Interrupted, ModelFailed
from cutesmith.evals.engines.jobs import BENCHMARK, CHECK, VERIFY
from cutesmith.evals.records import KERNEL, LIBRARY, Cost, Judgement, Timing
from cutesmith.evals.running.sources import MODELS
from cutesmith.evals.settings import JudgeSettings
from cutesmith.evals.stage_verdicts import GenerationVerdict, StageTiming, StageVerdict
from cutesmith.verdicts import ExitCode, Mechanism

CANDIDATE = "candidate"  # what the benchmark calls the kernel
DECIDES = (ExitCode.DOES_NOT_COMPILE, ExitCode.USAGE, ExitCode.REJECTED)
"""What the compiler alone decides. A crash or a time-out on its stand-ins for inputs is left to verify."""
AGAINST = (ExitCode.WRONG_RESULT, ExitCode.REJECTED)
"""What a benchmark says against a verified kernel; anything else says that it could not be timed."""
CUT_SHORT = (ModelFailed.name, Interrupted.name)
"""Endings of a session that a resumed one can go on from."""
MADE = "generate"  # the stage that an attempt without a kernel ended in
SUMMARY = 2000  # characters

Verdicts = Mapping[str, StageVerdict]


def next_stage(verdicts: Verdicts, settings: JudgeSettings) -> str:
    """The stage that a kernel with these verdicts still needs, "" when it is judged."""
    if "lint" not in verdicts:
        return CHECK
    if VERIFY not in verdicts:
        return "" if "compile" not in verdicts or verdicts["compile"].exit_code in DECIDES else VERIFY
    verified = verdicts[VERIFY]
    if verified.exit_code == ExitCode.PASSED and verified.ran_on == "gpu" and settings.times:
        return "" if BENCHMARK in verdicts else BENCHMARK
    return ""


def judged(verdicts: Verdicts) -> Judgement:
    """What verdicts come to: the last stage's, with what the others add."""
    stage = next(name for name in (BENCHMARK, VERIFY, "compile", "lint") if name in verdicts)
    last, verified, benchmark = verdicts[stage], verdicts.get(VERIFY), verdicts.get(BENCHMARK)
    ran_on = verified.ran_on if verified else ""
    passed = verified is not None and verified.exit_code == ExitCode.PASSED and ran_on in ("gpu", "emulator")
    return Judgement(
        stage=stage,
        exit_code=int(last.exit_code),
        status=last.status,
        rule=last.rule,
        summary=last.summary[:SUMMARY],
        correct=passed and not (stage == BENCHMARK and last.exit_code in AGAINST),
        ran_on=ran_on,
        timings=_timings(benchmark.timings) if benchmark else {},
        floor_us=benchmark.floor_us if benchmark else None,
        floor_kind=benchmark.floor_kind if benchmark else "",
        flops=benchmark.algorithmic_flops if benchmark else None,
        bytes=benchmark.algorithmic_bytes if benchmark else None,
    )


def _timings(timed: Sequence[StageTiming]) -> dict[str, Timing]:
    timings = {}
    for one in timed:
        median_us = one.median_us if one.samples_us else None
        timing = Timing(samples_us=one.samples_us, median_us=median_us, host_us=one.host_us, error=one.error)
        timings[KERNEL if one.name == CANDIDATE else one.name] = timing
    others = [timing for name, timing in timings.items() if ":" in name]
    if others:  # the fastest; where none could be timed, what the first says of itself
        timings[LIBRARY] = min(others, key=lambda timing: timing.median_us or float("inf"))
    return timings


def cost_of(generation: GenerationVerdict | None) -> Cost:
    """What a session took."""
    if generation is None:
        return Cost()
    usage = generation.usage
    return Cost(
        dollars=generation.dollars,
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        cached_tokens=usage.get("cache_read_tokens", 0) + usage.get("cache_write_tokens", 0),
        turns=generation.turns,
    )


def says_nothing(generation: GenerationVerdict, kind: str) -> bool:
    """Whether the making of a kernel was cut short by what is neither the maker's nor the task's fault.

    A session that a model's failure ended goes on when it is resumed; a script that has no more to say does not.
    """
    if generation.ending is None:
        return not generation.kernel and generation.exit_code == ExitCode.UNAVAILABLE
    return kind in MODELS and generation.ending in CUT_SHORT


def too_little_memory(verdict: StageVerdict) -> str:
    """Why this machine cannot hold the problem, so that the verdict says nothing of the kernel; "" where it can.

    USAGE: the judge's own side met the limit, with `get_inputs()` or the reference. A kernel that meets it crashes.
    """
    tried = verdict.tried if isinstance(verdict, GenerationVerdict) else ()
    told = [verdict, *(one.verify for one in tried if one.verify is not None)]
    if all((one.exit_code, one.mechanism) != (ExitCode.USAGE, Mechanism.MEMORY_LIMIT.value) for one in told):
        return ""
    return f"this machine has too little memory to judge it: {verdict.summary[:SUMMARY]}"


def lacked_the_gpu(verdict: StageVerdict) -> bool:
    """Whether another try may find the GPU; where no element can be judged it comes out the same again."""
    return verdict.exit_code == ExitCode.UNAVAILABLE and verdict.mechanism != Mechanism.NOTHING_DECIDED.value


def too_little_on_the_gpu(verdict: StageVerdict, taken: str) -> str:
    """Why the GPU had no room for a kernel that was judged alone, where that is not its fault; "" where it may be.

    `taken`: what others than this run hold of the GPU's memory.
    """
    if taken:
        return f"others use this GPU: {taken}"
    if verdict.exit_code == ExitCode.UNAVAILABLE:
        return f"this GPU has too little memory to judge it: {verdict.summary[:SUMMARY]}"
    return ""


def nothing_made(generation: GenerationVerdict) -> Judgement:
    """What an attempt comes to for which no kernel was made. A session says UNAVAILABLE when it judged none."""
    code, status = generation.exit_code, "unmatched" if generation.unmatched else generation.status
    if generation.ending is not None:
        status, code = "no kernel", ExitCode.USAGE if code == ExitCode.UNAVAILABLE else code
    return not_judged(MADE, status, code, generation.summary)


def not_judged(stage: str, status: str, code: ExitCode, summary: str) -> Judgement:
    """What an attempt comes to that no stage judged."""
    return Judgement(stage=stage, status=status, exit_code=int(code), summary=summary[:SUMMARY], correct=False)


def now() -> str:
    """UTC, ISO 8601, with milliseconds: results come faster than one a second."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
