"""Time the generator's kernels of every pattern, and example kernels, on a GPU beside PyTorch's libraries.

    python evals/studies/bench_patterns.py attention convolutions memory --out evals/results/h200/patterns

Kernels are drafted and compiled first, in several processes and without the GPU. Each one's result is compared with
float64, then all of a case race on the same random normal inputs (`races.py`). OUT/patterns.json holds every sample in
microseconds with the time that was predicted, OUT/patterns.md the table and the geometric means of each study.
`--compile` adds torch.compile, which is compiled ahead as well (`inductor.py`). `level1` and `level2` are KernelBench
at full size, from the checkout that `CUTESMITH_KERNELBENCH` names. `--kernel NAME=FILE` adds a file to the cases whose
names begin with NAME. `--general` adds the form of products that serves every architecture, and that whose kernel
splits float32 itself.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import block_cases  # noqa: E402
import convolution_cases  # noqa: E402
import function_cases  # noqa: E402
import gradient_cases  # noqa: E402
import kernelbench_cases  # noqa: E402
import loop_cases  # noqa: E402
import memory_cases  # noqa: E402
import model_cases  # noqa: E402
import ordinary_networks  # noqa: E402
import ordinary_numbers  # noqa: E402
import pattern_cases  # noqa: E402
import recurrent_cases  # noqa: E402
import row_cases  # noqa: E402
import torch  # noqa: E402
from inductor import compile_baselines, compiled, inputs_of  # noqa: E402
from pattern_cases import Case  # noqa: E402
from races import FLUSH_BYTES, Function, Race, Tensor, compile_ahead, kernel_of, made, relative_error  # noqa: E402

from cutesmith.devices import parse_arch  # noqa: E402
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration  # noqa: E402
from cutesmith.patterns.contraction.legality import refusals  # noqa: E402
from cutesmith.patterns.contraction.plan import ContractionPlan  # noqa: E402
from cutesmith.patterns.contraction.proposals import proposals  # noqa: E402
from cutesmith.patterns.cutting.machine import H200  # noqa: E402
from cutesmith.patterns.cutting.rewriting import with_tf32  # noqa: E402
from cutesmith.patterns.graph.attributes import Contraction  # noqa: E402
from cutesmith.patterns.graph.nodes import Graph  # noqa: E402
from cutesmith.patterns.match import whole_or_cut  # noqa: E402
from cutesmith.patterns.tracing.trace import trace_function, trace_problem  # noqa: E402
from cutesmith.patterns.writing.calling import called_as  # noqa: E402

ARCH = "sm_90a"
EXAMPLES = ROOT / "examples_index" / "kernels"
LONGEST_CASE = 90
"""Seconds after which its process is ended."""
MOST_WRONG = {
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.bfloat16: 6e-3,
    torch.float16: 2e-3,
    torch.float8_e4m3fn: 6e-3,
}  # norm of the error over that of the result


ROUNDED = 5e-4
"""Of a function whose float32 factors may be rounded to tf32, also where cuDNN did not: 2.0e-4 to 2.9e-4 were seen."""

MOST_OF_EAGERS = 2.0
"""Times eager's own error, which is that of tf32 where it convolves float32, as PyTorch's flag for cuDNN lets it."""

PARTS = (memory_cases.columns, memory_cases.scans, memory_cases.pooling, memory_cases.moves)
WHOLE = "products attention examples kernelbench unaligned llm epilogues layers float8 blocks majors float32"
CONVOLUTIONS = "convolutions points taps images depthwise"
TF32 = (pattern_cases.tf32_products, convolution_cases.tf32_images)
ORDINARY = (*ordinary_networks.PARTS, *ordinary_numbers.PARTS)
STUDIES: dict[str, Callable[[], Iterator[Case]]] = {
    **{name: getattr(pattern_cases, name) for name in WHOLE.split()},
    **{name: getattr(convolution_cases, name) for name in CONVOLUTIONS.split()},
    "tf32": lambda: chain.from_iterable(part() for part in TF32),
    **{part.__name__: part for part in PARTS},
    "memory": lambda: chain.from_iterable(part() for part in PARTS),
    **{part.__name__: part for part in model_cases.PARTS},
    "models": lambda: chain.from_iterable(part() for part in model_cases.PARTS),
    **{part.__name__: part for part in gradient_cases.PARTS},
    "gradients": lambda: chain.from_iterable(part() for part in gradient_cases.PARTS),
    **{part.__name__: part for part in (*function_cases.PARTS, *row_cases.PARTS, *ORDINARY)},
    "ordinary": lambda: chain.from_iterable(part() for part in ORDINARY),
    "blocks_of_models": block_cases.blocks,
    "recurrent": recurrent_cases.recurrent,
    "loops": loop_cases.loops,
    **{f"level{number}": kernelbench_cases.level(number) for number in (1, 2, 3)},
}


@dataclass
class Built:
    """Files of a case's kernels, by name, and the time that was predicted for the generator's first one."""

    files: dict[str, Path] = field(default_factory=dict)
    predicted_us: float = 0.0
    refused: str = ""
    is_rounded: bool = False
    """Whether PyTorch's flags allow that factors of float32 are rounded to tf32."""


