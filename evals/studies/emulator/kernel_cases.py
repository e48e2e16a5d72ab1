"""The kernels on which the emulated GPU is compared with a real one: (kernel, shape, dtype), each with its inputs.

A case draws its inputs on the CPU with a seed of its own, so that both sides have the same values, before any device is
active; its function is made while one is: CUDA, or the emulated GPU. Inputs of tasks are made smaller; a recording
keeps how, because the rule of the judge that chooses the sizes changes.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[3]), str(Path(__file__).resolve().parent)]

import torch  # noqa: E402
from ampere_examples import example_runs  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

EVALS = Path(__file__).resolve().parents[2]
ELEMENTS = 1 << 14  # of a task's inputs: outputs are committed
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
QUACK_SHAPES = ((37, 256), (8, 1000), (4, 4096), (2, 32768))
GEMM_SHAPES = ((128, 128, 64), (128, 256, 128), (64, 64, 32))

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One kernel on one set of inputs: `inputs()` draws CPU tensors, `function()` gives what runs on device tensors."""

    name: str
    arch: str
    inputs: Callable[[], list[Any]]
    function: Callable[[], Function]
    most_elements: int = sys.maxsize  # of the inputs

    def draw(self, sizes: dict[int, int] | None = None) -> tuple[list[Any], dict[int, int]]:
        """The inputs, and the sizes that were made smaller in them: those given, else as `most_elements` asks for.

        The seed comes from the name, so that a case draws the same values wherever it runs.
        """
        from cutesmith.judge.reference_side.cases import resize, smaller_sizes

        torch.manual_seed(int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:4], "little"))
        values = self.inputs()
        if sizes is None:
            sizes = next(smaller_sizes(values, self.most_elements), {})
        return resize(values, sizes), sizes


def all_cases() -> list[Case]:
    """Every case that can be built here; those of packages that are not installed are left out."""
    made = (task_cases, twin_cases, own_cases, quack_cases, gemm_cases, hopper_cases, example_cases)
    return [case for cases in made for case in cases()]


def task_cases() -> Iterator[Case]:
    """The offline generator's first configuration for each task, on its own inputs with few rows."""
    for path in sorted(EVALS.glob("tasks/level*/*.py")):
        task = Task(path)
        yield Case(f"{path.parent.name}/{path.stem}", "sm_90a", task.inputs, task.function, ELEMENTS)


