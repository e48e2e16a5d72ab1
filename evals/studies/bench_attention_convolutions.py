"""Time the generator's attention and convolutions on a GPU beside PyTorch's libraries.

    python evals/studies/bench_attention_convolutions.py attention convolutions --out evals/results/h200/attention

Each kernel's result is compared with float64 first. The kernels of some configurations and the libraries are timed in
turn on the same random normal inputs: L2 is flushed before each launch, and launches are queued behind a sleep, so that
the device never waits for the host. OUT/NAME.json holds every sample in microseconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cutesmith.patterns.match import whole_or_cut  # noqa: E402
from cutesmith.patterns.tracing.trace import trace_function  # noqa: E402

ARCH = "sm_90a"
FLUSH_BYTES = 256 << 20  # over four times the L2 of an H200
ROUNDS, WARM_UP, SLEEP_CLOCKS = 9, 3, 200_000
MOST_WRONG = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # the largest error over the largest result
BATCHES = {1024: 16, 4096: 4, 8192: 4}
IMAGES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3, 64 channels, 56 x 56": ((32, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    "3x3, 256 channels, 14 x 14": ((32, 256, 14, 14), (256, 256, 3, 3), {"padding": 1}),
    "1x1, 64 to 256 channels, 56 x 56": ((32, 64, 56, 56), (256, 64, 1, 1), {}),
    "7x7, stride 2, 3 to 64 channels, 224 x 224": ((32, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    "7x7 depthwise, 96 channels, 56 x 56": ((32, 96, 56, 56), (96, 1, 7, 7), {"padding": 3, "groups": 96}),
}

Run = Callable[[], torch.Tensor]


def kernels(function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], most: int) -> dict[str, Any]:
    """The compiled files of the first configurations, by configuration."""
    plan = whole_or_cut(trace_function(function, inputs))
    found = {}
    for configuration in plan.configurations(ARCH)[:most]:
        path = Path(tempfile.mkdtemp()) / "kernel.py"
        path.write_text(plan.render(configuration))
        spec = importlib.util.spec_from_file_location("generated_kernel", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found[str(tuple(configuration.to_dict().values()))] = module
    return found


def check(ours: torch.Tensor, exact: torch.Tensor) -> None:
    """Raise AssertionError where the result is further from float64 than its dtype allows."""
    error = float((ours.double() - exact).abs().max() / exact.abs().max())
    assert error < MOST_WRONG[ours.dtype], f"off by {error:.2e} of the largest result"


def timed(runs: dict[str, Run]) -> dict[str, list[float]]:
    """Microseconds of each run in each round, all in turn."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for run in runs.values():
        for _ in range(WARM_UP):
            run()
    torch.cuda.synchronize()
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            torch.cuda._sleep(SLEEP_CLOCKS)
            start.record()
            run()
            end.record()
            events[name].append((start, end))
    torch.cuda.synchronize()
    return {name: [a.elapsed_time(b) * 1e3 for a, b in pairs] for name, pairs in events.items()}


def by_backend(backend: SDPBackend, run: Run) -> Run:
    def inside() -> torch.Tensor:
        with sdpa_kernel(backend):
            return run()

    return inside


def attention() -> Iterator[dict[str, Any]]:
    """bf16, 16 heads, 64 and 128 elements, causal and not; also the rate over the products that the mask leaves."""
    for width, causal in ((64, False), (64, True), (128, False), (128, True)):

        def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = causal) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        modules: dict[str, Any] = {}
        for length, batch in BATCHES.items():
            shape = (batch, 16, length, width)
            inputs = tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
            modules = modules or kernels(function, inputs, 3)
            part = [x[:1, :2, :1000] for x in inputs]
            exact = function(*(x.double() for x in part))
            for module in modules.values():
                check(module.kernel_fn(*part), exact)
            runs: dict[str, Run] = {name: lambda m=m, i=inputs: m.kernel_fn(*i) for name, m in modules.items()}  # type: ignore[misc]
            eager = lambda i=inputs: function(*i)  # noqa: E731
            runs["FlashAttention-2"] = by_backend(SDPBackend.FLASH_ATTENTION, eager)
            runs["cuDNN"] = by_backend(SDPBackend.CUDNN_ATTENTION, eager)
            flops = 4 * batch * 16 * length**2 * width / (2 if causal else 1)
            name = f"width {width}, {length} queries and keys{', causal' if causal else ''}"
            yield {"name": name, "batch": batch, "flops": flops, "samples": timed(runs)}


def convolutions() -> Iterator[dict[str, Any]]:
    """Convolution and ReLU; cuDNN may round float32 to tf32, as PyTorch lets it, and the kernels do not."""
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = True
    for dtype in (torch.float32, torch.bfloat16):
        for name, (image, weights, options) in IMAGES.items():

            def function(x: torch.Tensor, w: torch.Tensor, options: dict[str, Any] = options) -> torch.Tensor:
                return F.relu(F.conv2d(x, w, **options))

            scale = (weights[1] * weights[2] * weights[3]) ** -0.5
            inputs = tuple(
                (torch.randn(shape, device="cuda") * factor).to(dtype)
                for shape, factor in ((image, 1), (weights, scale))
            )
            exact = function(inputs[0][:2].double(), inputs[1].double())
            runs: dict[str, Run] = {}
            for key, module in kernels(function, inputs, 2).items():
                check(module.kernel_fn(*inputs)[:2], exact)
                runs[key] = lambda m=module, i=inputs: m.kernel_fn(*i)
            runs["cuDNN"] = lambda i=inputs: function(*i)
            yield {"name": name, "dtype": str(dtype), "samples": timed(runs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=["attention", "convolutions"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the samples")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for study in options.studies:
        rows = []
        for row in globals()[study]():
            rows.append(row)
            medians = {name: f"{statistics.median(samples):.0f}" for name, samples in row["samples"].items()}
            print(row["name"], row.get("dtype", ""), medians, flush=True)
        result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
        (options.out / f"{study}.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
