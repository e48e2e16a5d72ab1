"""Time the generator's products of matrices beside cuBLAS, QuACK and torch.compile: squares, shapes of LLMs, epilogues.

    python evals/studies/bench_contractions.py --out evals/results/h200/gemm
    python evals/studies/bench_contractions.py --only 'gemm_4096*' --configurations 3 --out /tmp/gemm

Processes first trace every case, render its configurations and compile them, in parallel and without the GPU; then one
process loads them all. Each kernel's result is compared with float64. The kernels and the baselines of a case are
timed in rounds of random order on the same random normal inputs: L2 is flushed before each launch, launches are queued
behind a sleep so that the device never waits for the host, and the median counts. OUT/gemm.json holds every sample
(microseconds) with the predicted times, OUT/gemm.md the table.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import json
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from races import FLUSH_BYTES, Race, Tensor, compile_ahead, kernel_of, made, relative_error  # noqa: E402

from cutesmith.devices import parse_arch  # noqa: E402
from cutesmith.patterns.contraction.hopper.legality import obstacles  # noqa: E402
from cutesmith.patterns.contraction.hopper.proposals import MOST_CANDIDATES, predict, proposals  # noqa: E402
from cutesmith.patterns.contraction.plan import match  # noqa: E402
from cutesmith.patterns.pattern_plan import HopperConfiguration  # noqa: E402
from cutesmith.patterns.tracing.trace import trace_problem  # noqa: E402
from cutesmith.problems.loading import load_file  # noqa: E402

TOLERANCE = {"bfloat16": 5e-3, "float16": 1e-3, "float32": 1e-5}  # norm of the error over that of the result
HEADINGS = "case|eager|QuACK|torch.compile|first choice|best|predicted|TFLOP/s|over eager|over the best other".split(
    "|"
)
LLM_SHAPES = [
    *((1, n, k) for n, k in ((6144, 4096), (4096, 14336), (28672, 4096))),
    *((16, n, k) for n, k in ((4096, 4096), (28672, 4096), (4096, 14336))),
    *((64, n, k) for n, k in ((6144, 4096), (4096, 14336), (8192, 8192), (128256, 4096))),
    *((128, n, k) for n, k in ((4096, 4096), (28672, 4096))),
    *((256, n, k) for n, k in ((6144, 4096), (4096, 14336))),
    *((512, n, k) for n, k in ((4096, 4096), (8192, 28672))),
    *((1024, n, k) for n, k in ((6144, 4096), (28672, 4096))),
    *((2048, n, k) for n, k in ((4096, 4096), (8192, 8192))),
    *((m, n, k) for m, n, k in ((4096, 14336, 4096), (8192, 6144, 4096), (16384, 4096, 4096), (16384, 28672, 4096))),
]
SQUARES = [(4096, 4096, 4096), (8192, 8192, 8192)]


@dataclass(frozen=True)
class Argument:
    """A tensor of random normal numbers times `scale`, and its name."""

    name: str
    shape: tuple[int, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class Case:
    """A product with what follows it; `expression` is Python over the arguments' names."""

    name: str
    m: int
    n: int
    k: int
    expression: str
    tensors: tuple[Argument, ...]
    dtype: str = "bfloat16"
    fused: bool = False

    def source(self) -> str:
        """The problem file."""
        arguments = ", ".join(tensor.name for tensor in self.tensors)
        made = ", ".join(f'torch.empty({t.shape}, device="cuda", dtype=torch.{self.dtype})' for t in self.tensors)
        return (
            "import torch\nimport torch.nn.functional as F\n\n\n"
            f"def reference_fn({arguments}):\n    return {self.expression}\n\n\n"
            f"def get_inputs():\n    return [{made}]\n"
        )

    def function(self) -> Callable[..., torch.Tensor]:
        """The reference function."""
        names: dict[str, Any] = {"torch": torch, "F": F}
        exec(self.source(), names)  # noqa: S102
        return names["reference_fn"]  # type: ignore[no-any-return]

    def arguments(self) -> list[Tensor]:
        """Of its type."""
        return [Tensor(each.shape, getattr(torch, self.dtype), each.scale) for each in self.tensors]


def product(
    m: int, n: int, k: int, name: str = "", expression: str = "x @ weight.t()", *more: Argument, **rest: Any
) -> Case:
    """A case with x (m, k) and weight (n, k)."""
    tensors = (Argument("x", (m, k)), Argument("weight", (n, k), k**-0.5), *more)
    return Case(name or f"gemm_{m}x{n}x{k}", m, n, k, expression, tensors, **rest)


