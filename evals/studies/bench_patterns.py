"""Time the generator's kernels of every pattern, and example kernels, on a GPU beside PyTorch's libraries.

    python evals/studies/bench_patterns.py attention convolutions memory --out evals/results/h200/patterns

Kernels are compiled first, in several processes and without the GPU. Each one's result is compared with float64, then
all of a case race on the same random normal inputs (`races.py`). OUT/patterns.json holds every sample in microseconds
with the time that was predicted, OUT/patterns.md the table. `--kernel NAME=FILE` adds a file to the cases whose names
begin with NAME. `--general` adds the form of products that serves every architecture, and that whose kernel splits
float32 itself.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from pattern_cases import STUDIES, Case  # noqa: E402
from races import FLUSH_BYTES, Function, Race, Tensor, compile_ahead, kernel_of, made, relative_error  # noqa: E402

from cutesmith.devices import parse_arch  # noqa: E402
from cutesmith.patterns.contraction.legality import refusals  # noqa: E402
from cutesmith.patterns.contraction.plan import ContractionPlan  # noqa: E402
from cutesmith.patterns.contraction.proposals import proposals  # noqa: E402
from cutesmith.patterns.cutting.machine import H200  # noqa: E402
from cutesmith.patterns.match import whole_or_cut  # noqa: E402
from cutesmith.patterns.pattern_plan import HopperConfiguration  # noqa: E402
from cutesmith.patterns.tracing.trace import trace_function  # noqa: E402

ARCH = "sm_90a"
EXAMPLES = ROOT / "examples_index" / "kernels"
MOST_WRONG = {
    torch.float32: 1e-5,
    torch.bfloat16: 6e-3,
    torch.float16: 2e-3,
}  # norm of the error over that of the result


@dataclass
class Built:
    """A case with its kernels' files, by name, and the time that was predicted for the generator's first one."""

    case: Case
    files: dict[str, Path]
    predicted_us: float = 0.0
    refused: str = ""


def build(case: Case, folder: Path, more: dict[str, Path], options: argparse.Namespace) -> Built:
    """Rendered configurations; a file that other cases have too is compiled once for each."""
    built = Built(case, {})
    if case.configurations:
        try:
            plan = whole_or_cut(trace_function(case.function, tuple(made(case.arguments, "cpu"))))
            built.predicted_us = H200.seconds(plan) * 1e6
            for configuration in plan.configurations(ARCH)[: case.configurations]:
                key = str(tuple(configuration.to_dict().values()))
                built.files[key] = _written(plan.render(configuration), case, folder)
            if options.general and isinstance(plan, ContractionPlan):
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


def _written(source: str, case: Case, folder: Path) -> Path:
    """One file for each code and case."""
    code = hashlib.sha256((case.name + ast.unparse(ast.parse(source))).encode()).hexdigest()[:16]
    path = folder / f"k{code}.py"
    path.write_text(source)
    return path


def first(result: Any) -> torch.Tensor:
    """Of several results the first counts."""
    return result[0] if isinstance(result, tuple | list) else result


def errors_of(case: Case, inputs: Sequence[Any], contenders: dict[str, Function]) -> dict[str, float | str]:
    """The relative error of each against float64, or why it does not run."""
    if case.exact:
        places, exact = case.exact(*inputs)
    else:
        places = ()
        exact = first(
            case.function(*(x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs))
        )
    found: dict[str, float | str] = {}
    for name, run in contenders.items():
        try:
            found[name] = relative_error(first(run(*inputs))[places], exact)
        except Exception as error:  # noqa: BLE001
            found[name] = f"{type(error).__name__}: {error}"[:300]
    return found


def run_case(built: Built, failed: dict[Path, str], rounds: int, flush: torch.Tensor) -> dict[str, Any]:
    """Check every kernel of a case, then time those that are right and the baselines."""
    case, inputs = built.case, made(built.case.arguments, "cuda")
    kernels = {name: kernel_of(path) for name, path in built.files.items() if path not in failed}
    contenders = {**kernels, "eager": case.function, **case.baselines}
    if case.compiled:
        torch._dynamo.reset()
        contenders["torch.compile"] = torch.compile(case.function, mode=case.compiled)
    if case.moved:
        source = torch.empty(int(case.moved) // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        contenders["copy"] = lambda *_: target.copy_(source)
    errors = errors_of(case, inputs, {name: run for name, run in contenders.items() if name != "copy"})
    least = MOST_WRONG[next(a.dtype for a in case.arguments if isinstance(a, Tensor))]
    for name, error in errors.items():
        if isinstance(error, str) or (name in kernels and not error < least):
            del contenders[name]
    race = Race(contenders, inputs)
    race.run(rounds, flush)
    wrong = {name: error for name, error in errors.items() if name not in contenders}
    wrong |= {name: failed[path] for name, path in built.files.items() if path in failed}
    return {
        "case": case.name, "flops": case.flops, "moved": case.moved, "predicted_us": built.predicted_us,
        "refused": built.refused, "kernels": list(kernels), "errors": errors, "wrong": wrong, "samples": race.samples,
    }  # fmt: skip


HEADINGS = "case|predicted|first|best|which|others|over the best other|rate"


def row(found: dict[str, Any]) -> str:
    """A line of the table."""
    times = {name: statistics.median(samples) for name, samples in found["samples"].items()}
    ours = [name for name in found["kernels"] if name in times]
    others = {name: time for name, time in times.items() if name not in ours}
    libraries = {name: time for name, time in others.items() if name != "copy"}
    cells = [f"{found['predicted_us']:.0f}"]
    if ours:
        best = min(ours, key=times.__getitem__)
        rate = f"{found['flops'] / times[best] / 1e6:.0f} TFLOP/s" if found["flops"] else ""
        rate = rate or (f"{found['moved'] / times[best] / 1e6:.2f} TB/s" if found["moved"] else "")
        over = f"{min(libraries.values()) / times[best]:.2f}" if libraries else "–"
        cells += [f"{times[ours[0]]:.1f}", f"{times[best]:.1f}", best]
    else:
        rate, over, cells = "", "–", [*cells, "–", "–", "–"]
    cells += [", ".join(f"{name} {time:.1f}" for name, time in others.items()), over, rate]
    return f"| {found['case']} | {' | '.join(cells)} |"


def main() -> int:
    """Run the studies; 1 where a kernel was wrong or a case was refused."""
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
    parser.add_argument("--no-gpu", action="store_true", help="render and compile alone")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    chosen = [case for study in options.studies for case in STUDIES[study]()]
    chosen = [case for case in chosen if case.name.startswith(tuple(options.only or [""]))]
    if options.configurations:
        chosen = [replace(case, configurations=options.configurations) for case in chosen]
    added = [(name, Path(file)) for name, _, file in (word.partition("=") for word in options.kernel)]
    with tempfile.TemporaryDirectory(prefix="cutesmith-") as scratch:
        folder = Path(scratch)
        builts = [
            build(case, folder, {path.stem: path for name, path in added if case.name.startswith(name)}, options)
            for case in chosen
        ]
        failed = compile_ahead([(path, b.case.arguments) for b in builts for path in b.files.values()], options.jobs)
        for built in builts:
            problems = [f"{name}: {failed[path]}" for name, path in built.files.items() if path in failed]
            print(f"{built.case.name}: {len(built.files)} kernels", built.refused, *problems, flush=True)
        print(f"compiled after {time.monotonic() - begun:.0f} s", flush=True)
        if options.no_gpu:
            return 0
        torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = True
        flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        results, lines = [], [f"| {HEADINGS.replace('|', ' | ')} |", "|---" * len(HEADINGS.split("|")) + "|"]
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rounds": options.rounds}
        for built in builts:
            try:
                found = run_case(built, failed, options.rounds, flush)
            except Exception as error:  # noqa: BLE001
                found = {"case": built.case.name, "refused": f"{type(error).__name__}: {error}"[:400]}
                print(built.case.name, found["refused"], flush=True)
                results.append(found)
                continue
            results.append(found)
            lines.append(row(found))
            print(lines[-1], found["wrong"] or "", f"{time.monotonic() - begun:.0f} s", flush=True)
            (options.out / "patterns.json").write_text(json.dumps({**about, "cases": results}) + "\n")
        (options.out / "patterns.md").write_text("\n".join(lines) + "\n")
    return 1 if any(found["refused"] or found["wrong"] for found in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
