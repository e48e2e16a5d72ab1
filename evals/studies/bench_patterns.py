"""Time the generator's kernels of every pattern, and example kernels, on a GPU beside PyTorch's libraries.

    python evals/studies/bench_patterns.py attention convolutions memory --out evals/results/h200/patterns

Kernels are compiled first, in several processes and without the GPU. Each one's result is compared with float64, then
all of a case race on the same random normal inputs (`races.py`). OUT/patterns.json holds every sample in microseconds
with the time that was predicted, OUT/patterns.md the table. `--kernel NAME=FILE` adds a file to the cases whose names
begin with NAME.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from races import FLUSH_BYTES, Function, Race, Tensor, compile_ahead, kernel_of, made, relative_error  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from cutesmith.patterns.cutting.machine import H200  # noqa: E402
from cutesmith.patterns.match import whole_or_cut  # noqa: E402
from cutesmith.patterns.tracing.trace import trace_function  # noqa: E402

ARCH = "sm_90a"
EXAMPLES = ROOT / "examples_index" / "kernels"
MOST_WRONG = {
    torch.float32: 1e-5,
    torch.bfloat16: 6e-3,
    torch.float16: 2e-3,
}  # norm of the error over that of the result
half, single = torch.bfloat16, torch.float32


@dataclass(frozen=True)
class Case:
    """A function, its arguments (tensors and plain values), and how many of its configurations are tried.

    `exact` gives a part of the result in float64 and where it lies; by default all of it. `flops` and `moved` (bytes)
    are those that the function cannot do without. `example` is a kernel of the example index.
    """

    name: str
    function: Function
    arguments: tuple[Any, ...]
    configurations: int = 2
    flops: float = 0.0
    moved: float = 0.0
    baselines: dict[str, Function] = field(default_factory=dict)
    compiled: str = ""
    exact: Callable[..., tuple[Any, torch.Tensor]] | None = None
    example: str = ""


def products() -> Iterator[Case]:
    """Products of matrices with what follows them."""
    for n, dtype in ((4096, half), (8192, half), (4096, torch.float16)):
        tensors = (Tensor((n, n), dtype), Tensor((n, n), dtype, n**-0.5))
        yield Case(f"gemm {str(dtype)[6:]} {n}", lambda x, w: x @ w.t(), tensors, 3, 2 * n**3)
    square = (Tensor((4096, 4096), single), Tensor((4096, 4096), single, 1 / 64))
    yield Case("gemm float32 4096", lambda x, w: x @ w.t(), square, 6, 2 * 4096**3)
    yield Case("gemm float32 4096, weights by rows", lambda x, w: x @ w, square, 3, 2 * 4096**3)
    m, n, k = 8192, 14336, 4096
    x, gate, up = Tensor((m, k)), Tensor((n, k), half, 1 / 64), Tensor((n, k), half, 1 / 64)
    swiglu = Case("swiglu", lambda x, g, u: F.silu(x @ g.t()) * (x @ u.t()), (x, gate, up), 3, 4 * m * n * k)
    yield Case(**{**vars(swiglu), "compiled": "max-autotune-no-cudagraphs"})
    x, gate, up = Tensor((m, k)), Tensor((k, n), half, 1 / 64), Tensor((k, n), half, 1 / 64)
    yield Case(
        "swiglu, weights by rows", lambda x, g, u: F.silu(x @ g) * (x @ u), (x, gate, up), 0, 4 * m * n * k,
        compiled="max-autotune-no-cudagraphs", example="gated_gemm_sm90",
    )  # fmt: skip
    m, n, k = 8192, 16384, 4096
    yield Case(
        "bias and gelu", lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
        (Tensor((m, k)), Tensor((n, k), half, 1 / 64), Tensor((n,))), 3, 2 * m * n * k,
        compiled="max-autotune-no-cudagraphs", example="gemm_sm90_bias_gelu",
    )  # fmt: skip
    m, n, k = 8192, 4096, 4096
    tensors = (Tensor((m, k)), Tensor((n, k), half, 1 / 64), Tensor((m, n)))
    yield Case(
        "residual", lambda x, w, r: x @ w.t() + r, tensors, 3, 2 * m * n * k, compiled="max-autotune-no-cudagraphs"
    )


def _by(backend: SDPBackend, function: Function) -> Function:
    def inside(*arguments: Any) -> Any:
        with sdpa_kernel(backend):
            return function(*arguments)

    return inside


def _attention(width: int, length: int, batch: int, causal: bool) -> Case:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[Any, torch.Tensor]:
        rows = torch.cat([torch.arange(0, 200), torch.arange(length - 300, length)]).to(q.device)
        places = (slice(-1, None), slice(-2, None), rows)
        q, k, v = q[places].double(), k[-1:, -2:].double(), v[-1:, -2:].double()
        seen = torch.arange(length, device=q.device) <= rows[:, None] if causal else None
        return places, F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    name = f"{'causal ' if causal else ''}attention {width}, {length}"
    flops = 4 * batch * 16 * length**2 * width / (2 if causal else 1)
    cudnn, flash = (_by(b, function) for b in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION))
    return Case(
        name, function, (Tensor((batch, 16, length, width)),) * 3, 3, flops,
        baselines={"cuDNN": cudnn, "FlashAttention-2": flash}, exact=exact,
    )  # fmt: skip


def attention() -> Iterator[Case]:
    """bf16, 16 heads of 64 and 128 elements, causal and not; the operations are those that the mask leaves."""
    for width in (64, 128):
        for length, batch in ((1024, 16), (4096, 4), (8192, 4), (16384, 1)):
            for causal in (False, True):
                yield _attention(width, length, batch, causal)


IMAGES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3, 64 channels, 56 x 56": ((32, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    "3x3, 256 channels, 14 x 14": ((32, 256, 14, 14), (256, 256, 3, 3), {"padding": 1}),
    "1x1, 64 to 256 channels, 56 x 56": ((32, 64, 56, 56), (256, 64, 1, 1), {}),
    "7x7, stride 2, 3 to 64 channels, 224 x 224": ((32, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    "7x7 depthwise, 96 channels, 56 x 56": ((32, 96, 56, 56), (96, 1, 7, 7), {"padding": 3, "groups": 96}),
    "3x3 depthwise, 64 channels, 512 x 512": ((16, 64, 512, 512), (64, 1, 3, 3), {"padding": 1, "groups": 64}),
    "3x3x3, 32 to 64 channels, 16 x 64 x 64": ((8, 32, 16, 64, 64), (64, 32, 3, 3, 3), {"padding": 1}),
}


def convolutions() -> Iterator[Case]:
    """Convolution and ReLU; cuDNN may round float32 to tf32, as PyTorch lets it, and the kernels do not."""
    for dtype in (single, half):
        for name, (image, weights, options) in IMAGES.items():
            convolve: Function = F.conv2d if len(image) == 4 else F.conv3d

            def function(
                x: torch.Tensor, w: torch.Tensor, convolve: Function = convolve, o: Any = options
            ) -> torch.Tensor:
                return F.relu(convolve(x, w, **o))  # type: ignore[no-any-return]

            def exact(x: torch.Tensor, w: torch.Tensor, function: Function = function) -> tuple[Any, torch.Tensor]:
                return (slice(0, 2),), function(x[:2].double(), w.double())

            scale = torch.Size(weights[1:]).numel() ** -0.5
            tensors = Tensor(image, dtype), Tensor(weights, dtype, scale)
            yield Case(f"{name}, {str(dtype)[6:]}", function, tensors, 2, moved=2 * tensors[0].bytes, exact=exact)


def memory() -> Iterator[Case]:
    """What waits for memory: columns, scans, windows, transposes."""
    x = Tensor((8192, 16384), single)
    yield Case("sum of columns", lambda x: x.sum(0), (x,), moved=x.bytes, compiled="default")
    x = Tensor((32, 256, 64, 64), single)
    yield Case("softmax over channels", lambda x: x.softmax(1), (x,), moved=2 * x.bytes, compiled="default")
    x, b = Tensor((32, 256, 56, 56), single), Tensor((256,), single)
    norm = lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)  # noqa: E731
    yield Case("batch norm, training", norm, (x, b, b), moved=2 * x.bytes, compiled="default")
    yield Case(
        "group norm", lambda x, w, b: F.group_norm(x, 32, w, b), (x, b, b), moved=2 * x.bytes, compiled="default"
    )
    x = Tensor((32768, 4096), single)
    yield Case("cumsum of rows", lambda x: x.cumsum(1), (x,), moved=2 * x.bytes, compiled="default")
    x = Tensor((4096, 32768), single)
    yield Case("cumsum of columns", lambda x: x.cumsum(0), (x,), moved=2 * x.bytes, compiled="default")
    x = Tensor((16, 4 << 20), single)
    yield Case("cumsum of 16 long rows", lambda x: x.cumsum(1), (x,), moved=2 * x.bytes)
    x = Tensor((64, 64, 224, 224), single)
    moved = x.bytes * 5 // 4
    yield Case("max pooling 3x3, stride 2", lambda x: F.max_pool2d(x, 3, 2, 1), (x,), moved=moved, compiled="default")
    yield Case("mean pooling 3x3, stride 2", lambda x: F.avg_pool2d(x, 3, 2, 1), (x,), moved=moved, compiled="default")
    x = Tensor((16, 32, 64, 128, 128), single)
    yield Case("max pooling 3x3x3, stride 2", lambda x: F.max_pool3d(x, 3, 2, 1), (x,), moved=x.bytes * 9 // 8)
    x = Tensor((16, 64, 128, 128), single)
    bilinear = lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")  # noqa: E731
    yield Case("bilinear, twice the size", bilinear, (x,), moved=5 * x.bytes, compiled="default")
    x = Tensor((16384, 8192))
    yield Case("transpose, bfloat16", lambda x: x.t().contiguous(), (x,), 4, moved=2 * x.bytes, compiled="default")
    x = Tensor((8192, 8192), single)
    yield Case("transpose, float32", lambda x: x.t().contiguous(), (x,), 4, moved=2 * x.bytes, compiled="default")
    yield Case("relu(x.t() + y)", lambda x, y: torch.relu(x.t() + y), (x, x), 4, moved=3 * x.bytes, compiled="default")
    x = Tensor((64, 256, 56, 56))
    last = lambda x: x.permute(0, 2, 3, 1).contiguous()  # noqa: E731
    yield Case("channels last, bfloat16", last, (x,), 4, moved=2 * x.bytes, compiled="default")
    x, y = Tensor((8192, 8192), single), Tensor((8192, 4096), single)
    yield Case(
        "cat of rows", lambda x, y: torch.cat([x, y], 1), (x, y), moved=2 * (x.bytes + y.bytes), compiled="default"
    )


def examples() -> Iterator[Case]:
    """Kernels of the example index that no other study has."""
    x = Tensor((16384, 1024), single)
    top = lambda x, k, d: torch.topk(x, k, 1, d)  # noqa: E731
    yield Case(
        "sort_rows", lambda x, k, d: torch.sort(x, dim=1, descending=d, stable=True)[0][:, :k], (x, 64, True), 0,
        moved=x.bytes, baselines={"topk": top}, compiled="default", example="sort_rows",
    )  # fmt: skip
    x, mask = Tensor((4096, 16384), single), Tensor((4096, 16384), torch.bool)
    yield Case(
        "masked_cumsum_reverse", lambda x, mask: (x * mask).flip(1).cumsum(1).flip(1), (x, mask), 0,
        moved=2 * x.bytes + mask.bytes, compiled="default", example="masked_cumsum_reverse",
    )  # fmt: skip
    x, scale = Tensor((32, 64, 112, 112), single), Tensor((64, 1, 1), single)
    yield Case(
        "relu_max_pool", lambda x, s, b: F.max_pool2d(F.relu(x * s + b), 3, 2, 1), (x, scale, scale), 0,
        moved=x.bytes * 5 // 4, compiled="default", example="relu_max_pool",
    )  # fmt: skip


STUDIES: dict[str, Callable[[], Iterator[Case]]] = {
    "products": products, "attention": attention, "convolutions": convolutions, "memory": memory, "examples": examples,
}  # fmt: skip


@dataclass
class Built:
    """A case with its kernels' files, by name, and the time that was predicted for the generator's first one."""

    case: Case
    files: dict[str, Path]
    predicted_us: float = 0.0
    refused: str = ""


def build(case: Case, folder: Path, more: dict[str, Path]) -> Built:
    """Rendered configurations; a file that other cases have too is compiled once for each."""
    built = Built(case, {})
    if case.configurations:
        try:
            plan = whole_or_cut(trace_function(case.function, tuple(made(case.arguments, "cpu"))))
            built.predicted_us = H200.seconds(plan) * 1e6
            for configuration in plan.configurations(ARCH)[: case.configurations]:
                key = str(tuple(configuration.to_dict().values()))
                built.files[key] = _written(plan.render(configuration), case, folder)
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
            build(case, folder, {path.stem: path for name, path in added if case.name.startswith(name)})
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
