"""`cutesmith emulate FILE`: what a kernel does on the emulated GPU, with a profile by line or the trace of a warp."""

from __future__ import annotations

import re

from cutesmith.commands._emulation_tables import table
from cutesmith.commands._run import command, report, verb_parser
from cutesmith.errors import UsageError
from cutesmith.profiling.emulation import emulate_kernel
from cutesmith.profiling.requests import TraceRequest
from cutesmith.verbs.kernel_verbs import EMULATE

DESCRIPTION = """\
Run a kernel once on the emulated GPU (a CPU; no GPU is needed) and say what its launches did.

kernel_fn runs in a confined process on get_inputs(), with fewer rows where there are many. Every launch is executed
instruction by instruction with bounds, alignment, initialisation, races and missing waits checked; findings name the
Python line. The result is not compared with the reference: `cutesmith verify --on emulator` does that, on many inputs.
Use emulate to see why: where a fault is, what printf says, what is slow (--profile), what a warp computes (--trace).

--profile says by Python line what to change: instruction mix, sectors of global requests against the ideal
(coalescing), bank conflicts, shuffles, tensor-core work. Instructions are counted over the whole launch (guarded ones
too, a warp-instruction once for as many lanes as run it); requests are sampled from the first 64 blocks. Not modelled:
caches, latency, overlap, occupancy, ptxas (its spills and its scheduling; see `cutesmith compile`). Clocks rank lines;
they are not times: those are measured by `cutesmith benchmark`, on a GPU.

--trace prints every instruction that one warp executes (branches show by what follows; `fused` is a product and a sum
that ptxas makes one fma), the lanes that took part, and what it set in one of them."""

EXAMPLES = (
    "cutesmith emulate kernel.py                          findings, printf, instructions",
    "cutesmith emulate kernel.py --profile                what is slow, by line, and what to change",
    "cutesmith emulate kernel.py --trace 3:1 --lane 5     block 3, warp 1, values of lane 5",
    "cutesmith emulate kernel.py --profile --json > profile.json",
)

_PLACE = re.compile(r"(?:(\d+):)?(\d+)")


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(EMULATE, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    if options.profile and options.trace is not None:
        raise UsageError("--profile and --trace are two runs", hint="Give one of them at a time.")
    if not options.timeout > 0:
        raise UsageError(f"--timeout {options.timeout:g}: it must be more than 0 seconds")
    verdict = emulate_kernel(
        options.file,
        problem=options.problem,
        arch=options.arch,
        full=options.full,
        profile=options.profile,
        trace=_trace_request(options.trace, options.lane, options.launch, options.steps),
        seed=options.seed,
        timeout=options.timeout,
    )
    return report(verdict, as_json=options.json, lines=table(verdict))


def _trace_request(place: str | None, lane: int, launch: int, steps: int) -> TraceRequest | None:
    if not 0 <= lane < 32 or launch < 0 or steps < 1:
        raise UsageError("--lane is 0 to 31, --launch counts from 0, --steps is positive")
    if place is None:
        return None
    match = _PLACE.fullmatch(place)
    if match is None:
        raise UsageError(f"--trace {place}: it is WARP or BLOCK:WARP, such as 0:3", hint="Blocks count x first.")
    return TraceRequest(block=int(match[1] or 0), warp=int(match[2]), lane=lane, launch=launch, steps=steps)
