"""Cases of `bench_patterns.py` that compute: products, attention, example kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from races import Function, Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from cutesmith.problems.loading import LoadedFile

half, single = torch.bfloat16, torch.float32
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
FLOAT32_SHAPES = [(4096, 4096, 4096), (2048, 4096, 8192), (1024, 8192, 8192), (128, 8192, 8192), (16, 4096, 4096)]


@dataclass(frozen=True)
class Case:
    """A function, its arguments (tensors and plain values), and how many of its configurations are tried.

    `exact` gives a part of the result in float64 and where it lies; by default all of it. `flops` and `moved` (bytes)
    are those that the function cannot do without. `example` is a kernel of the example index. `problem` is a file that
    draws its own inputs; `tolerance` the largest error, norm over norm, by default that of the first tensor's type.
    `tf32`: factors of float32 may be rounded to that, by all.
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
    problem: LoadedFile | None = None
    tolerance: float | None = None
    tf32: bool = False


def _quack(run: Callable[..., Any]) -> dict[str, Function]:
    """QuACK's function in its default configuration, where QuACK can be imported; `run` is given its GEMM interface.

    The import begins CUDA, which a process may not do before it forks: it waits for the first call.
    """
    if not (find_spec("quack") and find_spec("triton")):
        return {}

    def function(*inputs: Any) -> Any:
        from quack import gemm_interface

        return run(gemm_interface, *inputs)

    return {"QuACK": function}


def llm() -> Iterator[Case]:
    """Plain products of language models and two squares, in bfloat16."""
    for m, n, k in (*SQUARES, *LLM_SHAPES):
        tensors = (Tensor((m, k)), Tensor((n, k), half, k**-0.5))
        quack = _quack(lambda q, x, w: q.gemm(x, w.t(), tuned=False))
        yield Case(f"{m} {n} {k}", lambda x, w: x @ w.t(), tensors, 2, 2 * m * n * k, baselines=quack)


def epilogues() -> Iterator[Case]:
    """Products with bias and GELU, gated ones, and ones with a residual."""
    yield from (_biased(m, 16384, 4096) for m in (8192, 2048, 512))
    yield from (_gated(m, 14336, 4096) for m in (8192, 2048))
    yield from (_with_residual(*shape) for shape in ((8192, 4096, 14336), (8192, 4096, 4096), (2048, 4096, 4096)))


def layers() -> Iterator[Case]:
    """Those three of the feed-forward layers of two language models, from one token to 16384 of them.

    The widths are those of Llama 3.2 1B (2048 and 8192) and of Llama 3.1 8B (4096 and 14336), from the configurations
    that Hugging Face publishes. A residual is added to the projection back to the narrow width.
    """
    for wide, narrow in ((8192, 2048), (14336, 4096)):
        for m in (1, 16, 64, 256, 1024, 4096, 16384):
            yield _biased(m, wide, narrow)
            yield _gated(m, wide, narrow)
            yield _with_residual(m, narrow, wide)


TUNED = "max-autotune-no-cudagraphs"


def _biased(m: int, n: int, k: int) -> Case:
    function = lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh")  # noqa: E731
    act = {"activation": "gelu_tanh_approx", "store_preact": False, "tuned": False}
    quack = _quack(lambda q, x, w, b: q.gemm_act(x, w.t(), bias=b, **act)[1])
    tensors = (Tensor((m, k)), Tensor((n, k), half, k**-0.5), Tensor((n,)))
    return Case(f"bias and gelu {m} {n} {k}", function, tensors, 2, 2 * m * n * k, baselines=quack, compiled=TUNED)


def _gated(m: int, n: int, k: int) -> Case:
    weights = Tensor((n, k), half, k**-0.5)
    function = lambda x, g, u: F.silu(x @ g.t()) * (x @ u.t())  # noqa: E731
    return Case(f"swiglu {m} {n} {k}", function, (Tensor((m, k)), weights, weights), 2, 4 * m * n * k, compiled=TUNED)


def _with_residual(m: int, n: int, k: int) -> Case:
    tensors = (Tensor((m, k)), Tensor((n, k), half, k**-0.5), Tensor((m, n)))
    quack = _quack(lambda q, x, w, r: q.gemm_add(x, w.t(), r, tuned=False))
    name = f"residual {m} {n} {k}"
    return Case(name, lambda x, w, r: x @ w.t() + r, tensors, 2, 2 * m * n * k, baselines=quack, compiled=TUNED)


