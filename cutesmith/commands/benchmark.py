"""`cutesmith benchmark FILE`: how fast a kernel is, beside its baselines and the floor of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cutesmith.commands._run import command, log_lines, report, verb_parser
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.timing.benchmark import QUICK_ROUNDS, ROUNDS, BenchmarkOptions, benchmark_kernel
from cutesmith.verbs.kernel_verbs import BENCHMARK
from cutesmith.verdicts import BenchmarkVerdict, Timing

DESCRIPTION = """\
Time a kernel on this machine's GPU, interleaved with eager PyTorch, torch.compile and any other function.

Device time is the median over rounds in random order, each launch after a flush of the L2 cache, on rotating inputs
whose values change every round, with work queued so that the device never waits for the host; host time is measured
apart. The floor is the bytes of inputs and outputs over the bandwidth of a large copy on this machine, or the matrix
products of the reference over the rate of a large one in their dtype, whichever takes longer; a problem file may state
its own ALGORITHMIC_FLOPS and ALGORITHMIC_BYTES (a number, or a function of the inputs). Outputs of random timed
launches are judged, and impossible times are rejected."""

EXAMPLES = (
    "cutesmith benchmark kernel.py",
    "cutesmith benchmark kernel.py --baseline other.py:softmax --json > result.json",
    "cutesmith benchmark kernel.py --quick --no-compile-baseline",
    "cutesmith benchmark kernel.py --plot times.png",
)


FLOORS = {"bytes": "bytes over copy bandwidth", "flops": "operations over a large matrix product's rate"}


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(BENCHMARK, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    rounds = options.rounds if options.rounds is not None else QUICK_ROUNDS if options.quick else ROUNDS
    if rounds < 1 or not options.timeout > 0:
        raise UsageError("--rounds and --timeout must be positive")
    if options.plot and Path(options.plot).suffix not in (".png", ".svg"):
        raise UsageError(f"--plot {options.plot}: the name must end in .png or .svg")
    contest = BenchmarkOptions(
        baselines=tuple(options.baseline),
        rounds=rounds,
        compiled=not options.no_compile_baseline,
        timeout=options.timeout,
        arch=options.arch,
    )
    verdict = benchmark_kernel(options.file, contest, problem=options.problem, confine_problem=options.confine_problem)
    if options.plot and verdict.timings:
        plot(verdict, Path(options.plot))
    return report(verdict, as_json=options.json, lines=table(verdict))


def table(verdict: BenchmarkVerdict) -> Iterator[str]:
    """The verdict as lines for people."""
    if verdict.timings:
        yield f"{verdict.device}: {verdict.inputs}"
        yield f"{'':24} {'median':>9} {'quartiles':>19} {'host':>8} {'GB/s':>7} {'speedup':>8}"
        yield from (_timing_line(timing, verdict) for timing in verdict.timings)
    if verdict.floor_us is not None and verdict.copy_bytes_per_second is not None:
        basis, rate = f"{verdict.copy_bytes_per_second / 1e9:.0f} GB/s, a large copy", verdict.matmul_flops_per_second
        basis = f"{verdict.algorithmic_bytes} bytes at {basis}"
        if verdict.floor_kind == "flops" and rate is not None and verdict.algorithmic_flops is not None:
            work = f"{verdict.algorithmic_flops / 1e9:.4g} GFLOP at {rate / 1e12:.4g} TFLOP/s"
            basis = f"{work}, a large matrix product"
        yield f"{'floor':24} {verdict.floor_us:9.2f}   ({basis})"
    if not verdict.passed:
        yield from log_lines(verdict.log_tail)
    yield f"{verdict.status}: {verdict.summary} ({verdict.seconds:.1f} s)"


def _timing_line(timing: Timing, verdict: BenchmarkVerdict) -> str:
    name = timing.name if len(timing.name) <= 24 else f"…{timing.name[-23:]}"
    if timing.error:
        return f"{name:24} {timing.error.splitlines()[0][:90]}"
    host = "" if timing.host_us is None else f"{timing.host_us:.1f}"
    rate = "" if timing.bytes_per_second is None else f"{timing.bytes_per_second / 1e9:.0f}"
    speedup = verdict.speedups.get(timing.name)
    faster = "" if speedup is None else f"{speedup:.2f}x"
    quartiles = f"{timing.q1_us:.2f}–{timing.q3_us:.2f}"
    return f"{name:24} {timing.median_us:9.2f} {quartiles:>19} {host:>8} {rate:>7} {faster:>8}"


def plot(verdict: BenchmarkVerdict, path: Path) -> None:
    """Draw every sample, the medians and the floor. Raises UnavailableError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnavailableError(f"--plot needs matplotlib: {error}", hint="pip install matplotlib") from error
    shown = [timing for timing in verdict.timings if timing.samples_us]
    figure = Figure(figsize=(7, 1.2 + 0.6 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for row, timing in enumerate(shown, start=1):
        axes.plot(timing.samples_us, [row] * len(timing.samples_us), ".", alpha=0.3, color="tab:blue")
        axes.hlines(row, timing.q1_us, timing.q3_us, linewidth=8, alpha=0.4, color="tab:blue")
        axes.plot([timing.median_us], [row], "|", markersize=18, color="black")
    axes.set_yticks(range(1, len(shown) + 1), [timing.name for timing in shown])
    if verdict.floor_us is not None:
        axes.axvline(verdict.floor_us, linestyle="--", color="gray")
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(f"device time, µs (dashed: {FLOORS.get(verdict.floor_kind, 'the floor')}) · {verdict.device}")
    axes.set_title(f"{Path(verdict.path).name}: {verdict.inputs}", fontsize=9)
    figure.savefig(path, dpi=150)
