"""What a model reads of a lint, compile, verify or benchmark verdict below its first line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutesmith.agent.texts.bounded_text import bounded
from cutesmith.recording.cubin import source_name
from cutesmith.verdicts import CaseOutcome

Verdict = Mapping[str, Any]
"""A verdict's JSON object."""

_MOST_FINDINGS = 25
_MOST_CASES = 4  # failing ones in full
_MOST_ERROR = 1800  # characters of one compile error
_MOST_REMARKS = 3
_MOST_SAID = 300  # characters of one remark
DECLINING = "A kernel that takes every case ranks before one that declines some, however fast that is."


# --------------------------------------------------------------------------------------------------------------- lint


def lint_lines(verdict: Verdict) -> Iterator[str]:
    """Every finding with its fix, errors first."""
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


def compile_lines(verdict: Verdict) -> Iterator[str]:
    """Each kernel on each architecture; the error where there is none."""
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
    cluster = f" cluster {dims(kernel['cluster'])}" if list(kernel["cluster"]) != [1, 1, 1] else ""
    spills = f"SPILLS {kernel['spill_store_bytes']} B stored, {kernel['spill_load_bytes']} B loaded"
    if kernel["spill_store_bytes"] is None:
        spills = "spills unknown"
    elif not kernel["spill_store_bytes"] and not kernel["spill_load_bytes"]:
        spills = "no spills"
    yield (
        f"{arch} {source_name(kernel['name'])}{times}: grid {dims(kernel['grid'])} block {dims(kernel['block'])}"
        f"{cluster}; {kernel['registers']} registers, {spills}, smem {kernel['static_smem_bytes']} B static "
        f"+ {kernel['dynamic_smem_bytes']} B dynamic, occupancy {kernel['occupancy_percent']:g} % "
        f"({kernel['occupancy_blocks']} blocks an SM, limited by {kernel['occupancy_limit']}); widest global load "
        f"{kernel['widest_global_load_bits']} bits, store {kernel['widest_global_store_bits']} bits"
    )
    for title, counts in (("tensor cores", kernel["tensor_core_instructions"]), ("TMA", kernel["tma_instructions"])):
        if counts:
            yield f"  {title}: " + ", ".join(f"{name} ×{count}" for name, count in counts.items())
    yield from (f"  {sentence}" for sentence in kernel.get("notes", ()))
    yield from (f"  the hardware refuses this launch: {sentence}" for sentence in kernel["refused"])


def dims(triple: Sequence[int]) -> str:
    """Such as 2×1×1."""
    return "×".join(map(str, triple))


# ------------------------------------------------------------------------------------------------------------- verify


def verify_lines(verdict: Verdict) -> Iterator[str]:
    """Failing cases with their worst elements, then one line on those that passed, and what is to be said of them."""
    cases = verdict.get("cases", ())
    wrong = [case for case in cases if not case["passed"] and not case.get("same_as")]
    for case in wrong[:_MOST_CASES]:
        rule = f" (rule {case['rule']})" if case["rule"] else ""
        yield f"FAIL {_named(case)}{rule}: {case['problem']}"
        for output in case["outputs"]:
            if output["mismatches"]:
                yield (
                    f"  output {output['output']} {output['dtype']}{list(output['shape'])}: {output['mismatches']} of "
                    f"{output['elements']} elements wrong; largest error {output['max_abs']:.3g} absolute, "
                    f"{output['max_rel']:.3g} relative; worst element {list(output['worst_index'])}: "
                    f"actual {output['worst_actual']}, expected {output['worst_expected']}"
                )
        if same := [str(other["name"]) for other in cases if other.get("same_as") == case["name"]]:
            yield f"  the same in {len(same)} other case{'s' * (len(same) > 1)}: {'; '.join(same)}"
    if len(wrong) > _MOST_CASES:
        yield "also FAIL: " + "; ".join(case["name"] for case in wrong[_MOST_CASES:])
    declined = [case for case in cases if case.get("outcome") == CaseOutcome.DECLINED.value]
    compared = ("", CaseOutcome.PASSED.value)  # "" in older results
    passed = [case for case in cases if case["passed"] and (case.get("outcome") or "") in compared]
    if passed:
        named = "; ".join(map(_named, passed)) if wrong else _worst(passed)
        yield f"passed {len(passed)} of {len(cases)} cases" + (f": {named}" if named else "")
    if declined:
        yield f"DECLINED {len(declined)}: {'; '.join(case['name'] for case in declined)}. {DECLINING}"
        why = str(declined[0]["problem"])[:_MOST_SAID]
        yield f"  {_named(declined[0])}: {why}"
    noted: dict[str, list[str]] = {}  # remark -> the cases that passed with it
    for case in cases:
        if case["passed"] and case not in declined and case["problem"]:
            noted.setdefault(str(case["problem"]), []).append(str(case["name"]))
    for said, names in list(noted.items())[:_MOST_REMARKS]:
        more = f" (and {len(names) - 1} more cases)" if len(names) > 1 else ""
        yield f"note: {names[0]}{more}: {said[:_MOST_SAID]}"


