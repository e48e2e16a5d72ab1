"""`cutesmith compile FILE`: what every architecture makes of a kernel, on a machine with or without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from cutesmith.commands._emulation_tables import dims
from cutesmith.commands._progress import progress_display
from cutesmith.commands._run import command, report, verb_parser
from cutesmith.compiling.compilation import compile_kernel
from cutesmith.devices import DEFAULT_ARCHS
from cutesmith.errors import UsageError
from cutesmith.recording.cubin import source_name
from cutesmith.verbs.kernel_verbs import COMPILE
from cutesmith.verdicts import CompileVerdict, ExitCode, GlobalAccess, KernelReport

DESCRIPTION = """\
Compile a kernel file for several architectures; no GPU is needed and none is used.

kernel_fn runs on the inputs of get_inputs() with every launch recorded instead of executed. For each kernel and
architecture: registers, stack, spills, shared memory, grid, block and cluster, occupancy and what limits it, the widest
global load and store, how many loads are issued before one is waited for, bytes that a warp asks of global memory and
the sectors that it touches, accesses to shared memory in the inner loop, tensor-core and TMA instructions, what ptxas
changed (serialised wgmma), spills with their line and cause, registers by role after setmaxnreg, and what the hardware
would refuse. Addresses follow from the PTX and the launch, for the middle block at the first step of its loops; of a
gather they are not known. Bank conflicts, and gathers, are in `cutesmith emulate --profile`. Compiling says nothing of
whether the result is right: that is `cutesmith verify`."""

EXAMPLES = (
    "cutesmith compile kernel.py                          sm_80, sm_90a and sm_100a",
    "cutesmith compile kernel.py --arch sm_90a --json",
    "cutesmith compile kernel.py --arch sm_90a --keep out keep PTX, cubin and machine code in out/",
)


MOST_ACCESSES = 6  # of a kernel, that are shown


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(COMPILE, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    if options.timeout <= 0:
        raise UsageError(f"--timeout {options.timeout:g}: it must be more than 0 seconds")
    archs = [arch for text in options.arch or DEFAULT_ARCHS for arch in text.split(",") if arch]
    with progress_display() as tell:
        verdict = compile_kernel(
            options.file,
            archs,
            problem=options.problem,
            timeout=options.timeout,
            keep_dir=options.keep,
            progress=tell,
        )
    return report(verdict, as_json=options.json, lines=table(verdict))


def table(verdict: CompileVerdict) -> Iterator[str]:
    """The verdict as lines for people."""
    for arch in verdict.archs:
        passed = arch.exit_code == ExitCode.PASSED
        yield f"{arch.arch}: {'compiled' if passed else arch.error_code} in {arch.compile_seconds:.2f} s"
        for kernel in arch.kernels:
            yield from _kernel_lines(kernel)
        if not passed and not arch.kernels:
            yield from (f"  {line}" for line in arch.error.splitlines())
        yield from (f"  {kind}: {path}" for kind, path in arch.artifacts.items())
        if arch.no_sass:
            yield f"  sass: not kept, {arch.no_sass}"
    yield f"{verdict.status}: {verdict.summary} ({verdict.seconds:.1f} s)"


def access_lines(kernel: KernelReport, *, wasteful: bool = False) -> Iterator[str]:
    """What a warp asks of global memory by each access: those that touch too much come first, then those in loops.

    `wasteful`: no others.
    """
    known = [(one, one.touched) for one in kernel.global_accesses if one.touched.known]
    known = [pair for pair in known if pair[1].uncoalesced or not wasteful]
    known.sort(key=lambda pair: (not pair[1].uncoalesced, not pair[0].in_loop))
    for one, touched in known[:MOST_ACCESSES]:
        asked, sectors, ideal = (
            f"{total / touched.warps:.4g}" for total in (touched.asked, touched.sectors, touched.ideal_sectors)
        )
        text = f"{_named(one)}: a warp asks {asked} B, {sectors} sector{'s' * (sectors != '1')}"
        text += f" where {ideal} would do" if touched.uncoalesced else ""
        repeated = touched.distinct is not None and touched.distinct < touched.asked
        yield text + (f"; block {touched.asked} B, {touched.distinct} distinct" if repeated else "")
    if (rest := len(known) - MOST_ACCESSES) > 0:
        yield f"and {rest} more accesses of global memory (--json has all)"
    unknown = [one for one in kernel.global_accesses if not (one.touched.known or wasteful)]
    if unknown:
        count = sum(one.count for one in unknown)
        yield f"{count} more, such as {_named(unknown[0])}: not known without executing (emulate --profile)"


def _named(access: GlobalAccess) -> str:
    """Such as "ld.global.b32 ×16 in a loop, line 31"."""
    times = f" ×{access.count}" if access.count > 1 else ""
    line = f", line {access.place.rpartition(':')[2]}" if access.place else ""
    return f"{access.instruction}{times}{' in a loop' if access.in_loop else ''}{line}"


def _kernel_lines(kernel: KernelReport) -> Iterator[str]:
    times = f" ×{kernel.launches}" if kernel.launches > 1 else ""
    yield (
        f"  {source_name(kernel.name)}{times}: grid {dims(kernel.grid)} block {dims(kernel.block)}"
        + (f" cluster {dims(kernel.cluster)}" if kernel.cluster != (1, 1, 1) else "")
    )
    spills = "?" if kernel.spill_store_bytes is None else f"{kernel.spill_store_bytes}/{kernel.spill_load_bytes}"
    yield (
        f"    {kernel.registers} registers, {kernel.stack_bytes} B stack, {spills} B spilled (store/load), "
        f"smem {kernel.static_smem_bytes} B static + {kernel.dynamic_smem_bytes} B dynamic, {kernel.code_bytes} B code"
    )
    yield (
        f"    occupancy {kernel.occupancy_percent:g} % ({kernel.occupancy_blocks} blocks an SM, limited by "
        f"{kernel.occupancy_limit}); widest global load {kernel.widest_global_load_bits} bits, "
        f"store {kernel.widest_global_store_bits} bits"
    )
    if kernel.loads_in_flight:
        of_an_sm = kernel.bytes_in_flight * prod(kernel.block) * kernel.occupancy_blocks // 1024
        yield (
            f"    {kernel.global_loads} global loads into registers, {kernel.loads_in_flight} before the first wait: "
            f"{kernel.bytes_in_flight} B in flight a thread, {of_an_sm} KB an SM"
        )
    yield from (f"    {line}" for line in access_lines(kernel))
    for loop in kernel.inner_loops:
        accesses = ", ".join(f"{name} ×{count}" for name, count in loop.shared.items())
        at = f" at {loop.place}" if loop.place else ""
        yield f"    inner loop{at}: {loop.instructions} PTX instructions a step; shared memory: {accesses}"
    for title, counts in (("tensor cores", kernel.tensor_core_instructions), ("TMA", kernel.tma_instructions)):
        if counts:
            yield f"    {title}: " + ", ".join(f"{name} ×{count}" for name, count in counts.items())
    yield from (f"    descriptor: {words}" for words in kernel.engines.descriptors)
    yield from (f"    finding ({one.fault.value}): {one.sentence}" for one in kernel.engines.findings)
    yield from (f"    not decided: {what}" for what in kernel.engines.undecided)
    yield from (f"    note: {sentence}" for sentence in kernel.notes)
    yield from (f"    refused: {sentence}" for sentence in kernel.refused)
