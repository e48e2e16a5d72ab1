"""A profile in words: what costs most, why, and what to change, from a model of a multiprocessor's pipes.

Costs are clocks of a multiprocessor in which a pipe is busy: issue slots (4 warp-instructions a clock), arithmetic
(LANES_PER_CLOCK), L1 and shared memory (one wavefront, or 128 bytes, a clock), sectors from L2 (64
bytes a clock). They rank lines; latency, overlap and cache hits are not modelled, so they are not times.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutesmith.emulator.profiling.instruction_classes import LANES_PER_CLOCK
from cutesmith.emulator.profiling.launch_profile import AccessProfile, LaunchProfile, LineProfile
from cutesmith.emulator.profiling.requests import BANKS, SECTOR, WORD
from cutesmith.emulator.program.abi import WARP
from cutesmith.verdicts import EmulatedAdvice

WIDEST = 16
_ISSUES_PER_CLOCK = 4
_L1_BYTES_PER_CLOCK, _L2_BYTES_PER_CLOCK = 128, 64
_LEAST_SHARE = 0.02  # of all clocks, for a remark to be worth a line
_LEAST_SHARE_OF_PIPE = 0.1  # the same for arithmetic that may well be what the kernel is for
_UNCOALESCED = 1.25  # times the ideal


def pipe_clocks(line: LineProfile) -> dict[str, float]:
    """Clocks of a multiprocessor that a line keeps each pipe busy."""
    clocks = {"issue": line.warp_instructions / _ISSUES_PER_CLOCK, "tensor cores": line.tensor_cycles}
    for name, rate in LANES_PER_CLOCK.items():
        clocks[name] = line.warp_counts[name] * WARP / rate
    clocks["L1 and shared memory"] = sum(map(_l1_clocks, line.accesses))
    clocks["L2"] = sum(access.sectors for access in line.accesses) * SECTOR / _L2_BYTES_PER_CLOCK
    return {name: count for name, count in clocks.items() if count}


def _l1_clocks(access: AccessProfile) -> float:
    if access.space == "local":
        return access.bytes / _L1_BYTES_PER_CLOCK
    if access.bulk:
        return 0.0
    return access.wavefronts if access.space == "shared" else access.sectors * SECTOR / _L1_BYTES_PER_CLOCK


def line_clocks(line: LineProfile) -> float:
    """The line's clocks in all pipes together: what lines are ranked by."""
    return sum(pipe_clocks(line).values())


def busiest_pipes(profile: LaunchProfile) -> list[tuple[str, float]]:
    """(pipe, clocks over all multiprocessors), the busiest first."""
    total: dict[str, float] = {}
    for line in profile.lines:
        for name, clocks in pipe_clocks(line).items():
            total[name] = total.get(name, 0.0) + clocks
    return sorted(total.items(), key=lambda item: -item[1])


def advise(profile: LaunchProfile) -> list[EmulatedAdvice]:
    """Remarks, the costliest first."""
    whole = sum(map(line_clocks, profile.lines)) or 1.0
    found = [
        EmulatedAdvice(line.file, line.line, kind, clocks / whole, message)
        for line in profile.lines
        for kind, clocks, message in _remarks(line, profile)
        if clocks >= (_LEAST_SHARE_OF_PIPE if kind in _PIPES else _LEAST_SHARE) * whole
    ]
    return sorted(found, key=lambda advice: -advice.share)


_Remark = tuple[str, float, str]


def _remarks(line: LineProfile, profile: LaunchProfile) -> Iterator[_Remark]:
    """(kind, clocks at stake, sentence)."""
    for access in line.accesses:
        if access.space == "global" and not access.bulk:
            yield from _global_remarks(access)
        elif access.space == "shared" and not access.bulk:
            yield from _shared_remarks(access)
        elif access.space == "local":
            clocks = access.requests / _ISSUES_PER_CLOCK + _l1_clocks(access)
            noun = {"read": "loads", "write": "stores"}.get(access.kind, "accesses")
            sentence = (
                f"local memory, {profile.local_bytes} bytes a thread, {access.requests:.3g} requests of {noun}: an "
                "array indexed by what is not known at compile time; unroll the loop (range_constexpr) so that it "
                "stays in registers"
            )
            yield "local memory", clocks, sentence
    yield from _instruction_remarks(line)