def _named(case: Verdict) -> str:
    """The name of a case with its inputs, where it has some."""
    return f"{case['name']} [{case['inputs']}]" if case["inputs"] else str(case["name"])


def _worst(cases: Sequence[Verdict]) -> str:
    """The largest error of all outputs, in units of the last place of its dtype, and where it was."""
    outputs = [(output, case) for case in cases for output in case["outputs"]]
    if not outputs:
        return ""
    output, case = max(outputs, key=lambda pair: pair[0]["max_ulp"] or 0.0)
    absolute, relative = output["max_abs"] or 0.0, output["max_rel"] or 0.0
    text = f"largest error {absolute:.2g} absolute, {relative:.2g} relative, {output['max_ulp'] or 0.0:.2g} ulp"
    return f"{text} ({_named(case)})"


# ---------------------------------------------------------------------------------------------------------- benchmark


def benchmark_lines(verdict: Verdict) -> Iterator[str]:
    """The kernel beside its baselines and the floor."""
    if verdict.get("timings"):
        yield f"{verdict['device']}; inputs {verdict['inputs']}"
    for timing in verdict.get("timings", ()):
        if timing["error"]:
            yield f"  {timing['name']}: {timing['error'].splitlines()[0][:200]}"
            continue
        factor = verdict["speedups"].get(timing["name"])
        speedup = f"; the kernel is {factor:.2f} times as fast" if factor is not None else ""
        host = f", host {timing['host_us']:.1f} µs a call" if timing["host_us"] is not None else ""
        quartiles = f"quartiles {timing['q1_us']:.2f} to {timing['q3_us']:.2f}"
        yield f"  {timing['name']}: {timing['median_us']:.2f} µs ({quartiles}{host}){speedup}"
    if verdict.get("floor_us") is not None:
        share = verdict.get("floor_percent")
        reached = f"; the kernel reaches {share:.1f} % of it" if share is not None else ""
        yield f"  floor {verdict['floor_us']:.2f} µs ({_basis(verdict)}){reached}"


def _basis(verdict: Verdict) -> str:
    """What the floor rests on: operations over a measured rate, or bytes over a measured bandwidth."""
    rate, bandwidth = verdict.get("matmul_flops_per_second"), verdict.get("copy_bytes_per_second")
    if verdict["floor_kind"] == "flops" and rate:
        return f"{verdict['algorithmic_flops'] / 1e9:.4g} GFLOP at {rate / 1e12:.4g} TFLOP/s, a large matrix product"
    if bandwidth and verdict["algorithmic_bytes"]:
        return f"{verdict['algorithmic_bytes']} bytes at {bandwidth / 1e9:.0f} GB/s, a large copy"
    return f"by {verdict['floor_kind']}"