def cases() -> Iterator[Case]:
    """All of them: plain products, one in float16, operands of the other majors, a batch, epilogues."""
    yield from (product(*shape) for shape in [*SQUARES, *LLM_SHAPES])
    yield product(4096, 4096, 4096, "fp16_4096", dtype="float16")
    square = (4096, 4096)
    yield Case("nn_4096", 4096, 4096, 4096, "x @ weight", (Argument("x", square), Argument("weight", square, 1 / 64)))
    yield Case(
        "tn_4096", 4096, 4096, 4096, "x.t() @ weight", (Argument("x", square), Argument("weight", square, 1 / 64))
    )
    yield Case(
        "tt_4096", 4096, 4096, 4096, "x.t() @ weight.t()", (Argument("x", square), Argument("weight", square, 1 / 64))
    )
    batch = (Argument("x", (64, 1024, 1024)), Argument("weight", (64, 1024, 1024), 1 / 32))
    yield Case("bmm_64x1024", 1024, 1024, 1024, "torch.bmm(x, weight)", batch)
    m, n, k = 8192, 16384, 4096
    bias = Argument("bias", (n,))
    gelu = 'F.gelu(F.linear(x, weight, bias), approximate="tanh")'
    yield product(m, n, k, f"bias_gelu_{m}x{n}x{k}", gelu, bias, fused=True)
    yield product(2048, n, k, f"bias_gelu_2048x{n}x{k}", gelu, bias, fused=True)
    for m, n, k in ((8192, 4096, 14336), (8192, 4096, 4096), (2048, 4096, 4096)):
        added = Argument("residual", (m, n))
        yield product(m, n, k, f"residual_{m}x{n}x{k}", "x @ weight.t() + residual", added, fused=True)
    yield from float32_cases()


FLOAT32_SHAPES = [(4096, 4096, 4096), (2048, 4096, 8192), (1024, 8192, 8192), (128, 8192, 8192), (16, 4096, 4096)]


def float32_cases() -> Iterator[Case]:
    """Products of float32: squares and shapes of KernelBench, each major of both factors, a batch, an epilogue."""
    for m, n, k in FLOAT32_SHAPES:
        yield product(m, n, k, f"fp32_{m}x{n}x{k}", dtype="float32")
    square = (Argument("x", (4096, 4096)), Argument("weight", (4096, 4096), 1 / 64))
    for name, expression in (("nn", "x @ weight"), ("tn", "x.t() @ weight"), ("tt", "x.t() @ weight.t()")):
        yield Case(f"fp32_{name}_4096", 4096, 4096, 4096, expression, square, dtype="float32")
    batch = (Argument("x", (64, 1024, 1024)), Argument("weight", (64, 1024, 1024), 1 / 32))
    yield Case("fp32_bmm_64x1024", 1024, 1024, 1024, "torch.bmm(x, weight)", batch, dtype="float32")
    gelu = "F.gelu(F.linear(x, weight, bias))"
    yield product(1024, 8192, 8192, "fp32_bias_gelu", gelu, Argument("bias", (8192,)), dtype="float32", fused=True)


@dataclass
class Built:
    """A compiled configuration: its section's file, the object file, what was predicted, or why there is none."""

    case: Case
    configuration: HopperConfiguration
    section: Path
    predicted_us: float
    code: str  # equal where sections differ in comments only
    compiled: Path | None = None  # the section of this code that was compiled
    failed: str = ""

    @property
    def name(self) -> str:
        """One to each."""
        return self.section.stem


def render(case: Case, folder: Path, most: int) -> list[Built] | str:
    """The first configurations of a case, rendered; or why there are none."""
    path = folder / f"{case.name}.py"
    path.write_text(case.source())
    try:
        plan = match(trace_problem(load_file(path)))
        found = []
        sm = parse_arch("sm_90a").sm
        if why := list(obstacles(plan.problem, sm)):
            return "; ".join(why)
        for place, configuration in enumerate(proposals(plan.problem, sm, most)):
            section = folder / f"{case.name}_{place}.py"
            text = plan.render(configuration)
            section.write_text(text)
            code = ast.unparse(ast.parse(text))
            found.append(Built(case, configuration, section, predict(plan.problem, configuration).seconds * 1e6, code))
        return found
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"


def build(chosen: Sequence[Case], folder: Path, most: int, jobs: int) -> tuple[list[Built], dict[str, str]]:
    """Everything compiled, and the cases that were refused."""
    with multiprocessing.get_context("fork").Pool(jobs, torch.set_num_threads, (1,)) as pool:
        rendered = pool.starmap(render, [(case, folder, most) for case in chosen], chunksize=1)
        refused = {case.name: r for case, r in zip(chosen, rendered, strict=True) if isinstance(r, str)}
        built = [one for r in rendered if not isinstance(r, str) for one in r]
    unique = {one.code: one for one in built}
    failed = compile_ahead([(one.section, one.case.arguments()) for one in unique.values()], jobs)
    for one in built:
        one.compiled = unique[one.code].section
        one.failed = failed.get(one.compiled, "")
    return built, refused