def _global_remarks(access: AccessProfile) -> Iterator[_Remark]:
    noun = {"read": "loads", "write": "stores", "atomic": "atomics"}[access.kind]
    sectors, ideal = access.sectors / access.requests, access.ideal_sectors / access.requests
    if sectors > _UNCOALESCED * ideal:
        excess = (access.sectors - access.ideal_sectors) * SECTOR
        clocks = excess / _L1_BYTES_PER_CLOCK + excess / _L2_BYTES_PER_CLOCK
        message = f"global {noun} of {sectors:.3g} sectors a request where {ideal:.3g} would do: {_apart(access)}"
        yield "uncoalesced", clocks, message
    elif access.kind != "atomic" and access.size < WIDEST and access.lane_stride == access.size:
        saved = access.requests * (1 - access.size / WIDEST)
        clocks = saved / _ISSUES_PER_CLOCK + saved
        fewer = WIDEST // access.size
        message = f"{access.size}-byte global {noun}: {WIDEST}-byte vectors make {fewer} times fewer of them "
        message += f"(each lane then takes {fewer} neighbouring elements; rows must be {WIDEST}-byte aligned)"
        yield "narrow", clocks, message
    yield from _contention(access)


def _contention(access: AccessProfile) -> Iterator[_Remark]:
    if access.opcode in ("atom", "red") and access.contention > 1:
        clocks = access.requests * (access.contention - 1)
        message = f"{access.contention} lanes of a warp meet at one address: reduce in the warp first, then one atomic"
        yield "contention", clocks, message


def _apart(access: AccessProfile) -> str:
    stride = access.lane_stride
    if stride is None:
        return "lanes go to scattered addresses: let neighbouring lanes take neighbouring elements"
    if abs(stride) == access.size:
        return "the first address of a warp is not aligned to 32 bytes"
    return f"consecutive lanes are {abs(stride)} bytes apart: give them neighbouring elements"


def _shared_remarks(access: AccessProfile) -> Iterator[_Remark]:
    yield from _contention(access)
    ways = access.wavefronts / access.ideal_wavefronts if access.ideal_wavefronts else 1.0
    if ways <= _UNCOALESCED:
        return
    noun = {"read": "loads", "write": "stores", "atomic": "atomics"}[access.kind]
    message = f"{ways:.3g}-way bank conflict of shared {noun} ({access.size} bytes a lane): {_cure(access)}"
    yield "bank conflict", access.wavefronts - access.ideal_wavefronts, message


def _cure(access: AccessProfile) -> str:
    stride = access.lane_stride
    if stride is None:
        return "addresses of a warp share banks: swizzle the layout"
    apart = f"consecutive lanes are {abs(stride)} bytes apart"
    if abs(stride) == access.size:
        return "groups of neighbouring lanes go to rows that share banks: let the lanes of a quarter warp read one row"
    if abs(stride) < BANKS * WORD:
        return f"{apart}: give them neighbouring elements, or each one vector of up to {WIDEST} bytes"
    return f"{apart}: pad the row stride by {max(WORD, access.size)} bytes or swizzle the layout"


def _instruction_remarks(line: LineProfile) -> Iterator[_Remark]:
    issued, lanes = line.warp_instructions, line.lane_instructions
    busy = lanes / (WARP * issued)
    if busy < 0.75 and issued:
        clocks = (1 - busy) * issued / _ISSUES_PER_CLOCK
        yield "idle lanes", clocks, f"{WARP * busy:.3g} of 32 lanes work: the warp runs this line for a few of them"
    for kind, sentence in _PIPES.items():
        count = line.reducible[kind]
        yield kind, count * WARP / LANES_PER_CLOCK[kind], sentence.format(count=count, share=count / issued)


_PIPES = {
    "shuffle": "{count} warp shuffles and votes: let each lane reduce more elements in registers first, so that fewer "
    "are left for the warp",
    "special function": "{count} rounded functions and divisions, each an instruction at 16 lanes a clock and several "
    "others: approximate ones (fastmath=True, rcp_approx), one reciprocal for values that share a divisor",
    "conversion": "{count} conversions of single numbers at half rate: convert pairs at once (f16x2, bf16x2)",
    "fp64": "{count} float64 instructions: is a Python float or a float64 constant in the expression?",
}


def floor_us(profile: LaunchProfile, multiprocessors: int, clock_hz: float) -> float:
    """Microseconds that the busiest pipe alone needs on a GPU whose multiprocessors share the work evenly."""
    pipes = busiest_pipes(profile)
    return pipes[0][1] / multiprocessors / clock_hz * 1e6 if pipes else 0.0
