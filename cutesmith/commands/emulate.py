"""`cutesmith emulate FILE`: what a kernel, or with `--script` anybody's script, does on the emulated GPU."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from cutesmith.commands._emulation_tables import table
from cutesmith.commands._run import command, report, verb_parser
from cutesmith.commands._script_tables import script_table
from cutesmith.commands.verify import require_orders
from cutesmith.errors import UsageError
from cutesmith.profiling.emulation import emulate_kernel
from cutesmith.profiling.requests import TraceRequest
from cutesmith.profiling.scripts.run_script import run_script
from cutesmith.verbs.kernel_verbs import EMULATE

DESCRIPTION = """\
Run a kernel once on the emulated GPU (a CPU; no GPU is needed) and say what its launches did.

kernel_fn runs in a confined process on get_inputs(), with fewer rows where there are many. Every launch is executed
instruction by instruction with bounds, alignment, initialisation, races and missing waits checked; findings name the
Python line. The result is not compared with the reference: `cutesmith verify --on emulator` does that, on many inputs.
Use emulate to see why: where a fault is, what printf says, what is slow (--profile), what a warp computes (--trace).

--profile says by Python line what to change: instruction mix, sectors of global requests against the ideal
(coalescing), bank conflicts, shuffles, tensor-core work. Instructions are counted over the whole launch (guarded ones
too, a warp-instruction once for as many lanes as run it); requests are those of all blocks where that is affordable.
Not modelled: caches, latency, overlap, occupancy, ptxas (its spills and its scheduling; see `cutesmith compile`).
Clocks rank lines; they are not times: those are measured by `cutesmith benchmark`, on a GPU.

--trace prints every instruction that one warp executes (branches show by what follows; `fused` is a product and a sum
that ptxas makes one fma), the lanes that took part, and what it set in one of them.

--orders N runs each launch with bulk copies or mbarriers in N orders that the hardware may take, of completions and of
warps (1: the first warps as far as they can, 2: the last ones); memory must be the same after each, and no order may
find or hang what another does not. Rings of mbarriers are shown with the phases that one block ended.

--script runs somebody else's Python script, or a test suite, as it is: tensors on "cuda", streams, events, questions
to torch.cuda and the driver, cute.compile with and without TVM-FFI. What it prints passes through (on stderr with
--json); its launches and their findings stand at the end. It is confined: it reads its own folder (the current one,
where it lies below), what its arguments name and --read, and writes only into a folder that is gone afterwards.
Nothing is timed: benchmark helpers run the kernel once and give NaN, torch.compile runs the function as written. Exit
code: 1 an assertion failed, 5 a finding or another exception, 7 it needs what the emulated GPU lacks (NCCL, Triton, a
CUDA library)."""

EXAMPLES = (
    "cutesmith emulate kernel.py                          findings, printf, instructions",
    "cutesmith emulate kernel.py --profile                what is slow, by line, and what to change",
    "cutesmith emulate kernel.py --trace 3:1 --lane 5     block 3, warp 1, values of lane 5",
    "cutesmith emulate kernel.py --profile --json > profile.json",
    "cutesmith emulate --arch sm_80 --script example.py --M 64    a script with its arguments",
    "cutesmith emulate --script -m pytest tests/test_softmax.py -k 256",
)

_PLACE = re.compile(r"(?:(\d+):)?(\d+)")


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(EMULATE, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    if not options.timeout > 0:
        raise UsageError(f"--timeout {options.timeout:g}: it must be more than 0 seconds")
    require_orders(options.orders)
    if options.script is not None:
        return _emulate_script(options)
    if options.file is None:
        raise UsageError("emulate needs a kernel file, or --script", hint="cutesmith emulate --help")
    if options.read or options.env:
        raise UsageError("--read and --env belong to --script", hint="A kernel file may read itself alone.")
    if options.profile and options.trace is not None:
        raise UsageError("--profile and --trace are two runs", hint="Give one of them at a time.")
    verdict = emulate_kernel(
        options.file,
        problem=options.problem,
        arch=options.arch,
        full=options.full,
        profile=options.profile,
        trace=_trace_request(options.trace, options.lane, options.launch, options.steps),
        seed=options.seed,
        orders=options.orders,
        timeout=options.timeout,
    )
    return report(verdict, as_json=options.json, lines=table(verdict, gpu=options.gpu))


def _emulate_script(options: argparse.Namespace) -> int:
    given = {"a kernel file": options.file, "--problem": options.problem, "--profile": options.profile}
    given |= {"--trace": options.trace, "--full": options.full}
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"{wrong[0]} does not go with --script", hint="Of the options of emulate a script takes few.")
    environment = dict(_variable(text) for text in options.env)
    shown = sys.stderr if options.json else sys.stdout

    def follow(text: str) -> None:
        shown.write(text)
        shown.flush()

    verdict = run_script(
        options.script,
        arch=options.arch,
        timeout=options.timeout,
        readable=[Path(path) for path in options.read],
        environment=environment,
        follow=follow,
    )
    return report(verdict, as_json=options.json, lines=script_table(verdict))


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.isidentifier() or not equals:
        raise UsageError(f"--env {text}: it is NAME=VALUE")
    return name, value


def _trace_request(place: str | None, lane: int, launch: int, steps: int) -> TraceRequest | None:
    if not 0 <= lane < 32 or launch < 0 or steps < 1:
        raise UsageError("--lane is 0 to 31, --launch counts from 0, --steps is positive")
    if place is None:
        return None
    match = _PLACE.fullmatch(place)
    if match is None:
        raise UsageError(f"--trace {place}: it is WARP or BLOCK:WARP, such as 0:3", hint="Blocks count x first.")
    return TraceRequest(block=int(match[1] or 0), warp=int(match[2]), lane=lane, launch=launch, steps=steps)