_chosen: list[tuple[str, Case]] = []
"""Studies and cases, which the processes that draft were forked with: functions do not travel."""


def build(number: int, folder: Path, more: dict[str, Path], general: bool) -> Built:
    """Rendered configurations; a file that other cases have too is compiled once for each."""
    torch.set_num_threads(1)
    case, built = _chosen[number][1], Built()
    if case.configurations:
        try:
            graph = graph_of(case)
            products = (node for node in graph.nodes() if node.op == "contract")
            built.is_rounded = any(Contraction.of(node).tf32 for node in products)
            plan = whole_or_cut(graph)
            built.predicted_us = H200.seconds(plan) * 1e6
            for configuration in plan.configurations(ARCH)[: case.configurations]:
                key = str(tuple(configuration.to_dict().values()))
                source = called_as(plan.render(configuration), plan.graph.call)
                built.files[key] = _written(source, case, folder)
            if general and isinstance(plan, ContractionPlan):
                tiles = [c for c in plan.configurations(ARCH) if isinstance(c, HopperConfiguration)]
                if tiles and tiles[0].ahead and (split := next((c for c in tiles if c.splits), None)):
                    built.files["split by the kernel"] = _written(plan.render(split), case, folder)
                sm = parse_arch(ARCH).sm
                other = next(c for c in proposals(plan.problem) if not any(refusals(plan.problem, c, sm)))
                built.files["general form"] = _written(plan.render(other), case, folder)
        except Exception as error:  # noqa: BLE001
            built.refused = f"{type(error).__name__}: {error}"[:400]
    if case.example:
        more = {**more, case.example: EXAMPLES / f"{case.example}.py"}
    for name, path in more.items():
        built.files[name] = _written(path.read_text(), case, folder)
    return built


def graph_of(case: Case) -> Graph:
    """Traced without the GPU, on tensors without values."""
    if case.problem:
        return trace_problem(case.problem)
    graph = trace_function(case.function, tuple(made(case.arguments, "cpu")))
    return with_tf32(graph) if case.tf32 else graph


def _written(source: str, case: Case, folder: Path) -> Path:
    """One file for each code and case."""
    code = hashlib.sha256((case.name + ast.unparse(ast.parse(source))).encode()).hexdigest()[:16]
    path = folder / f"k{code}.py"
    path.write_text(source)
    return path


def numbers_of(result: Any) -> list[torch.Tensor]:
    """Those results that are floating-point numbers, else the first: places of equal values may be any beside them."""
    results = list(result) if isinstance(result, tuple | list) else [result]
    return [found for found in results if found.is_floating_point()] or results[:1]


def errors_of(case: Case, inputs: Sequence[Any], contenders: dict[str, Function]) -> dict[str, float | str]:
    """The largest relative error of each one's results against float64, or why it does not run.

    Of a case that says what is exact, its part of the first result counts.
    """
    if case.exact:
        places, part = case.exact(*inputs)
        exact = [part]
    else:
        places = ()
        doubles = (x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs)
        exact = numbers_of(case.function(*doubles))
    found: dict[str, float | str] = {}
    for name, run in contenders.items():
        try:
            results = numbers_of(run(*inputs))[: len(exact)]
            found[name] = max(relative_error(one[places], of) for one, of in zip(results, exact, strict=True))
        except Exception as error:  # noqa: BLE001
            found[name] = f"{type(error).__name__}: {error}"[:300]
    return found


