"""Time the generator's kernels at the speed points (evals/tasks/speed) beside eager, torch.compile and QuACK.

    python evals/studies/bench_speed_points.py --out evals/results/h200/speed
    python evals/studies/bench_speed_points.py --only 'softmax*' --no-compile --out /tmp/softmax

One process an operation. First all of them build: the configurations of the matched pattern, each checked against
float64 on its first rows. Then one at a time has the GPU (`flock`): its kernels are timed interleaved with the
baselines on the same random normal bf16 inputs, each launch after a flush of the L2 cache, launches queued behind a
sleep so that the device never waits for the host, the median over rounds in random order. OUT/speed.json holds every
sample (microseconds), OUT/speed.md the table. The
floor is the point's bytes over the bandwidth of a large copy on the same machine; `copy` is a copy of as many bytes as
the point moves, timed in the same way in the same rounds. Host time is one call of `kernel_fn` before torch.compile ran
in its process; `host_after_us` is the same after it.
"""

from __future__ import annotations

import argparse
import fcntl
import fnmatch
import importlib.util
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from cutesmith.patterns.configuration import Configuration  # noqa: E402
from cutesmith.patterns.match import plan_kernel  # noqa: E402
from cutesmith.patterns.tracing.trace import trace_problem  # noqa: E402
from cutesmith.problems.loading import load_file  # noqa: E402

TASKS = ROOT / "evals" / "tasks" / "speed"
FLUSH_BYTES = 256 << 20  # over four times the L2 of an H200
CHECKED_ROWS = 256
Launch = Callable[..., Any]


@dataclass
class Point:
    """One problem on its inputs, with the kernels that were built for it and are right."""

    path: Path
    plan: Any
    loaded: Any
    inputs: list[Any]
    configurations: list[Configuration]
    kernels: dict[str, Launch] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    host_us: float | None = None


