"""What a model reads of a profile, or of one call on the emulated GPU: what to change first, then the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cutesmith.agent.texts.stage_texts import dims
from cutesmith.recording.cubin import source_name

Object = Mapping[str, Any]

_MOST_ADVICE = 10
_MOST_LINES = 12
_MOST_FAULTS = 6
_MOST_PRINTED = 600  # characters
_MOST_EMULATED_ADVICE = 8
_MOST_TESTS = 12
_MOST_REASON = 300
_MOST_VALUES = 200  # characters of the values of one traced step


def profile_lines(verdict: Object) -> Iterator[str]:
    """The advice with the sections to read, then each launch as it was measured or counted."""
    if verdict.get("note"):
        yield f"note: {verdict['note']}"
    emulated = verdict.get("emulated") or {}
    yield from fault_lines(emulated)
    advice = verdict.get("advice", ())
    if advice:
        yield "what to change, the largest stake first (read_reference takes the address):"
    for remark in advice[:_MOST_ADVICE]:
        value = "" if remark["value"] is None else f" {remark['value']:.4g}"
        yield f"- {remark['kernel']}: {remark['message']} ({remark['metric']}{value}; {remark['reference']})"
    for kernel in verdict.get("kernels", ()):
        yield from _measured(kernel)
    for launch in emulated.get("launches", ()):
        yield from counted_lines(launch)


def _measured(kernel: Object) -> Iterator[str]:
    """One launch under ncu: every number that it gave."""
    yield f"{source_name(kernel['name'])}: grid {dims(kernel['grid'])} block {dims(kernel['block'])}"
    numbers = {name: value for name, value in kernel.items() if isinstance(value, (int, float))}
    yield "  " + ", ".join(f"{name} {value:.5g}" for name, value in numbers.items())
    if kernel["occupancy_limiter"]:
        yield f"  occupancy is limited by {kernel['occupancy_limiter']}"
    if kernel["stalls"]:
        waits = ", ".join(f"{name} {100 * share:.0f} %" for name, share in kernel["stalls"].items())
        yield f"  warps wait for: {waits}"


def fault_lines(emulated: Object) -> Iterator[str]:
    """What the emulated GPU found in all launches, with both places of a race."""
    yield from _described([fault for launch in emulated.get("launches", ()) for fault in launch["faults"]])


def _described(faults: Sequence[Object]) -> Iterator[str]:
    for fault in faults[:_MOST_FAULTS]:
        against = f"; the other access is at {fault['other']}" if fault["other"] else ""
        where = f"thread {fault['thread']}, block {fault['block']}"
        yield f"FAULT {fault['kind']} at {fault['where']}: {fault['message']} ({where}){against}"


def counted_lines(launch: Object) -> Iterator[str]:
    """One launch on the emulated GPU: the pipes, then the lines that cost most."""
    yield (
        f"{launch['kernel']}: grid {dims(launch['grid'])} block {dims(launch['block'])}; "
        f"{launch['instructions']} lane-instructions, waves {launch['waves']}"
    )
    if launch["printed"]:
        yield f"  printed: {launch['printed'][:_MOST_PRINTED]}"
    profile = launch["profile"]
    if not profile:
        return
    pipes = ", ".join(f"{name} {clocks:.0f}" for name, clocks in profile["clocks"].items())
    yield f"  modelled clocks by pipe: {pipes} (they rank lines; they are not times)"
    lines = sorted(profile["lines"], key=lambda line: -line["clocks"])
    whole = sum(line["clocks"] for line in lines) or 1.0
    for line in lines[:_MOST_LINES]:
        mix = ", ".join(f"{name} {count}" for name, count in line["warp_instructions"].items())
        yield f"  {100 * line['clocks'] / whole:3.0f} % {line['file']}:{line['line']}: warp-instructions {mix}"
        for access in line["accesses"]:
            each = f"{access['bytes_per_lane']} bytes a lane, {access['requests']} requests"
            for unit in ("sectors", "wavefronts"):
                if f"{unit}_per_request" in access and f"ideal_{unit}_per_request" in access:
                    got, ideal = access[f"{unit}_per_request"], access[f"ideal_{unit}_per_request"]
                    each += f", {got:.3g} {unit} each (ideal {ideal:.3g})"
            yield f"        {access['space']} {access['kind']}, {each}"
    if len(lines) > _MOST_LINES:
        yield f"  and {len(lines) - _MOST_LINES} more lines"


def emulate_lines(verdict: Object) -> Iterator[str]:
    """The findings first; then every launch, what to change where it was profiled, and the trace."""
    shrunk = f" (of {verdict['full_inputs']}, made smaller)" if verdict.get("full_inputs") else ""
    if verdict.get("inputs"):
        yield f"inputs: {verdict['inputs']}{shrunk}"
    yield from fault_lines(verdict)
    for launch in verdict.get("launches", ()):
        yield from counted_lines(launch)
        for remark in (launch["profile"].get("advice") or ())[:_MOST_EMULATED_ADVICE]:
            yield f"  {100 * remark['share']:3.0f} % {remark['file']}:{remark['line']}: {remark['message']}"
    if not verdict.get("trace"):
        return
    # Python lines as headings, below them each instruction with the lanes that took part and what it set
    yield f"trace of {verdict['traced']} (mask of lanes 31 to 0, where it changes)"
    where = mask = None
    for step in verdict["trace"]:
        if step["where"] != where:
            where, mask = step["where"], None
            yield f"{where or 'unknown line'}:"
        shown = f"{step['mask']:08x} " if step["mask"] != mask else ""
        mask = step["mask"]
        values = ", ".join(f"{name} = {value}" for name, value in step["values"].items())[:_MOST_VALUES]
        yield f"  {shown}{step['instruction']}" + (f"   {values}" if values else "")


def script_lines(verdict: Object) -> Iterator[str]:
    """Kernels that a script launched, tests that did not pass, findings; what it printed follows as its log."""
    for kernel in verdict.get("kernels", ()):
        yield f"{kernel['launches']} launches of {kernel['kernel']}, {kernel['instructions']:.3g} lane-instructions"
    for test in [test for test in verdict.get("tests", ()) if test["outcome"] != "passed"][:_MOST_TESTS]:
        yield f"{test['outcome'].upper()} {test['name']}: {' '.join(test['reason'].split())[:_MOST_REASON]}"
    yield from _described([found["fault"] for found in verdict.get("faults", ())])
    yield from (f"note: {note}" for note in verdict.get("notes", ()))