def run_case(
    case: Case, built: Built, failed: dict[Path, str], options: argparse.Namespace, flush: torch.Tensor
) -> dict[str, Any]:
    """Check every kernel of a case, then time those that are right and the baselines."""
    inputs = inputs_of(case)
    kernels = {name: kernel_of(path) for name, path in built.files.items() if path not in failed}
    contenders = {**kernels, "eager": case.function, **case.baselines}
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    if case.compiled and options.compile and case.name not in options.uncompiled:
        contenders["torch.compile"] = compiled(case)
    if case.moved:
        source = torch.empty(int(case.moved) // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        contenders["copy"] = lambda *_: target.copy_(source)
    errors = errors_of(case, inputs, {name: run for name, run in contenders.items() if name != "copy"})
    most = (
        case.tolerance
        or MOST_WRONG[next(a.dtype for a in case.arguments if isinstance(a, Tensor) and a.dtype in MOST_WRONG)]
    )
    if isinstance(own := errors["eager"], float):
        most = max(most, MOST_OF_EAGERS * own)
    if built.is_rounded:
        most = max(most, ROUNDED)
    for name, error in errors.items():
        if isinstance(error, str) or (name in kernels and not error < most):
            del contenders[name]
    race = Race(contenders, inputs)
    race.run(options.rounds, flush)
    wrong = {name: error for name, error in errors.items() if name not in contenders}
    wrong |= {name: failed[path] for name, path in built.files.items() if path in failed}
    return {
        "case": case.name, "flops": case.flops, "moved": case.moved, "predicted_us": built.predicted_us,
        "refused": built.refused, "kernels": list(kernels), "errors": errors, "wrong": wrong, "samples": race.samples,
    }  # fmt: skip


Whole = Sequence[tuple[tuple[str, Case], Built]]
OVER = "the time limit was over"


def race_all(
    whole: Whole, first: int, failed: dict[Path, str], options: argparse.Namespace, begun: float, sender: Connection
) -> None:
    """Send what each case gives, from the first one on; ends early where a kernel has broken the context."""
    torch.set_num_threads(1)  # the others did not survive the fork, and weights are drawn on the CPU
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = True
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for (study, case), built in whole[first:]:
        about = {"study": study, "case": case.name, "device": torch.cuda.get_device_name(), "wrong": {}}
        if time.monotonic() - begun > options.time_limit:
            sender.send({**about, "refused": OVER})
            continue
        try:
            found = run_case(case, built, failed, options, flush)
        except Exception as error:  # noqa: BLE001
            found = {"refused": f"{type(error).__name__}: {error}"[:400]}
        sender.send(about | found)
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except Exception:  # noqa: BLE001
            return


def races_of(
    whole: Whole, failed: dict[Path, str], options: argparse.Namespace, begun: float
) -> Iterator[dict[str, Any]]:
    """What each case gives; another process goes on after a case that ends one, or lets it hang."""
    context, done = multiprocessing.get_context("fork"), 0
    while done < len(whole):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=race_all, args=(whole, done, failed, options, begun, sender))
        child.start()
        sender.close()
        why = f"no answer after {LONGEST_CASE} s"
        try:
            while done < len(whole) and receiver.poll(LONGEST_CASE):
                yield receiver.recv()
                done += 1
                why = ""
        except EOFError:
            why = why and "its process ended"
        child.kill()
        child.join()
        if why and done < len(whole):
            study, case = whole[done][0]
            yield {"study": study, "case": case.name, "refused": why, "wrong": {}}
            done += 1


HEADINGS = "case|predicted|first|best|which|others|over the best other|of a copy's rate|rate"


@dataclass
class Outcome:
    """What a case gives the geometric means: of its first kernel, which is what is delivered where nothing is timed."""

    found: dict[str, Any]

    def __post_init__(self) -> None:
        times = {name: statistics.median(samples) for name, samples in self.found["samples"].items()}
        self.copy = times.pop("copy", None)
        self.ours = {name: times.pop(name) for name in self.found["kernels"] if name in times}
        self.others = times

    @property
    def first(self) -> float | None:
        """The time of the first choice; None where it is wrong."""
        return next(iter(self.ours.values()), None)

    @property
    def means(self) -> dict[str, float]:
        """Ratios by name."""
        first, best = self.first, min(self.ours.values(), default=0.0)
        if first is None:
            return {}
        found = {"measured over predicted": first / self.found["predicted_us"]} if self.found["predicted_us"] else {}
        if self.others:
            fastest = min(self.others.values())
            found |= {"first over the best other": fastest / first, "best over the best other": fastest / best}
        return found | ({"best of a copy's rate": self.copy / best} if self.copy else {})

    def row(self) -> str:
        """A line of the table."""
        found, means = self.found, self.means
        cells, rate = [f"{found['predicted_us']:.0f}"], ""
        if self.first is None:
            cells += ["–", "–", "–"]
        else:
            best = min(self.ours, key=self.ours.__getitem__)
            rate = f"{found['flops'] / self.ours[best] / 1e6:.0f} TFLOP/s" if found["flops"] else ""
            rate = rate or (f"{found['moved'] / self.ours[best] / 1e6:.2f} TB/s" if found["moved"] else "")
            cells += [f"{self.first:.1f}", f"{self.ours[best]:.1f}", best]
        cells.append(", ".join(f"{name} {time:.1f}" for name, time in self.others.items()))
        for name in ("best over the best other", "best of a copy's rate"):
            cells.append(f"{means[name]:.2f}" if name in means else "–")
        return f"| {found['case']} | {' | '.join([*cells, rate])} |"