class Float32Draws(TorchFunctionMode):
    """Random 16-bit tensors are drawn as float32 and rounded: versions of PyTorch agree on those."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func in (torch.randn, torch.rand) and named.get("dtype") in (torch.bfloat16, torch.float16):
            dtype = named.pop("dtype")
            return func(*args, **named, dtype=torch.float32).to(dtype)
        return func(*args, **named)


@dataclass
class Task:
    path: Path
    kernel: Path | None = None

    def inputs(self) -> list[Any]:
        """Drawn on the CPU; the kernel file is written here, because tracing has a device of its own."""
        from cutesmith.patterns.generation.drafting import draft_kernels
        from cutesmith.problems.loading import load_file
        from cutesmith.recording.facade import cuda_as_cpu

        source = draft_kernels(self.path, "sm_90a", limit=1).kernels[0].source
        self.kernel = Path(tempfile.mkdtemp(prefix="emulator-case-")) / f"{self.path.stem}.py"
        self.kernel.write_text(source)
        torch.manual_seed(int.from_bytes(self.path.stem.encode()[:4], "little"))
        with cuda_as_cpu(), Float32Draws():
            return load_file(self.path).get_inputs()

    def function(self) -> Function:
        """The generated kernel."""
        from cutesmith.problems.loading import load_file

        assert self.kernel is not None, "inputs come first"
        return load_file(self.kernel).kernel_fn


def twin_cases() -> Iterator[Case]:
    """The corrected twins of the planted faults, those for other architectures than sm_90a left out."""
    for path in sorted(EVALS.glob("planted_faults/*.py")):
        if '\nARCH = "' in path.read_text():
            continue
        yield Case(f"planted_faults/{path.stem}", "sm_90a", partial(_twin_inputs, path), partial(_twin, path))


def _twin_inputs(path: Path) -> list[Any]:
    from cutesmith.problems.loading import load_file
    from cutesmith.recording.facade import cuda_as_cpu

    with cuda_as_cpu(), Float32Draws():
        return load_file(path).get_inputs()


def _twin(path: Path) -> Function:
    from cutesmith.problems.loading import load_file

    return load_file(path).module.corrected_fn


OWN = {
    "gemm_sm90_bias_gelu": (
        (256, 256, 128), (300, 200, 448, torch.float16, True), (130, 136, 72), (1, 8, 8),
        (512, 128, 64, torch.bfloat16, True),
    ),
    "gated_gemm_sm90": ((128, 256, 128), (200, 136, 64, torch.float16), (1, 8, 8)),
    "flash_attention_sm90": (
        (1, 2, 1, 200, 200, 64), (1, 1, 1, 40, 277, 128, False, torch.float16), (1, 1, 1, 256, 256, 128),
    ),
    "tma_copy_pipeline_sm90": ((100, 520, torch.float16), (3, 8), (256, 1024)),
    "cluster_reduce_sm90": ((3, 4104, torch.float16), (2, 64), (2, 65536)),
}  # fmt: skip
"""Our kernels for Hopper, by file, and what `get_inputs` is asked for."""
OWN_FURTHER = {
    "split_k_gemm_sm90": ((9, 200, 128), (3, 136, 1000), (40, 70, 520, torch.float16), (17, 3, 8)),
    "grouped_gemm_sm90": (
        ([130, 0, 256, 1, 300, 0], 136, 72, torch.bfloat16, 0, 0, 77), ([70, 30], 392, 136, torch.float16),
    ),
    "linear_cross_entropy_sm90": ((300, 136, 500), (140, 72, 1000, torch.float16), (1, 8, 1)),
    "gemm_fp8_block_scaled_sm90": ((300, 264, 400), (130, 136, 640), (3, 8, 16)),
    "attention_backward_sm90": ((1, 2, 1, 130, 130, 64), (1, 1, 1, 40, 200, 128, False, torch.float16)),
    "flash_attention_sm90": ((1, 4, 2, 100, 300, 64, False), (2, 1, 1, 129, 129, 128, True, torch.float16)),
    "gemm_sm90_bias_gelu": ((384, 64, 1024), (129, 72, 2048, torch.float16)),
}  # fmt: skip
"""Those that `further` recordings hold."""


def own_cases(asked_of: dict[str, Any] = OWN) -> Iterator[Case]:
    """Our kernels for Hopper on small inputs."""
    for name, asked in asked_of.items():
        path = EVALS.parent / "examples_index" / "kernels" / f"{name}.py"
        for sizes in asked:
            text = " ".join(str(size).removeprefix("torch.") for size in sizes)
            yield Case(f"own/{name} {text}", "sm_90a", partial(_own_inputs, path, sizes), partial(_own, path))


def _own_inputs(path: Path, sizes: tuple[Any, ...]) -> list[Any]:
    from cutesmith.problems.loading import load_file
    from cutesmith.recording.facade import cuda_as_cpu

    with cuda_as_cpu(), Float32Draws():
        return load_file(path).module.get_inputs(*sizes)


def _own(path: Path) -> Function:
    from cutesmith.problems.loading import load_file

    return load_file(path).kernel_fn


def quack_cases() -> Iterator[Case]:
    """Softmax, RMS norm, layer norm and cross entropy of QuACK, which others wrote."""
    if importlib.util.find_spec("quack") is None:
        return
    os.environ["QUACK_CACHE_ENABLED"] = "0"
    for operation, dtype, shape in itertools.product(_QUACK, DTYPES, QUACK_SHAPES):
        name = f"quack/{operation} {shape[0]}x{shape[1]} {dtype}"
        inputs = partial(_quack_inputs, operation, DTYPES[dtype], shape)
        yield Case(name, "sm_90a", inputs, _QUACK[operation])


def _quack_inputs(operation: str, dtype: torch.dtype, shape: tuple[int, int]) -> list[Any]:
    x = torch.randn(shape).to(dtype)
    further = {
        "softmax": [],
        "cross_entropy": [torch.randint(shape[1], (shape[0],))],
        "rmsnorm": [torch.randn(shape[1]).to(dtype)],
        "layernorm": [torch.randn(shape[1]), torch.randn(shape[1])],
    }
    return [x, *further[operation]]


@contextmanager
def triton_or_stand_in() -> Iterator[None]:
    """Within it QuACK can be imported: where Triton is missing, a stand-in is there, and gone afterwards."""
    if importlib.util.find_spec("triton") is not None:
        yield
        return
    importlib.import_module("torch._inductor.compile_fx")  # it asks for Triton too, and must not find the stand-in
    sys.path.append(str(EVALS / "studies" / "emulator" / "stand_ins"))
    try:
        yield
    finally:
        sys.path.remove(str(EVALS / "studies" / "emulator" / "stand_ins"))
        sys.modules.pop("triton", None)


def _quack(module: str) -> Any:
    with triton_or_stand_in():
        return importlib.import_module(f"quack.{module}")


def _rmsnorm() -> Function:
    rmsnorm = _quack("rmsnorm").rmsnorm_fwd
    return lambda x, weight: rmsnorm(x, weight, eps=1e-6)[0]


_QUACK: dict[str, Callable[[], Function]] = {
    "softmax": lambda: _quack("softmax").softmax_fwd,
    "rmsnorm": _rmsnorm,
    "layernorm": lambda: _quack("rmsnorm").layernorm_fwd,
    "cross_entropy": lambda: _quack("cross_entropy").cross_entropy_fwd,
}


def gemm_cases() -> Iterator[Case]:
    """The Ampere tensor-core GEMM of nvidia-cutlass-operators, B row and column major (an H200 runs no sm_80 code)."""
    if importlib.util.find_spec("cutlass.operators") is None:
        return
    for dtype, transposed, shape in itertools.product(("fp16", "bf16"), (False, True), GEMM_SHAPES):
        name = f"operators/gemm {'x'.join(map(str, shape))} {dtype}{' B transposed' if transposed else ''}"
        yield Case(name, "sm_90a", partial(gemm_inputs, DTYPES[dtype], transposed, shape), lambda: multiply)


def gemm_inputs(dtype: torch.dtype, transposed: bool, shape: tuple[int, int, int]) -> list[Any]:
    m, n, k = shape
    b = torch.randn(n, k).to(dtype).t() if transposed else torch.randn(k, n).to(dtype)
    return [torch.randn(m, k).to(dtype), b]


def multiply(a: torch.Tensor, b: torch.Tensor, sm: str = "80") -> torch.Tensor:
    operators = importlib.import_module("cutlass.operators")
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device="cuda")
    arguments = operators.GemmArguments(a, b, out, accumulator_type=torch.float32)
    candidates = operators.get_operators(arguments, target_sm=sm)
    next(o for o in candidates if f"sm{sm.rstrip('a')}" in o.metadata.operator_name.lower()).run(arguments)
    return out


def hopper_cases() -> Iterator[Case]:
    """GEMMs for sm_90a by TMA and wgmma: QuACK's (both ways to share the work) and nvidia-cutlass-operators'."""
    inputs = partial(gemm_inputs, torch.bfloat16, False, (256, 256, 128))
    if importlib.util.find_spec("quack") is not None:
        for pingpong in (False, True):
            name = f"quack/gemm 256x256x128 bf16{' pingpong' if pingpong else ''}"
            yield Case(name, "sm_90a", inputs, partial(_quack_gemm, pingpong))
    if importlib.util.find_spec("cutlass.operators") is not None:
        yield Case("operators/gemm sm_90a 256x256x128 bf16", "sm_90a", inputs, lambda: partial(multiply, sm="90a"))


def blackwell_cases() -> Iterator[Case]:
    """nvidia-cutlass-operators' GEMM for sm_100a: two blocks a product, tiles from clusterlaunchcontrol."""
    if importlib.util.find_spec("cutlass.operators") is not None:
        inputs = partial(gemm_inputs, torch.bfloat16, False, (256, 256, 128))
        yield Case("operators/gemm sm_100a 256x256x128 bf16", "sm_100a", inputs, lambda: partial(multiply, sm="100a"))


def _quack_gemm(pingpong: bool) -> Function:
    gemm = _quack("gemm").gemm

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.empty(1, a.shape[0], b.shape[1], dtype=a.dtype, device="cuda")
        weight = b.t().contiguous()[None]
        gemm(a[None], weight, out, None, None, tile_M=128, tile_N=128, cluster_M=1, cluster_N=1, pingpong=pingpong)
        return out[0]

    return multiply


def example_cases() -> Iterator[Case]:
    """CUTLASS's Ampere examples, where they have been fetched; they draw their own inputs."""
    for name, run in example_runs():
        yield Case(f"cutlass/{name}", "sm_90a", list, partial(_as_function, run))


def _as_function(run: Callable[[], torch.Tensor]) -> Function:
    return run


def digest(values: list[Any]) -> str:
    """A hash of the inputs' bytes."""
    found = hashlib.sha256()
    for value in values:
        found.update(tensor_bytes(value) if isinstance(value, torch.Tensor) else repr(value).encode())
    return found.hexdigest()[:16]


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The elements in order, as bytes."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
