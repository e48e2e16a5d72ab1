"""`cutesmith profile FILE`: where a kernel's time goes and what to change, by Nsight Compute or by the emulated GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from cutesmith.commands._emulation_tables import WIDTH, dims, launch_table
from cutesmith.commands._run import command, log_lines, report, unconfined_lines, verb_parser
from cutesmith.errors import UsageError
from cutesmith.profiling.advice import ProfileAdvice
from cutesmith.profiling.ncu_metrics import ProfiledKernel
from cutesmith.profiling.profiling import ProfileOptions, ProfileVerdict, profile_kernel
from cutesmith.verbs.kernel_verbs import PROFILE

DESCRIPTION = """\
Say where a kernel's time goes and what to change, the largest stake first; every remark names the metric and a section
of the references.

With an NVIDIA GPU and ncu (Nsight Compute): one call of kernel_fn on get_inputs(), after one to warm up, in a confined
process under ncu. For each launch: duration, DRAM bytes and % of peak, L1 and L2, compute and tensor pipe, occupancy
and what limits it, registers, shared memory, waves, bytes used of each sector, bank conflicts, local memory, and what
warps wait for. ncu replays each launch dozens of times with flushed caches, and leaves the clocks alone: its durations
are those of single launches, to be compared with each other; `cutesmith benchmark` gives the time that counts.

Without a GPU or without ncu: the emulated GPU counts instructions, sectors and bank conflicts; what bounds the kernel,
what to change and the busiest lines are shown (`cutesmith emulate --profile` has all counts). Caches, latency,
occupancy and times are not modelled, and the verdict says so.

Profile what verifies: a wrong kernel may be fast for the wrong reason."""

EXAMPLES = (
    "cutesmith profile kernel.py                              the best that this machine has",
    "cutesmith profile kernel.py --on gpu --report k.ncu-rep  keep ncu's report, with source lines",
    "cutesmith profile kernel.py --on emulator --json         counts by line, no GPU",
)

_MOST_ADVICE = 12


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(PROFILE, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    if not options.timeout > 0:
        raise UsageError(f"--timeout {options.timeout:g}: it must be more than 0 seconds")
    verdict = profile_kernel(
        options.file,
        problem=options.problem,
        on=options.on,
        options=ProfileOptions(
            arch=options.arch,
            ncu=options.ncu,
            report=options.report,
            full=options.full,
            timeout=options.timeout,
            confine_problem=options.confine_problem,
        ),
    )
    return report(verdict, as_json=options.json, lines=table(verdict, gpu=options.gpu))


def table(verdict: ProfileVerdict, *, gpu: str | None = None) -> Iterator[str]:
    """The verdict as lines for people; predictions of the emulated GPU's counts for one `gpu`, or for all."""
    if verdict.note:
        yield from wrap(f"note: {verdict.note}", WIDTH)
    if verdict.emulated is not None:
        yield from launch_table(verdict.emulated, brief=True, gpu=gpu)
        # Where to read on about the kinds of remarks that the table above has.
        if first := {remark.kind: remark.reference for remark in reversed(verdict.advice)}:
            yield from ("", "  read on in references/")
            kinds = dict.fromkeys(remark.kind for remark in verdict.advice)
            yield from (*(f"    {kind:17} {first[kind]}" for kind in kinds), "")
    elif verdict.kernels:
        yield from _measured_lines(verdict)
    if not verdict.passed:
        yield from log_lines(verdict.log_tail)
    yield from unconfined_lines("the kernel", verdict.confinement)
    yield from wrap(f"{verdict.status}: {verdict.summary} ({verdict.seconds:.1f} s)", WIDTH)
    for paragraph in verdict.hint.splitlines():
        yield from wrap(paragraph, WIDTH)


# ------------------------------------------------------------------------------------------------------------------ ncu


def _measured_lines(verdict: ProfileVerdict) -> Iterator[str]:
    yield f"{verdict.device} ({verdict.arch}): {verdict.inputs}"
    for kernel in verdict.kernels:
        cluster = f" cluster {kernel.cluster_size}" if (kernel.cluster_size or 1) > 1 else ""
        yield ""
        yield f"{kernel.name}: grid {dims(kernel.grid)} block {dims(kernel.block)}{cluster}"
        for title, facts in _facts(kernel).items():
            if told := ", ".join(filter(None, facts)):
                yield from wrap(told, WIDTH, initial_indent=f"  {title:12}", subsequent_indent=" " * 14)
    yield ""
    yield from _advice_lines(verdict.advice)
    yield ""
    if verdict.report:
        yield f"report: {verdict.report} (ncu-ui {verdict.report}, or ncu --import {verdict.report} --page details)"


