"""What a model reads of a verdict: the sentence first, then what it needs to mend the kernel, within a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cutesmith.recording.cubin import source_name
from cutesmith.verdicts import ExitCode

Verdict = Mapping[str, Any]
"""A verdict's JSON object."""

LIMIT = 6000  # characters of one tool's answer
LOG_LINES = 25
LOG_CHARACTERS = 2000
_TAIL = 0.4  # share of a cut text that its end gets
_MOST_FINDINGS = 25
_MOST_CASES = 4  # failing ones in full
_MOST_ERROR = 1800  # characters of one compile error

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
    "profile_kernel and compile_kernel say what its speed will hang on."
)
HINTS = {
    ExitCode.TIMED_OUT: "It ran past its time limit: look for a wait that never ends, or a loop over too much.",
    ExitCode.INTERNAL: "This is a fault of the judge, not of your kernel. Try once more, or write it differently.",
}


def bounded(text: str, limit: int = LIMIT) -> str:
    """The text, at most `limit` characters: its middle is left out, and it is said how much."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit} characters left out …\n"
    room = limit - len(mark)
    end = int(room * _TAIL)
    return text[: room - end] + mark + text[len(text) - end :]


def log_tail(text: str) -> list[str]:
    """The last lines of a log, under a heading; empty without a log."""
    lines = text.strip()[-LOG_CHARACTERS:].splitlines()[-LOG_LINES:]
    return ["last lines of the log:", *(f"  {line}" for line in lines)] if lines else []


def describe(verdict: Verdict, *, closing: Sequence[str] = (), names: Mapping[str, str] | None = None) -> str:
    """A verdict for the model: sentence, details of its stage, log, `closing` lines; at most LIMIT characters.

    `names` gives the paths of this machine that become names of the work folder.
    """
    text = "\n".join([first_line(verdict), *_details(verdict), *_advice(verdict), *closing])
    for path, name in (names or {}).items():
        text = text.replace(path, name)
    return bounded(text)


def first_line(verdict: Verdict) -> str:
    """Stage, status, exit code and sentence."""
    seconds = f", {verdict['seconds']:.1f} s" if verdict.get("seconds") else ""
    return f"{verdict['stage']}: {verdict['status']} (exit code {verdict['exit_code']}{seconds}). {verdict['summary']}"


def _details(verdict: Verdict) -> Iterator[str]:
    yield from STAGES.get(verdict["stage"], _nothing)(verdict)
    if verdict["exit_code"] != ExitCode.PASSED:
        yield from log_tail(str(verdict.get("log_tail", "")))


def _nothing(verdict: Verdict) -> Iterator[str]:
    return iter(())


def _advice(verdict: Verdict) -> Iterator[str]:
    """What to do about this exit code, and the hint of an error."""
    code = verdict["exit_code"]
    if verdict.get("hint"):
        yield str(verdict["hint"])
    if code == ExitCode.REJECTED:
        rule = f"Rule {verdict['rule']}. " if verdict.get("rule") else ""
        yield rule + REJECTED
    elif code == ExitCode.UNAVAILABLE and verdict["stage"] in ("verify", "benchmark"):
        yield NOT_EXECUTED if verdict["stage"] == "verify" else NO_GPU
    elif code in HINTS:
        yield HINTS[ExitCode(code)]


# --------------------------------------------------------------------------------------------------------------- lint


def _lint(verdict: Verdict) -> Iterator[str]:
    order = {"error": 0, "warning": 1}
    findings = sorted(verdict.get("findings", ()), key=lambda f: (order.get(f["severity"], 2), f["line"]))
    for finding in findings[:_MOST_FINDINGS]:
        place = f"line {finding['line']}:{finding['column']}"
        yield f"{place} {finding['severity']} {finding['rule']}: {finding['message']}"
        if finding["fix"]:
            yield f"  fix: {finding['fix']}"
    if len(findings) > _MOST_FINDINGS:
        yield f"and {len(findings) - _MOST_FINDINGS} more findings"


# ------------------------------------------------------------------------------------------------------------ compile


def _compile(verdict: Verdict) -> Iterator[str]:
    for arch in verdict.get("archs", ()):
        for kernel in arch["kernels"]:
            yield from _kernel(arch["arch"], kernel)
        if arch["error"] and not arch["kernels"]:
            code = f"{arch['error_code']} " if arch["error_code"] else ""
            line = f"at line {arch['error_line']}" if arch["error_line"] else "without a known line"
            yield f"{arch['arch']}: {code}{line}:"
            yield bounded(arch["error"], _MOST_ERROR)


def _kernel(arch: str, kernel: Verdict) -> Iterator[str]:
    times = f" ×{kernel['launches']}" if kernel["launches"] > 1 else ""
    cluster = f" cluster {_dims(kernel['cluster'])}" if list(kernel["cluster"]) != [1, 1, 1] else ""
    yield (
        f"{arch} {source_name(kernel['name'])}{times}: grid {_dims(kernel['grid'])} block {_dims(kernel['block'])}"
        f"{cluster}; {kernel['registers']} registers, {_spills(kernel)}, smem {kernel['static_smem_bytes']} B static "
        f"+ {kernel['dynamic_smem_bytes']} B dynamic, occupancy {kernel['occupancy_percent']:g} % "
        f"({kernel['occupancy_blocks']} blocks an SM, limited by {kernel['occupancy_limit']}); widest global load "
        f"{kernel['widest_global_load_bits']} bits, store {kernel['widest_global_store_bits']} bits"
    )
    for title, counts in (
        ("tensor cores", kernel["tensor_core_instructions"]),
        ("TMA", kernel["tma_instructions"]),
    ):
        if counts:
            yield f"  {title}: " + ", ".join(f"{name} ×{count}" for name, count in counts.items())
    yield from (f"  the hardware refuses this launch: {sentence}" for sentence in kernel["refused"])


def _spills(kernel: Verdict) -> str:
    if kernel["spill_store_bytes"] is None:
        return "spills unknown"
    if not kernel["spill_store_bytes"] and not kernel["spill_load_bytes"]:
        return "no spills"
    return f"SPILLS {kernel['spill_store_bytes']} B stored, {kernel['spill_load_bytes']} B loaded"


def _dims(triple: Sequence[int]) -> str:
    return "×".join(map(str, triple))


# ------------------------------------------------------------------------------------------------------------- verify


def _verify(verdict: Verdict) -> Iterator[str]:
    cases = verdict.get("cases", ())
    wrong = [case for case in cases if not case["passed"]]
    for case in wrong[:_MOST_CASES]:
        yield from _failing_case(case)
    if len(wrong) > _MOST_CASES:
        yield "also FAIL: " + "; ".join(case["name"] for case in wrong[_MOST_CASES:])
    passed = [case for case in cases if case["passed"]]
    if passed:
        yield f"passed {len(passed)} of {len(cases)} cases: " + "; ".join(map(_passed_case, passed))


def _failing_case(case: Verdict) -> Iterator[str]:
    rule = f" (rule {case['rule']})" if case["rule"] else ""
    yield f"FAIL {case['name']} [{case['inputs']}]{rule}: {case['problem']}"
    yield from (f"  {_output_error(output)}" for output in case["outputs"] if output["mismatches"])


def _output_error(output: Verdict) -> str:
    return (
        f"output {output['output']} {output['dtype']}{list(output['shape'])}: {output['mismatches']} of "
        f"{output['elements']} elements wrong; largest error {output['max_abs']:.3g} absolute, {output['max_rel']:.3g} "
        f"relative; worst element {list(output['worst_index'])}: actual {output['worst_actual']}, "
        f"expected {output['worst_expected']}"
    )


def _passed_case(case: Verdict) -> str:
    worst = max((output["max_rel"] or 0.0 for output in case["outputs"]), default=None)
    remark = case["problem"] or ("" if worst is None else f"largest relative error {worst:.2g}")
    return f"{case['name']} [{case['inputs']}]" + (f" {remark}" if remark else "")


# ---------------------------------------------------------------------------------------------------------- benchmark


def _benchmark(verdict: Verdict) -> Iterator[str]:
    if verdict.get("timings"):
        yield f"{verdict['device']}; inputs {verdict['inputs']}"
    for timing in verdict.get("timings", ()):
        yield f"  {_timing(timing, verdict)}"
    if verdict.get("floor_us") is not None:
        share = verdict.get("floor_percent")
        reached = f"; the kernel reaches {share:.1f} % of it" if share is not None else ""
        yield f"  floor {verdict['floor_us']:.2f} µs by {verdict['floor_kind']} (roofline){reached}"


def _timing(timing: Verdict, verdict: Verdict) -> str:
    if timing["error"]:
        return f"{timing['name']}: {timing['error'].splitlines()[0][:200]}"
    factor = verdict["speedups"].get(timing["name"])
    speedup = f"; the kernel is {factor:.2f} times as fast" if factor is not None else ""
    host = f", host {timing['host_us']:.1f} µs a call" if timing["host_us"] is not None else ""
    quartiles = f"quartiles {timing['q1_us']:.2f} to {timing['q3_us']:.2f}"
    return f"{timing['name']}: {timing['median_us']:.2f} µs ({quartiles}{host}){speedup}"


STAGES: dict[str, Callable[[Verdict], Iterator[str]]] = {
    "lint": _lint,
    "compile": _compile,
    "verify": _verify,
    "benchmark": _benchmark,
}