def main() -> int:
    """Run the points and write the results; 1 when a kernel was wrong or an operation did not finish."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    paths = [path for path in sorted(TASKS.glob("*.py")) if fnmatch.fnmatch(path.stem, options.only)]
    if options.part:
        return run_part(paths, options)
    operations = sorted({path.stem.partition("_")[0] for path in paths})
    with tempfile.TemporaryDirectory(prefix="cutesmith-") as scratch:
        children = [start_part(operation, options, Path(scratch)) for operation in operations]
        failed = sum(child.wait() != 0 for child in children)
        parts = [json.loads(file.read_text()) for file in sorted(Path(scratch).glob("*.json"))]
    bandwidth = copy_bandwidth()
    points = [{**point, "floor_us": point["bytes"] / bandwidth * 1e6} for part in parts for point in part]
    device = torch.cuda.get_device_properties(0)
    machine = {"gpu": device.name, "torch": torch.__version__, "python": platform.python_version()}
    write(options.out, {"machine": machine, "copy_bytes_per_second": bandwidth, "points": points})
    print((options.out / "speed.md").read_text())
    return int(failed > 0 or any(point["wrong"] for point in points))


def start_part(operation: str, options: argparse.Namespace, scratch: Path) -> subprocess.Popen[bytes]:
    """A process of its own for the points of one operation."""
    part = ["--part", str(scratch / f"{operation}.json"), "--only", f"{operation}_*", "--out", str(options.out)]
    counts = ["--rounds", options.rounds, "--launches", options.launches, "--configurations", options.configurations]
    more = ["--no-compile"] if options.no_compile else []
    return subprocess.Popen([sys.executable, __file__, *part, *map(str, counts), *more])


def run_part(paths: list[Path], options: argparse.Namespace) -> int:
    """Build every kernel of these points beside the other processes, then time them alone."""
    lock = options.part.with_name("gpu.lock")
    with holding(lock, fcntl.LOCK_SH):
        points = [build(path, options.configurations) for path in paths]
    with holding(lock, fcntl.LOCK_EX):
        for point in points:
            launch = next(iter(point.kernels.values()), None)
            point.host_us = host_microseconds(launch, point.inputs) if launch else None
    results = []
    for point in points:
        with holding(lock, fcntl.LOCK_EX):
            results.append(measure(point, options))
            print(f"{point.path.stem}: {results[-1]['best']}", flush=True)
    options.part.write_text(json.dumps(results))
    return 0


@contextmanager
def holding(lock: Path, kind: int) -> Iterator[None]:
    """The GPU, shared with those that build (`LOCK_SH`) or alone (`LOCK_EX`)."""
    with lock.open("w") as file:
        fcntl.flock(file, kind)
        yield


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", default="*", metavar="GLOB", help="points, such as 'softmax*'")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--launches", type=int, default=20, help="a round and callable")
    parser.add_argument("--configurations", type=int, default=99, help="at most this many a point")
    parser.add_argument("--part", type=Path, help=argparse.SUPPRESS)  # a child's results
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    return parser.parse_args()


def build(path: Path, count: int) -> Point:
    """The point with its first `count` configurations built and checked."""
    torch.manual_seed(random.SystemRandom().getrandbits(32))
    loaded = load_file(path)
    plan = plan_kernel(trace_problem(loaded), "sm_90a")
    point = Point(path, plan, loaded, loaded.get_inputs(), plan.configurations("sm_90a")[:count])
    library = quack(path.stem.partition("_")[0], point.inputs)
    if library is not None:
        library()  # it compiles here, beside ours
    expected = loaded.reference_fn(*[first_rows(x, point.inputs[0], double=True) for x in point.inputs])
    for index, configuration in enumerate(point.configurations):
        name = f"ours {index}"
        try:
            kernel = load(plan.render(configuration), f"{path.stem}_{index}").kernel_fn
            actual = kernel(*point.inputs)[:CHECKED_ROWS].double()
        except Exception as error:
            point.failed[name] = f"{type(error).__name__}: {error}"[-500:]
            continue
        off = ((actual - expected).abs().max() / expected.abs().max()).item()
        if off < 2**-7:
            point.kernels[name] = kernel
        else:
            point.wrong.append(f"{name}: {off}")
    return point


def measure(point: Point, options: argparse.Namespace) -> dict[str, Any]:
    """All callables of one point, timed; medians in microseconds and the samples behind them."""
    inputs = point.inputs
    operation = point.path.stem.partition("_")[0]
    callables: dict[str, Launch] = {name: lambda k=kernel: k(*inputs) for name, kernel in point.kernels.items()}
    callables |= baselines(operation, point.loaded.reference_fn, inputs, not options.no_compile)
    callables["copy"] = copy_of(point.plan.algorithmic_bytes)
    samples = time_all(callables, options.rounds, options.launches)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    best = min(point.kernels, key=medians.__getitem__, default="")
    return {
        "point": point.path.stem,
        "bytes": point.plan.algorithmic_bytes,
        "best": best,
        "configurations": {f"ours {i}": c.to_dict() for i, c in enumerate(point.configurations)},
        "medians_us": medians,
        "host_us": point.host_us,
        "host_after_us": host_microseconds(point.kernels[best], inputs) if best else None,
        "samples_us": {name: [round(value, 2) for value in values] for name, values in samples.items()},
        "wrong": point.wrong,
        "failed": point.failed,
    }


def first_rows(value: Any, whole: torch.Tensor, *, double: bool) -> Any:
    """The checked rows of tensors that have the rows of `whole`; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    part = value[:CHECKED_ROWS] if value.shape[:1] == whole.shape[:1] and (value is whole or value.dim() < 2) else value
    part = value if value.dim() == 1 and value.is_floating_point() else part
    return part.double() if double and part.is_floating_point() else part


def load(source: str, name: str) -> Any:
    """The rendered kernel section as a module of its own file."""
    path = Path(tempfile.mkdtemp(prefix="cutesmith-")) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def baselines(operation: str, reference: Callable[..., Any], inputs: list[Any], compiled: bool) -> dict[str, Launch]:
    """Eager, torch.compile and QuACK, as far as they are there and run."""
    found: dict[str, Launch] = {"eager": lambda: reference(*inputs)}
    if compiled:
        torch._dynamo.reset()
        fast = torch.compile(reference, mode="max-autotune-no-cudagraphs", dynamic=False)
        found["torch.compile"] = lambda: fast(*inputs)
    library = quack(operation, inputs)
    if library is not None:
        found["quack"] = library
    return found