def quack_of(case: Case) -> Callable[..., torch.Tensor] | None:
    """QuACK's function for a case, in its default configuration, where it has one."""
    try:
        from quack import gemm_interface
    except ImportError:
        return None
    if case.dtype == "float32":
        return None
    if case.expression == "x @ weight.t()":
        return lambda x, weight: gemm_interface.gemm(x, weight.t(), tuned=False)
    if "gelu" in case.name:
        return lambda x, weight, bias: gemm_interface.gemm_act(
            x, weight.t(), bias=bias, activation="gelu_tanh_approx", store_preact=False, tuned=False
        )[1]
    if "residual" in case.name:
        return lambda x, weight, residual: gemm_interface.gemm_add(x, weight.t(), residual, tuned=False)
    return None


def run_case(case: Case, builts: list[Built], options: argparse.Namespace, flush: torch.Tensor) -> dict[str, Any]:
    """Check every kernel of a case, then time those that are right and the baselines."""
    function, inputs = case.function(), made(case.arguments(), "cuda")
    exact = function(*(value.double() for value in inputs))
    contenders: dict[str, Callable[..., torch.Tensor]] = {"eager": function}
    wrong, errors = {}, {"eager": relative_error(function(*inputs), exact)}
    for built in builts:
        try:
            kernel = kernel_of(built.compiled)
            errors[built.name] = error = relative_error(kernel(*inputs), exact)
        except Exception as failure:  # noqa: BLE001
            wrong[built.name] = f"{type(failure).__name__}: {failure}"[:300]
            continue
        if error < TOLERANCE[case.dtype]:
            contenders[built.name] = kernel
        else:
            wrong[built.name] = f"relative error {error}"
    if quack := quack_of(case):
        contenders["quack"] = quack
    if case.fused and options.compile:
        torch._dynamo.reset()
        contenders["torch.compile"] = torch.compile(function, mode="max-autotune-no-cudagraphs")
    for name in list(contenders):
        if name in ("quack", "torch.compile"):
            try:
                errors[name] = relative_error(contenders[name](*inputs), exact)
            except Exception as failure:  # noqa: BLE001
                wrong[name] = f"{type(failure).__name__}: {failure}"[:300]
                del contenders[name]
    del exact
    race = Race(contenders, inputs)
    race.run(options.rounds, flush)
    return {"case": case.name, "samples": race.samples, "errors": errors, "wrong": wrong}


def median(samples: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(samples)


def row(found: dict[str, Any], builts: dict[str, Built], case: Case) -> str:
    """A line of the table."""
    times = {name: median(samples) for name, samples in found["samples"].items()}
    ours = [name for name in times if name in builts]
    if not ours:
        return f"| {case.name} | {times['eager']:.1f} | | | | | | |"
    first, best = ours[0], min(ours, key=lambda name: times[name])
    flops = 2 * case.m * case.n * case.k * (64 if "bmm" in case.name else 1)
    other = min((times[name] for name in times if name not in builts), default=math.nan)
    quack, compiled = (f"{times[name]:.1f}" if name in times else "–" for name in ("quack", "torch.compile"))
    cells = [
        f"{times['eager']:.1f}",
        quack,
        compiled,
        f"{times[first]:.1f}",
        f"{times[best]:.1f}",
        f"{builts[first].predicted_us:.0f}",
        f"{flops / times[best] / 1e6:.0f}",
        f"{times['eager'] / times[best]:.2f}",
        f"{other / times[best]:.2f}",
    ]
    return f"| {case.name} | {' | '.join(cells)} |"


def main() -> int:
    """Run the cases; 1 when a kernel was wrong or a case was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gemm.json and gemm.md")
    parser.add_argument("--only", default="*", help="cases by name, with * and ?")
    parser.add_argument("--configurations", type=int, default=MOST_CANDIDATES, help="of each case, the first so many")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="without torch.compile")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [case for case in cases() if any(fnmatch.fnmatch(case.name, only) for only in options.only.split(","))]
    with tempfile.TemporaryDirectory(prefix="cutesmith-") as scratch:
        built, refused = build(chosen, Path(scratch), options.configurations, options.jobs)
        for one in (one for one in built if one.failed):
            print(f"{one.name} does not compile: {one.failed}", flush=True)
        by_name = {one.name: one for one in built}
        flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        results: list[dict[str, Any]] = []
        lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
        for case in chosen:
            if case.name in refused:
                print(f"{case.name} refused: {refused[case.name]}", flush=True)
                continue
            found = run_case(case, [one for one in built if one.case == case and not one.failed], options, flush)
            found["configurations"] = {
                one.name: {**one.configuration.to_dict(), "predicted_us": one.predicted_us}
                for one in built
                if one.case == case
            }
            results.append(found)
            lines.append(row(found, by_name, case))
            print(lines[-1], found["wrong"] or "", flush=True)
    device = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rounds": options.rounds}
    (options.out / "gemm.json").write_text(json.dumps({**device, "refused": refused, "cases": results}))
    (options.out / "gemm.md").write_text("\n".join(lines) + "\n")
    return 1 if refused or any(found["wrong"] for found in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
