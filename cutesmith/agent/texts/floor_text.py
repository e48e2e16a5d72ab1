"""The least time that a problem's work can take, as the first message tells it: measured, else from a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutesmith.patterns.generation.target import Target
from cutesmith.timing.roofline import KnownRates, Work, floor_of, known_rates


def floor_text(audit: Mapping[str, Any], target: Target) -> str:
    """One paragraph: the problem's bytes and operations, what they cost on this GPU or its like.

    "" for a problem whose audit says nothing of its work, as those of earlier versions do.
    """
    said = audit.get("work") or {}
    if not said:
        return ""
    work = Work(int(said["bytes"]), said["flops"] or {})
    rates = known_rates(target.arch, target.device.name if target.device else "")
    flops = "".join(f", {count / 1e9:.4g} GFLOP of {dtype} products" for dtype, count in work.flops.items())
    uncounted = "" if said["flops"] is not None else " Its operations could not be counted without values."
    amount = f"{work.bytes / 1e6:.4g} MB to read and write once{flops}"
    return f"The floor at the size of get_inputs(): {amount}. {_time(work, rates, target)}{uncounted}"


def floor_us(audit: Mapping[str, Any], target: Target) -> float | None:
    """The same floor in microseconds, None where the work or the rates are not known."""
    said = audit.get("work") or {}
    rates = known_rates(target.arch, target.device.name if target.device else "")
    if not said or rates is None:
        return None
    return floor_of(Work(int(said["bytes"]), said["flops"] or {}), rates.bytes_per_second, rates.flops_per_second).us


def _time(work: Work, rates: KnownRates | None, target: Target) -> str:
    here = target.device.name if target.device else target.arch
    if rates is None:
        return f"How fast {here} copies and multiplies stands in no table here; a benchmark measures it."
    floor = floor_of(work, rates.bytes_per_second, rates.flops_per_second)
    lacking = [dtype for dtype in work.flops if dtype not in rates.flops_per_second]
    rate = f"{rates.bytes_per_second / 1e12:.3g} TB/s"
    if floor.kind == "flops" and floor.flops_per_second:
        rate = f"{floor.flops_per_second / 1e12:.4g} TFLOP/s"
    microseconds = f"{floor.us:,.0f}" if floor.us >= 1000 else f"{floor.us:.4g}"
    text = f"That is {microseconds} µs at {rate}, {rates.source}; {floor.kind} set it."
    if lacking:
        text += f" Products of {', '.join(lacking)} have no rate in the table, so it may be later."
    return (
        text if target.device else f"{text} There is no GPU here: this is a {rates.product}'s, usual for {target.arch}."
    )
