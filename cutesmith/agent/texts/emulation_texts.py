"""What a model reads of one call on the emulated GPU: findings, printf, counts by line, the trace of a warp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cutesmith.agent.texts.profile_texts import counted_lines, fault_lines

Object = Mapping[str, Any]

_MOST_ADVICE = 8
_MOST_VALUES = 200  # characters of one step's values


def emulate_lines(verdict: Object) -> Iterator[str]:
    """The findings first; then every launch, what to change where it was profiled, and the trace."""
    shrunk = f" (of {verdict['full_inputs']}, made smaller)" if verdict.get("full_inputs") else ""
    if verdict.get("inputs"):
        yield f"inputs: {verdict['inputs']}{shrunk}"
    yield from fault_lines(verdict)
    for launch in verdict.get("launches", ()):
        yield from counted_lines(launch)
        for remark in (launch["profile"].get("advice") or ())[:_MOST_ADVICE]:
            yield f"  {100 * remark['share']:3.0f} % {remark['file']}:{remark['line']}: {remark['message']}"
    yield from _trace(verdict)


def _trace(verdict: Object) -> Iterator[str]:
    """Python lines as headings, below them each instruction with the lanes that took part and what it set."""
    if not verdict.get("trace"):
        return
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
