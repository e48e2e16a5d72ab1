"""What `cutesmith emulate` found, as lines for people: launches, the profile by Python line, the trace of a warp."""

from __future__ import annotations

import linecache
import textwrap
from collections.abc import Iterator
from pathlib import Path

from cutesmith.commands._run import log_lines, unconfined_lines
from cutesmith.verdicts import (
    EmulatedAccess,
    EmulatedAdvice,
    EmulatedFault,
    EmulatedLaunch,
    EmulatedLine,
    EmulatedProfile,
    EmulateVerdict,
)

WIDTH = 100
_MOST_LINES, _FEW_LINES = 12, 5
_MOST_ADVICE = 10
_BAR = 20
_VALUES_AT = 60
_LONGEST_NAME = 40
_WITHOUT_LINE = "loops and library calls: the DSL gives no line of their own"


def table(verdict: EmulateVerdict, *, gpu: str | None = None) -> Iterator[str]:
    """The verdict as lines for people; predictions for one `gpu` of its architecture, or for all that are known."""
    yield from launch_table(verdict, gpu=gpu)
    yield from trace_lines(verdict)
    if not verdict.passed and not any(launch.faults for launch in verdict.launches):
        yield from log_lines(verdict.log_tail)
    yield from unconfined_lines("the kernel", verdict.confinement)
    yield from _wrapped(f"{verdict.status}: {verdict.summary} ({verdict.seconds:.1f} s)")
    if verdict.hint:
        yield from _wrapped(verdict.hint)


def launch_table(verdict: EmulateVerdict, *, brief: bool = False, gpu: str | None = None) -> Iterator[str]:
    """What ran, and what each launch did; a `brief` profile is its bound, what to change, and the busiest lines."""
    if verdict.inputs:
        yield f"inputs: {verdict.inputs}"
    if verdict.full_inputs:
        yield f"        shrunk from {verdict.full_inputs} (--full runs them all)"
    for number, launch in enumerate(verdict.launches):
        yield from _launch_lines(number, launch, verdict)
        if launch.profile:
            yield from _profile_lines(launch.profile, verdict, gpu)
            yield from _busiest_lines(launch.profile, verdict.path) if brief else _counts(launch.profile, verdict.path)


def _launch_lines(number: int, launch: EmulatedLaunch, verdict: EmulateVerdict) -> Iterator[str]:
    cluster = f" cluster {dims(launch.cluster)}" if launch.cluster != (1, 1, 1) else ""
    yield ""
    kernel = launch.kernel if len(launch.kernel) <= _LONGEST_NAME else f"{launch.kernel[: _LONGEST_NAME - 1]}…"
    yield f"launch {number}: {kernel}, grid {dims(launch.grid)} block {dims(launch.block)}{cluster}"
    waves = f"{launch.waves} wave{'s' if launch.waves != 1 else ''}"
    ended = "" if launch.completed else "; a fault ended it"
    yield f"  {_count(launch.instructions)} lane-instructions in {waves}, {launch.seconds:.2f} s of CPU time{ended}"
    for ring in launch.rings:
        more = ": the main loop did not run full, as it would with --full" if verdict.full_inputs else ""
        unseen = f"; it never wrapped{more}" if ring.filled and ring.trips <= ring.stages else ""
        yield f"  {ring.stages} mbarriers from byte {ring.first} of shared memory: {ring.trips} phases{unseen}"
    if launch.printed:
        yield "  printed:"
        yield from (f"    {line}" for line in launch.printed.splitlines())
    for fault in launch.faults:
        yield from _wrapped(describe(fault), "  FAULT ", "        ")


def describe(fault: EmulatedFault) -> str:
    """One sentence with both places."""
    against = f"; the other access is at {fault.other}" if fault.other else ""
    times = f"; {fault.count} times" if fault.count > 1 else ""
    who = f"(thread {fault.thread}, block {fault.block})"
    return f"{fault.kind.words} at {fault.where}: {fault.message} {who}{against}{times}"


# ------------------------------------------------------------------------------------------------------------ profile


def _profile_lines(profile: EmulatedProfile, verdict: EmulateVerdict, gpu: str | None) -> Iterator[str]:
    """What bounds the launch, and what to change."""
    yield ""
    yield from _bound_lines(profile, verdict, gpu)
    yield "  what to change, worst first (% of the modelled clocks at stake)"
    if not profile.advice:
        yield "    nothing stands out: requests are coalesced, banks free of conflicts"
    for remark in profile.advice[:_MOST_ADVICE]:
        head = f"    {100 * remark.share:3.0f} %  {_place(remark, verdict.path)}: "
        yield from _wrapped(remark.message, head, " " * 11)
    yield ""


