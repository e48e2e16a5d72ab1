"""From the stages' verdicts to an attempt: which stage comes next, and what they come to together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from cutesmith.evals.engines.jobs import BENCHMARK, CHECK, VERIFY
from cutesmith.evals.records import KERNEL, LIBRARY, Attempt, Cost, Machine, Task, Timing
from cutesmith.evals.settings import JudgeSettings
from cutesmith.verdicts import ExitCode

CANDIDATE = "candidate"  # what the benchmark calls the kernel
DECIDES = (ExitCode.DOES_NOT_COMPILE, ExitCode.USAGE, ExitCode.REJECTED)
"""What the compiler's word is enough for. A crash or a time-out on its stand-ins for inputs is left to verify."""
AGAINST = (ExitCode.WRONG_RESULT, ExitCode.REJECTED)
"""What a benchmark says against a verified kernel; anything else says that it could not be timed."""
CUT_SHORT = ("model failed", "interrupted")  # endings of a session that are no end
SUMMARY = 2000  # characters
HOST_MEMORY = re.compile(
    r"the reference used more than [\d.]+ GiB of host memory|can't allocate memory(: you tried to allocate \d+ bytes)?"
)
"""What the judge's own side says when `get_inputs()` and the reference are too large for this machine."""

Verdicts = Mapping[str, Mapping[str, Any]]


def next_stage(verdicts: Verdicts, settings: JudgeSettings) -> str:
    """The stage that a kernel with these verdicts still needs, "" when it is judged."""
    if "lint" not in verdicts:
        return CHECK
    if VERIFY not in verdicts:
        return "" if _stopped(verdicts) else VERIFY
    verified = verdicts[VERIFY]
    if verified["exit_code"] == ExitCode.PASSED and verified.get("ran_on") == "gpu" and settings.times:
        return "" if BENCHMARK in verdicts else BENCHMARK
    return ""


def _stopped(verdicts: Verdicts) -> bool:
    return "compile" not in verdicts or verdicts["compile"]["exit_code"] in DECIDES


def judged(verdicts: Verdicts) -> dict[str, Any]:
    """The fields of an attempt that verdicts say: of the last stage, and of all of them."""
    stage = next(name for name in (BENCHMARK, VERIFY, "compile", "lint") if name in verdicts)
    last, verified = verdicts[stage], verdicts.get(VERIFY, {})
    passed = verified.get("exit_code") == ExitCode.PASSED and verified.get("ran_on") in ("gpu", "emulator")
    accused = stage == BENCHMARK and last["exit_code"] in AGAINST
    return {
        **said(stage, last),
        "correct": passed and not accused,
        "ran_on": str(verified.get("ran_on") or ""),
        **_timed(verdicts.get(BENCHMARK, {})),
    }


def said(stage: str, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What one verdict says."""
    return {
        "stage": stage,
        "exit_code": int(verdict["exit_code"]),
        "status": str(verdict["status"]),
        "rule": str(verdict.get("rule") or ""),
        "summary": str(verdict.get("summary") or "")[:SUMMARY],
    }


def _timed(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    timings = {_timing_name(timing): _timing(timing) for timing in benchmark.get("timings") or ()}
    others = [timing for name, timing in timings.items() if ":" in name]
    if others:  # the fastest; where none could be timed, what the first says of itself
        timings[LIBRARY] = min(others, key=lambda timing: timing.median_us or float("inf"))
    return {
        "timings": timings,
        "floor_us": benchmark.get("floor_us"),
        "floor_kind": benchmark.get("floor_kind") or "",
        "flops": benchmark.get("algorithmic_flops"),
        "bytes": benchmark.get("algorithmic_bytes"),
    }


def _timing_name(timing: Mapping[str, Any]) -> str:
    return KERNEL if timing["name"] == CANDIDATE else str(timing["name"])


def _timing(timing: Mapping[str, Any]) -> Timing:
    samples = tuple(timing.get("samples_us") or ())
    return Timing(
        samples_us=samples,
        median_us=timing["median_us"] if samples else None,
        host_us=timing.get("host_us"),
        error=str(timing.get("error") or ""),
    )


def cost_of(generation: Mapping[str, Any]) -> Cost:
    """What a session took, off its AgentVerdict."""
    usage = generation.get("usage") or {}
    cached = usage.get("cache_read_tokens", 0) + usage.get("cache_write_tokens", 0)
    return Cost(
        dollars=generation.get("dollars"),
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        cached_tokens=cached,
        turns=generation.get("turns") or 0,
    )


def says_nothing(generation: Mapping[str, Any], kind: str) -> bool:
    """Whether the making of a kernel was cut short by what is neither the maker's nor the task's fault.

    A session that a model's failure ended goes on when it is resumed; a script that has no more to say does not.
    """
    ending = generation.get("ending")
    if ending is None:
        return not generation.get("kernel") and generation["exit_code"] == ExitCode.UNAVAILABLE
    return kind == "claude" and ending in CUT_SHORT


def too_little_memory(verdict: Mapping[str, Any]) -> str:
    """Why this machine cannot hold the problem, so that the verdict says nothing of the kernel; "" where it can."""
    found = HOST_MEMORY.search(str(verdict.get("summary"))) if verdict.get("exit_code") == ExitCode.USAGE else None
    return f"this machine has too little memory to judge it: {found[0]}" if found else ""


def too_little_on_the_gpu(verdict: Mapping[str, Any], taken: str) -> str:
    """Why the GPU had no room for a kernel that was judged alone, where that is not its fault; "" where it may be.

    `taken`: what others than this run hold of the GPU's memory.
    """
    if taken:
        return f"others use this GPU: {taken}"
    if verdict.get("exit_code") == ExitCode.UNAVAILABLE:
        return f"this GPU has too little memory to judge it: {str(verdict.get('summary'))[:SUMMARY]}"
    return ""


def nothing_made(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Status, exit code and summary where no kernel was made. A session says UNAVAILABLE when it judged none."""
    code = ExitCode(generation["exit_code"])
    status = "unmatched" if generation.get("unmatched") else str(generation["status"])
    if "ending" in generation:
        status, code = "no kernel", ExitCode.USAGE if code == ExitCode.UNAVAILABLE else code
    return {"status": status, "code": code, "summary": str(generation.get("summary") or "")}


def about_task(task: Task) -> dict[str, Any]:
    """The fields of an attempt that its task says."""
    return {"task": task.id, "level": task.level, "tags": task.tags, "dtypes": task.dtypes}


def now() -> str:
    """UTC, ISO 8601, with milliseconds: results come faster than one a second."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def settled(attempt: Attempt, task: Task, **changed: Any) -> Attempt:
    """A remembered attempt as one of this run."""
    return attempt.model_copy(update={**about_task(task), "cached": True, "finished": now(), **changed})


def no_kernel(stage: str, status: str, code: ExitCode, summary: str) -> dict[str, Any]:
    """The fields of an attempt that never came to a kernel."""
    fields = {"stage": stage, "status": status, "exit_code": int(code), "summary": summary[:SUMMARY]}
    return {**fields, "correct": False, "machine": Machine()}