def summary(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """For each study and ratio the geometric mean, and the least with its case; and what has no time."""
    for study in dict.fromkeys(found["study"] for found in results):
        of_study = [found for found in results if found["study"] == study]
        outcomes = [Outcome(found) for found in of_study if found.get("samples")]
        ratios: dict[str, list[tuple[float, str]]] = {}
        for outcome in outcomes:
            for name, ratio in outcome.means.items():
                ratios.setdefault(name, []).append((ratio, outcome.found["case"]))
        timed = sum(outcome.first is not None for outcome in outcomes)
        yield f"{study}: {timed} of {len(of_study)} cases timed"
        for name, found in ratios.items():
            mean = statistics.geometric_mean([ratio for ratio, _ in found])
            yield f"    {name}: {mean:.2f}; least {min(found)[0]:.2f} ({min(found)[1]}), most {max(found)[0]:.2f}"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=list(STUDIES))
    parser.add_argument("--out", type=Path, required=True, help="folder for patterns.json and patterns.md")
    parser.add_argument("--only", action="append", metavar="NAME", help="cases whose names begin so")
    parser.add_argument("--configurations", type=int, help="of each case, in place of its own number")
    parser.add_argument(
        "--kernel", action="append", default=[], metavar="NAME=FILE", help="another kernel of those cases"
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--general", action="store_true", help="also other forms of products")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, where a case names its mode")
    parser.add_argument("--compile-jobs", type=int, default=8, help="processes of torch.compile, which share the GPU")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no case begins")
    parser.add_argument("--no-gpu", action="store_true", help="render and compile alone")
    return parser.parse_args()


def main() -> int:
    """Run the studies; 1 where a kernel was wrong or a case was refused."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    chosen = [(study, case) for study in options.studies for case in STUDIES[study]()]
    chosen = [(study, case) for study, case in chosen if case.name.startswith(tuple(options.only or [""]))]
    if options.configurations:
        chosen = [(study, replace(case, configurations=options.configurations)) for study, case in chosen]
    _chosen[:] = chosen
    added = [(name, Path(file)) for name, _, file in (word.partition("=") for word in options.kernel)]
    with tempfile.TemporaryDirectory(prefix="cutesmith-") as scratch:
        tasks = [
            (at, Path(scratch), {p.stem: p for name, p in added if case.name.startswith(name)}, options.general)
            for at, (_, case) in enumerate(chosen)
        ]
        with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
            builts = pool.starmap(build, tasks, chunksize=1)
        print(f"drafted after {time.monotonic() - begun:.0f} s", flush=True)
        whole = list(zip(chosen, builts, strict=True))
        files = [(path, case.arguments) for (_, case), built in whole for path in built.files.values()]
        failed = compile_ahead(files, options.jobs)
        for (study, case), built in whole:
            problems = [f"{name}: {failed[path]}" for name, path in built.files.items() if path in failed]
            if problems or built.refused or not built.files:
                print(f"{study}, {case.name}: {len(built.files)} kernels", built.refused, *problems, flush=True)
        print(f"{len(files)} kernels compiled after {time.monotonic() - begun:.0f} s", flush=True)
        if options.no_gpu:
            return 0
        options.uncompiled = []
        if options.compile:
            cases, caches = [case for _, case in chosen], Path(scratch) / "inductor"
            for name, code in compile_baselines(cases, options.compile_jobs, caches).items():
                options.uncompiled += [] if code else [name]
                print(f"{name}: torch.compile", "ended with" if code else "took too long", code or "", flush=True)
            print(f"torch.compile's kernels compiled after {time.monotonic() - begun:.0f} s", flush=True)
        lines = [f"| {HEADINGS.replace('|', ' | ')} |", "|---" * len(HEADINGS.split("|")) + "|"]
        results: list[dict[str, Any]] = []
        about = {"device": "", "torch": torch.__version__, "rounds": options.rounds}
        for found in races_of(whole, failed, options, begun):
            results.append(found)
            if found.get("samples"):
                lines.append(Outcome(found).row())
                print(lines[-1], found["wrong"] or "", f"{time.monotonic() - begun:.0f} s", flush=True)
            elif found["refused"] != OVER:
                print(found["case"], found["refused"], flush=True)
            about["device"] = found.pop("device", "") or about["device"]
            (options.out / "patterns.json").write_text(json.dumps({**about, "cases": results}) + "\n")
        means = list(summary(results))
        print(*means, sep="\n", flush=True)
        (options.out / "patterns.md").write_text("\n".join([*lines, "", *means]) + "\n")
    return 1 if any(found["refused"] or found["wrong"] for found in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