def _busiest_lines(profile: EmulatedProfile, path: str) -> Iterator[str]:
    yield from _source_lines(profile, path, most=_FEW_LINES)
    yield "  cutesmith emulate --profile shows more lines, their accesses, instructions and pipes"


def _counts(profile: EmulatedProfile, path: str) -> Iterator[str]:
    """Lines with their accesses, then instruction mix and memory."""
    yield from _source_lines(profile, path, most=_MOST_LINES)
    yield ""
    issued, lanes = profile.warp_instructions, profile.lane_instructions
    whole = sum(issued.values()) or 1
    yield f"  {'instructions':18}{'warps':>10}{'lanes':>10}"
    for name, count in sorted(issued.items(), key=lambda item: -item[1]):
        bar = "█" * round(_BAR * count / whole)
        yield f"  {name:18}{_count(count):>10}{_count(lanes[name]):>10}  {100 * count / whole:4.1f} % {bar}".rstrip()
    yield f"  {_count(profile.flops)} FLOP in arithmetic, {_count(profile.tensor_core_macs)} MACs in tensor cores"
    yield ""
    yield from _machine_lines(profile)


def _bound_lines(profile: EmulatedProfile, verdict: EmulateVerdict, gpu: str | None) -> Iterator[str]:
    """Which is the tighter floor on each GPU, the busiest pipe or the tensors' bytes; of the whole inputs too."""
    chosen = [one for one in verdict.predictions if gpu is None or one.product.lower() == gpu]
    for one in chosen:
        bound = "memory" if one.memory_us >= one.pipe_us else next(iter(profile.clocks))
        text = (
            f"{one.product}: bound by {bound}; {one.memory_us:.2g} µs for {_bytes(verdict.tensor_bytes)} of inputs and "
            f"outputs at {one.bytes_per_second / 1e12:.3g} TB/s ({one.source}), {one.pipe_us:.2g} µs in the busiest "
            "pipe of all multiprocessors"
        )
        yield from _wrapped(text, "  ", "    ")
        if one.times != 1.0:
            least = one.times * max(one.memory_us, one.pipe_us)
            text = (
                f"the whole inputs have {one.times:.4g} × these bytes: about {least:.3g} µs if work grows as they do; "
                "work that each block does once, such as a prologue, weighs less there (--full counts it all)"
            )
            yield from _wrapped(text, "    ", "    ")
    if chosen:
        asked = sum(count for name, count in profile.bytes.items() if name.startswith("global"))
        times = asked / verdict.tensor_bytes
        yield from _wrapped(
            f"lanes ask for {_bytes(asked)} of global memory, {times:.2g} × these tensors", "  ", "    "
        )
        yield from _wrapped(_pipe_times(profile, verdict.output_elements), "  ", "    ")
        yield ""


def _pipe_times(profile: EmulatedProfile, elements: int) -> str:
    """How long issuing alone takes, and the special functions, on all multiprocessors; instructions a result."""
    busiest = next(iter(profile.clocks.values()), 1.0)
    told = [
        f"{what} {profile.floor_us * profile.clocks[pipe] / busiest:.2g} µs"
        for pipe, what in (("issue", "issuing takes"), ("special function", "special functions"))
        if pipe in profile.clocks
    ]
    lanes = sum(profile.lane_instructions.values())
    if elements:
        told.append(f"{lanes / elements:.3g} lane-instructions an element of the results")
    return f"{', '.join(told)} (all multiprocessors)"


def _source_lines(profile: EmulatedProfile, path: str, *, most: int) -> Iterator[str]:
    lines = sorted(profile.lines, key=lambda line: -line.clocks)
    whole = sum(line.clocks for line in lines) or 1.0
    yield f"  {'clocks':>6} {'warp-instr':>11} {'lanes':>6}  {'line':>5}  source"
    for line in lines[:most]:
        issued, lanes = sum(line.warp_instructions.values()), sum(line.lane_instructions.values())
        share, busy = 100 * line.clocks / whole, lanes / issued
        place = str(line.line) if line.file == Path(path).name else "–"
        yield _clip(f"  {share:5.1f}% {_count(issued):>11} {busy:6.1f}  {place:>5}  {_source(line, path)}")
        for access in line.accesses if most > _FEW_LINES else ():
            yield _clip(f"{'':35}{_access(access)}")
    if len(lines) > most:
        rest = sum(line.clocks for line in lines[most:])
        yield f"  {100 * rest / whole:5.1f}% in {len(lines) - most} more lines (--json has all)"


