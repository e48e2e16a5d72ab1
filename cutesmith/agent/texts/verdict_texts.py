"""What a model reads of a verdict: the sentence first, then what it needs to correct the kernel, within a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from cutesmith import resources
from cutesmith.agent.texts.bounded_text import bounded
from cutesmith.agent.texts.profile_texts import emulate_lines, profile_lines, script_lines
from cutesmith.agent.texts.stage_texts import Verdict, benchmark_lines, compile_lines, lint_lines, verify_lines
from cutesmith.verdicts import ExitCode, Mechanism

LOG_LINES = 25
LOG_CHARACTERS = 2000
FOREIGN = ("/site-packages/", f"{resources.PACKAGE}/", "/lib/python3")
CHAINED = "The above exception was the direct cause of the following exception:"

REJECTED = (
    "This is a rejection, not a wrong result: the judge takes the kernel for a cheat and will not deliver it. Working "
    "round the judge is pointless; compute the result inside @cute.kernel. If you believe that the judge is wrong, "
    "say so with `note` and write it another way."
)
NOT_EXECUTED = (
    "Nothing was executed, so this version is not verified and cannot be delivered. Where the emulated GPU lacks an "
    "instruction, a version without it can be verified here."
)
NO_GPU = (
    "There is no GPU here, so nothing can be timed and no speed may be claimed; a verified kernel is still the goal. "
    "profile_kernel and compile_kernel say what its speed will depend on."
)
SAY_WHAT_TO_DO = (Mechanism.FULL_SIZE_LAUNCHES.value, Mechanism.NOTHING_DECIDED.value)
HINTS = {
    ExitCode.TIMED_OUT: "It ran past its time limit: look for a wait that never ends, or a loop over too much.",
    ExitCode.INTERNAL: "This is a fault of the judge, not of your kernel. Try once more, or write it differently.",
}
STAGES: dict[str, Callable[[Verdict], Iterator[str]]] = {
    "lint": lint_lines,
    "compile": compile_lines,
    "verify": verify_lines,
    "benchmark": benchmark_lines,
    "profile": profile_lines,
    "emulate": emulate_lines,
    "script": script_lines,
}


def log_tail(text: str) -> list[str]:
    """The last lines of a log, under a heading; empty without a log. Of tracebacks the kernel's own frames stay."""
    *before, last = text.split(CHAINED)
    own = CHAINED.join(before) if before and "cutesmith.errors." in last else text
    lines = "\n".join(_without_foreign_frames(own.strip().splitlines()))[-LOG_CHARACTERS:].splitlines()[-LOG_LINES:]
    return ["last lines of the log:", *(f"  {line}" for line in lines)] if lines else []


def _without_foreign_frames(lines: Sequence[str]) -> Iterator[str]:
    """Without the frames of the judge, the DSL and Python, which a kernel's author can change nothing about."""
    dropping = False
    for line in lines:
        if line.startswith('  File "'):
            dropping = any(place in line for place in FOREIGN)
        elif not line.startswith("    "):
            dropping = False
        if not dropping:
            yield line


def describe(verdict: Verdict, *, closing: Sequence[str] = (), names: Mapping[str, str] | None = None) -> str:
    """A verdict for the model: sentence, details of its stage, log, `closing` lines; at most LIMIT characters.

    `names` gives the paths of this machine that become names of the work folder.
    """
    details = list(STAGES[verdict["stage"]](verdict))
    if verdict["exit_code"] != ExitCode.PASSED or verdict["stage"] == "script":  # a script is run for what it prints
        details += log_tail(str(verdict.get("log_tail", "")))
    text = "\n".join([first_line(verdict), *details, *_advice(verdict), *closing])
    for path, name in (names or {}).items():
        text = text.replace(path, name)
    return bounded(text)


def first_line(verdict: Verdict) -> str:
    """Stage, status, exit code and sentence."""
    seconds = f", {verdict['seconds']:.1f} s" if verdict.get("seconds") else ""
    return f"{verdict['stage']}: {verdict['status']} (exit code {verdict['exit_code']}{seconds}). {verdict['summary']}"


def _advice(verdict: Verdict) -> Iterator[str]:
    """What to do about this exit code, and the hint of an error."""
    code = verdict["exit_code"]
    if verdict.get("hint"):
        yield str(verdict["hint"])
    if code == ExitCode.REJECTED:
        rule = f"Rule {verdict['rule']}. " if verdict.get("rule") else ""
        yield rule + REJECTED
    elif code == ExitCode.UNAVAILABLE and verdict.get("mechanism") in SAY_WHAT_TO_DO:
        return  # its sentence says what to do
    elif code == ExitCode.UNAVAILABLE and verdict["stage"] in ("verify", "benchmark"):
        yield NOT_EXECUTED if verdict["stage"] == "verify" else NO_GPU
    elif code in HINTS:
        yield HINTS[ExitCode(code)]