def majors() -> Iterator[Case]:
    """Products whose factors lie along other dimensions, and a batch of them; in bfloat16."""
    yield from _majors(half)


def float32() -> Iterator[Case]:
    """Products of float32: squares and shapes of KernelBench, each major of both factors, a batch, an epilogue."""
    for m, n, k in FLOAT32_SHAPES:
        tensors = (Tensor((m, k), single), Tensor((n, k), single, k**-0.5))
        yield Case(f"float32 {m} {n} {k}", lambda x, w: x @ w.t(), tensors, 2, 2 * m * n * k)
    yield from _majors(single)
    m, n, k = 1024, 8192, 8192
    tensors = (Tensor((m, k), single), Tensor((n, k), single, k**-0.5), Tensor((n,), single))
    gelu = lambda x, w, b: F.gelu(F.linear(x, w, b))  # noqa: E731
    yield Case(f"float32 bias and gelu {m} {n} {k}", gelu, tensors, 2, 2 * m * n * k, compiled="default")


def _majors(dtype: torch.dtype) -> Iterator[Case]:
    square = (Tensor((4096, 4096), dtype), Tensor((4096, 4096), dtype, 1 / 64))
    functions: dict[str, Function] = {
        "x @ w": lambda x, w: x @ w,
        "x.t() @ w": lambda x, w: x.t() @ w,
        "x.t() @ w.t()": lambda x, w: x.t() @ w.t(),
    }
    for name, function in functions.items():
        yield Case(f"{name} 4096, {str(dtype)[6:]}", function, square, 2, 2 * 4096**3)
    batch = (Tensor((64, 1024, 1024), dtype), Tensor((64, 1024, 1024), dtype, 1 / 32))
    yield Case(f"bmm 64 x 1024, {str(dtype)[6:]}", torch.bmm, batch, 2, 2 * 64 * 1024**3)