def _access(access: EmulatedAccess) -> str:
    text = f"{access.space} {access.kind} {access.bytes_per_lane} B × {_count(access.requests)} requests"
    for unit, got, ideal in (
        ("sectors", access.sectors_per_request, access.ideal_sectors_per_request),
        ("wavefronts", access.wavefronts_per_request, access.ideal_wavefronts_per_request),
    ):
        if got is not None and ideal is not None:
            noun = unit if got != 1 else unit[:-1]
            text += f", {got:.3g} {noun} each" + (f" (ideal {ideal:.3g})" if got > ideal else "")
    return text


def _machine_lines(profile: EmulatedProfile) -> Iterator[str]:
    moved = ", ".join(f"{name} {_bytes(count)}" for name, count in profile.bytes.items())
    yield from _wrapped(f"bytes by lanes: {moved or 'none'}", "  ", "    ")
    if profile.local_bytes_per_thread:
        yield f"  local memory: {profile.local_bytes_per_thread} bytes a thread"
    clocks = profile.clocks
    whole = sum(clocks.values()) or 1.0
    pipes = ", ".join(f"{name} {100 * count / whole:.0f} %" for name, count in list(clocks.items())[:5])
    yield from _wrapped(f"pipes: {pipes}", "  ", "    ")
    blocks = profile.sampled_blocks
    part = "" if profile.sample_complete else ", until the sample was full"
    every = profile.sample_complete and blocks == profile.blocks
    sample = "all blocks" if every else f"{blocks} block{'s' if blocks != 1 else ''}{part}, scaled to all"
    yield from _wrapped(
        f"requests are those of {sample}; caches, latency, overlap and spills by "
        "ptxas (see cutesmith compile) are not modelled",
        "  ",
        "    ",
    )


# -------------------------------------------------------------------------------------------------------------- trace


def trace_lines(verdict: EmulateVerdict) -> Iterator[str]:
    """The trace: Python lines as headings, then mask, instruction and values; runs of one mask name it once."""
    if not verdict.trace:
        return
    yield ""
    yield f"trace of {verdict.traced} (mask: lanes 31 … 0)"
    where = mask = None
    for step in verdict.trace:
        if step.where != where:
            where, mask = step.where, None
            yield _clip(f"{where or 'unknown line'}: {_text_at(where, verdict.path)}")
        shown = f"{step.mask:08x}" if step.mask != mask else ""
        mask = step.mask
        values = ", ".join(f"{name} = {value}" for name, value in step.values.items())
        line = f"  {shown:8}  {step.instruction}"
        if len(line) > _VALUES_AT and values:
            yield line
            line = ""
        yield f"{line:<{_VALUES_AT}}  {values}".rstrip()
    yield ""


def _text_at(where: str, path: str) -> str:
    name, _, line = where.rpartition(":")
    return linecache.getline(path, int(line)).strip() if name == Path(path).name and line.isdigit() else ""


# --------------------------------------------------------------------------------------------------------------- text


def _place(described: EmulatedLine | EmulatedAdvice, path: str) -> str:
    if not described.line:
        return _WITHOUT_LINE
    return f"line {described.line}" if described.file == Path(path).name else f"{described.file}:{described.line}"


def _source(line: EmulatedLine | EmulatedAdvice, path: str) -> str:
    if not line.line:
        return f"({_WITHOUT_LINE})"
    return linecache.getline(path, line.line).strip() if line.file == Path(path).name else f"{line.file}:{line.line}"


def _clip(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _wrapped(text: str, first: str = "", later: str = "") -> list[str]:
    paragraphs = text.splitlines() or [""]
    head = textwrap.wrap(paragraphs[0], WIDTH, initial_indent=first, subsequent_indent=later) or [first]
    return head + [f"{later}{line}" for line in paragraphs[1:]]


def dims(triple: tuple[int, int, int]) -> str:
    """Such as 2×1×1."""
    return "×".join(map(str, triple))


def _count(number: float) -> str:
    """Such as 512, 21.5 k, 3.2 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.4g} {unit}"
    return str(round(number))


def _bytes(number: float) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{round(number)} B"