def quack(operation: str, inputs: list[Any]) -> Launch | None:
    """QuACK's forward function for the operation on these inputs; None where it has none or is not installed."""
    try:
        if operation == "softmax":
            from quack.softmax import softmax_fwd

            return lambda: softmax_fwd(*inputs)
        if operation == "crossentropy":
            from quack.cross_entropy import cross_entropy_fwd

            return lambda: cross_entropy_fwd(*inputs)
        if operation == "rmsnorm":
            from quack.rmsnorm import rmsnorm_fwd

            return lambda: rmsnorm_fwd(inputs[0], inputs[1], eps=1e-6)
        if operation == "layernorm":
            from quack.rmsnorm import layernorm_fwd

            weight, bias = inputs[1].float(), inputs[2].float()  # it takes float32 parameters only
            return lambda: layernorm_fwd(inputs[0], weight, bias)
    except ImportError:
        return None
    return None


def copy_of(byte_count: int) -> Launch:
    """A copy that reads and writes `byte_count` bytes together."""
    source = torch.randn(byte_count // 4, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def copy_bandwidth() -> float:
    """Bytes a second, read plus write, of a copy of 2 GiB; the best of ten."""
    source = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    times = time_all({"copy": lambda: target.copy_(source)}, 2, 5)["copy"]
    return 2 * source.numel() * source.element_size() / (min(times) * 1e-6)


def time_all(callables: dict[str, Launch], rounds: int, launches: int) -> dict[str, list[float]]:
    """Device microseconds of every launch, cold L2, rounds interleaved in random order."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for launch in callables.values():
        launch()
        launch()
    torch.cuda.synchronize()
    samples: dict[str, list[float]] = {name: [] for name in callables}
    for _ in range(rounds):
        for name in random.sample(list(callables), len(callables)):
            samples[name] += time_round(callables[name], launches, flush)
    return samples


def time_round(launch: Launch, launches: int, flush: torch.Tensor) -> list[float]:
    """One round; the first two launches are warm-up. The sleep lets the host run ahead of the device."""
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(launches)]
    torch.cuda._sleep(2_000_000)
    for begin, end in pairs:
        flush.zero_()
        begin.record()
        launch()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e3 for begin, end in pairs[2:]]


def host_microseconds(kernel: Launch, inputs: list[Any], calls: int = 100, batches: int = 9) -> float:
    """Host time of one call, the median over batches that fit the launch queue."""
    times = []
    for _ in range(batches):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            kernel(*inputs)
        times.append((time.perf_counter() - begin) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def line(point: dict[str, Any]) -> str:
    """One row of the table."""
    medians = point["medians_us"]
    ours = medians.get(point["best"], float("nan"))
    cells = [point["point"], f"{point['floor_us']:.1f}", f"{medians['copy']:.1f}", f"{ours:.1f}"]
    cells += [f"{100 * point['floor_us'] / ours:.0f} %", f"{100 * medians['copy'] / ours:.0f} %"]
    cells += [f"{medians[name]:.1f}" if name in medians else "–" for name in ("eager", "torch.compile", "quack")]
    rivals = [medians[name] for name in ("torch.compile", "quack", "eager") if name in medians]
    cells += [f"{min(rivals) / ours:.3f}", f"{point['host_us'] or 0:.1f}", point["best"].removeprefix("ours ")]
    return "| " + " | ".join(cells) + " |"


def write(out: Path, results: dict[str, Any]) -> None:
    """speed.json and speed.md."""
    (out / "speed.json").write_text(json.dumps(results))
    titles = (
        "point|floor µs|copy µs|ours µs|of floor|of copy|eager|torch.compile|QuACK|rival / ours|host µs|configuration"
    )
    header = ["| " + " | ".join(titles.split("|")) + " |", "|" + "---|" * 12]
    rows = header + [line(point) for point in results["points"]]
    machine = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    head = f"{machine}; copy {results['copy_bytes_per_second'] / 1e12:.3f} TB/s; medians, cold L2, random normal bf16\n"
    (out / "speed.md").write_text(head + "\n" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