def float8() -> Iterator[Case]:
    """Products of float8 with a scale for each row and column; eager is torch._scaled_mm."""

    def function(x: torch.Tensor, w: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(x, w.t(), rows, columns, out_dtype=half)

    def exact(x: torch.Tensor, w: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> tuple[Any, torch.Tensor]:
        return (), x.double() @ w.double().t() * rows.double() * columns.double()

    eighth = torch.float8_e4m3fn
    for m, n, k in (
        *((4096, 4096, 4096), (8192, 8192, 8192), (8192, 7168, 4096), (2048, 28672, 4096), (512, 4096, 14336)),
        *((128, 6144, 4096), (16, 28672, 4096), (16384, 4096, 4096)),
    ):
        tensors = (Tensor((m, k), eighth), Tensor((n, k), eighth), Tensor((m, 1), single), Tensor((1, n), single))
        yield Case(f"float8 {m} {n} {k}", function, tensors, 2, 2 * m * n * k, exact=exact)


def blocks() -> Iterator[Case]:
    """Products of float8 with a scale for each 1 x 128 of the left factor and each 128 x 128 of the right one."""

    def factors(x: torch.Tensor, w: torch.Tensor, rows: torch.Tensor, both: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = x * rows.t().repeat_interleave(128, 1)
        return left, w * both.repeat_interleave(128, 0).repeat_interleave(128, 1)

    def function(x: torch.Tensor, w: torch.Tensor, rows: torch.Tensor, both: torch.Tensor) -> torch.Tensor:
        left, right = factors(x.float(), w.float(), rows, both)
        return (left @ right.t()).bfloat16()

    def exact(x: torch.Tensor, w: torch.Tensor, rows: torch.Tensor, both: torch.Tensor) -> tuple[Any, torch.Tensor]:
        left, right = factors(x.double(), w.double(), rows.double(), both.double())
        return (), left @ right.t()

    def scaled(x: torch.Tensor, w: torch.Tensor, rows: torch.Tensor, both: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(x, w.t(), rows.t(), both.t(), out_dtype=half)

    eighth = torch.float8_e4m3fn
    for m, n, k in ((8192, 7168, 4096), (4096, 4096, 7168), (512, 4096, 7168), (64, 7168, 2048)):
        tensors = (Tensor((m, k), eighth), Tensor((n, k), eighth))
        scales = (Tensor((k // 128, m), single), Tensor((n // 128, k // 128), single))
        yield Case(
            f"blocks {m} {n} {k}", function, (*tensors, *scales), 2, 2 * m * n * k,
            baselines={"_scaled_mm": scaled}, exact=exact,
        )  # fmt: skip


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


KERNELBENCH: dict[str, tuple[Function, tuple[int, ...], tuple[int, ...]]] = {
    "1/1": (torch.matmul, (4096, 4096), (4096, 4096)),
    "1/2": (torch.matmul, (2048, 8192), (8192, 4096)),
    "1/3": (torch.bmm, (128, 512, 1024), (128, 1024, 2048)),
    "1/6": (torch.matmul, (256, 524288), (524288, 256)),
    "1/7": (torch.matmul, (32768, 64), (64, 32768)),
    "1/8": (torch.matmul, (8205, 2949), (2949, 5921)),
    "1/9": (torch.matmul, (32768, 32), (32, 32768)),
    "1/10": (torch.matmul, (16, 1024, 2048), (2048, 768)),
    "1/11": (lambda x, w: torch.einsum("bijl,lk->bijk", x, w), (8, 256, 512, 256), (256, 768)),
    "1/14": (lambda x, w: torch.triu(x @ w), (4096, 4096), (4096, 4096)),
    "1/16": (lambda x, w: x.t() @ w, (8192, 2048), (8192, 4096)),
    "1/17": (lambda x, w: x @ w.t(), (2048, 8192), (4096, 8192)),
    "1/18": (lambda x, w: x.t() @ w.t(), (8192, 2048), (4096, 8192)),
}


def kernelbench() -> Iterator[Case]:
    """Products of KernelBench's level 1, whose factors have the same sizes and majors; in float32."""
    for name, (function, left, right) in KERNELBENCH.items():
        x, w = Tensor(left, single), Tensor(right, single)
        columns = right[0] if name in ("1/17", "1/18") else right[-1]
        rows = left[-1] if name in ("1/16", "1/18") else x.elements // left[-1]
        depth = left[0] if name in ("1/16", "1/18") else left[-1]
        yield Case(f"kernelbench {name}", function, (x, w), 2, 2 * rows * columns * depth)


def unaligned() -> Iterator[Case]:
    """Products of 16 bits whose rows are not multiples of 16 bytes: of a factor, of both, of the result, of all."""
    sizes = (
        *((4096, 4096, 4095), (4096, 4095, 4096), (4095, 4097, 4099), (8205, 5921, 2949)),
        *((8192, 50257, 768), (1000, 1001, 1003), (256, 257, 255)),
    )
    for m, n, k in sizes:
        tensors = Tensor((m, k)), Tensor((n, k), half, k**-0.5)
        yield Case(f"unaligned {m} {n} {k}", lambda x, w: x @ w.t(), tensors, 2, 2 * m * n * k)
        tensors = Tensor((m, k), torch.float16), Tensor((k, n), torch.float16, k**-0.5)
        yield Case(f"unaligned {m} {n} {k}, weights by rows", lambda x, w: x @ w, tensors, 2, 2 * m * n * k)


TF32_PRODUCTS: tuple[tuple[str, Function, tuple[int, int], tuple[int, int]], ...] = (
    ("x @ w.t()", lambda x, w: x @ w.t(), (4096, 4096), (4096, 4096)),
    ("x @ w", lambda x, w: x @ w, (4096, 4096), (4096, 4096)),
    ("x.t() @ w", lambda x, w: x.t() @ w, (4096, 4096), (4096, 4096)),
    ("x @ w.t()", lambda x, w: x @ w.t(), (1024, 8192), (8192, 8192)),
    ("x @ w", lambda x, w: x @ w, (1024, 8192), (8192, 8192)),
    ("x @ w", lambda x, w: x @ w, (16, 8192), (8192, 8192)),
)
TF32_ERROR = 1e-3


def tf32_products() -> Iterator[Case]:
    """Products whose factors may be rounded to tf32."""
    for name, function, left, right in TF32_PRODUCTS:
        tensors = Tensor(left, single), Tensor(right, single, left[-1] ** -0.5)
        what, flops = f"{name}, {left[0]} x {left[1]}", 2 * left[0] * left[1] * right[0]
        yield Case(what, function, tensors, 3, flops, tolerance=TF32_ERROR, tf32=True)