def _facts(kernel: ProfiledKernel) -> dict[str, tuple[str, ...]]:
    """What is known of a launch, by topic; "" for what ncu gave no number for."""
    conflicts = (kernel.shared_load_conflicts or 0) + (kernel.shared_store_conflicts or 0)
    wavefronts = (kernel.shared_load_wavefronts or 0) + (kernel.shared_store_wavefronts or 0)
    local = (kernel.local_load_sectors or 0) + (kernel.local_store_sectors or 0)
    limits = ", ".join(f"{name} {blocks}" for name, blocks in sorted(kernel.occupancy_limits.items()))
    return {
        "time": (
            _told(kernel.duration_us, "{:.2f} us"),
            _told(kernel.waves, "{:.3g} waves"),
            _told(kernel.issue_percent, "an instruction issued in {:.0f} % of the cycles"),
        ),
        "DRAM": (
            _told(kernel.dram_percent, "{:.1f} % of peak"),
            _told(_millions(kernel.dram_read_bytes), "{:.4g} MB read"),
            _told(_millions(kernel.dram_write_bytes), "{:.4g} MB written"),
        ),
        "caches": (
            _told(kernel.l2_percent, "L2 {:.1f} % of peak"),
            _told(kernel.l2_hit_percent, "{:.0f} % hits"),
            _told(kernel.l1_percent, "L1 and shared memory {:.1f} % of peak"),
            _told(kernel.l1_hit_percent, "{:.0f} % hits"),
        ),
        "compute": (
            _told(kernel.sm_percent, "multiprocessors {:.1f} % of peak"),
            _told(kernel.tensor_percent, "tensor pipe {:.1f} %"),
        ),
        "occupancy": (
            _told(kernel.occupancy_percent, "{:.1f} % of the warps there"),
            _told(kernel.theoretical_occupancy_percent, "{:.1f} % possible"),
            f"limited by {kernel.occupancy_limiter} (blocks an SM: {limits})" if limits else "",
        ),
        "a block": (
            _told(kernel.registers, "{} registers a thread"),
            _told(kernel.static_smem_bytes, "{} B static"),
            _told(kernel.dynamic_smem_bytes, "{} B dynamic shared memory"),
        ),
        "accesses": (
            _told(kernel.load_bytes_per_sector, "loads use {:.3g} of 32 bytes a sector"),
            _told(kernel.load_sectors_per_request, "{:.3g} sectors a request"),
            _told(kernel.store_bytes_per_sector, "stores use {:.3g}"),
            _told(kernel.store_sectors_per_request, "{:.3g} sectors a request"),
            f"{conflicts:.3g} bank conflicts in {wavefronts:.3g} wavefronts" if wavefronts else "",
            _told(local or None, "{:.3g} sectors of local memory"),
        ),
        "warps wait": tuple(f"{name} {100 * share:.0f} %" for name, share in kernel.stalls.items() if share >= 0.02),
    }


def _advice_lines(advice: Sequence[ProfileAdvice]) -> Iterator[str]:
    """What bounds each launch and what to change; the section to read under each remark."""
    for name, remarks in groupby(advice, key=lambda remark: remark.kernel):
        yield f"what to change in {name}, the largest stake first"
        for remark in list(remarks)[:_MOST_ADVICE]:
            yield from wrap(f"{remark.message}.", WIDTH, initial_indent="  - ", subsequent_indent="    ")
            value = "" if remark.value is None else f" = {remark.value:.4g}"
            yield f"    {remark.metric}{value}"
            yield f"    references/{remark.reference}"
    if not advice:
        yield "nothing to say: ncu gave none of the numbers that advice needs"


def _told(value: float | None, text: str) -> str:
    return "" if value is None else text.format(value)


def _millions(value: float | None) -> float | None:
    return None if value is None else value / 1e6
