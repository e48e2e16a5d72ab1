"""Calls of generated kernels at sizes that they were not traced for: what PyTorch refuses a kernel has to refuse, too.

python evals/studies/wrong_sizes.py [--only WORD] [--arch sm_90a] [--run]

Each of 98 ordinary functions is traced at one set of sizes. Then each dimension of its inputs is made larger, twice as
large and 1, alone and with one other, and PyTorch (on a CPU) and `kernel_fn` are called. Host code alone runs (15 s):
nothing is compiled. With `--run` the calls that both take, some size of which is 1, run on the emulated GPU, and their
values are compared, too: with `--only`, as each is compiled. Printed are calls that
- `accepts`: the kernel takes, and PyTorch refuses: it would read out of bounds;
- `shape`: both take, with results of other shapes;
- `wrong`: both take, with other values, or the kernel reads or writes where it must not;
- `unclear`: the kernel refuses with another sentence than its own.
Exit code 1 where there is one of the first three.
"""

from __future__ import annotations

import argparse
import itertools
import runpy
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from cutesmith.compiling.shares import NONE  # noqa: E402
from cutesmith.emulator.device import emulated_device  # noqa: E402
from cutesmith.errors import CutesmithError  # noqa: E402
from cutesmith.patterns.match import plan_kernel  # noqa: E402
from cutesmith.patterns.tracing.trace import trace_function  # noqa: E402
from cutesmith.recording.open_session import session  # noqa: E402

Shape = tuple[int, ...]
Shapes = list[Shape]
OWN_SENTENCE = (
    "this kernel", "a line of", "rows of", "it must fit", "there are no keys", "the image has channels"
)  # fmt: skip


class Case(NamedTuple):
    """A function and the shapes of its inputs; those in the places `indices` are integers of 0."""

    function: Callable[..., Any]
    shapes: Shapes
    indices: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32


HALF = torch.bfloat16
ATTENTION = F.scaled_dot_product_attention
CASES = {
    "a @ b": Case(lambda a, b: a @ b, [(12, 16), (16, 24)]),
    "a @ b of bfloat16": Case(lambda a, b: a @ b, [(12, 16), (16, 24)], dtype=HALF),
    "relu of a square product": Case(lambda a, b: (a @ b).relu(), [(16, 16), (16, 16)]),
    "a @ b.t()": Case(lambda a, b: a @ b.t(), [(12, 16), (24, 16)], dtype=HALF),
    "a.t() @ b": Case(lambda a, b: a.t() @ b, [(16, 12), (16, 24)]),
    "a @ v": Case(lambda a, v: a @ v, [(12, 16), (16,)]),
    "v @ a": Case(lambda v, a: v @ a, [(16,), (16, 12)]),
    "dot": Case(torch.dot, [(40,), (40,)]),
    "outer": Case(torch.outer, [(12,), (20,)]),
    "bmm": Case(torch.bmm, [(3, 12, 16), (3, 16, 24)]),
    "bmm of bfloat16": Case(torch.bmm, [(3, 12, 16), (3, 16, 24)], dtype=HALF),
    "batched matmul": Case(torch.matmul, [(2, 3, 12, 16), (3, 16, 24)]),
    "matmul of one matrix": Case(torch.matmul, [(3, 12, 16), (16, 24)]),
    "linear": Case(F.linear, [(12, 16), (24, 16)]),
    "linear with bias": Case(F.linear, [(12, 16), (24, 16), (24,)], dtype=HALF),
    "linear of one row": Case(F.linear, [(1, 16), (24, 16), (24,)]),
    "linear and a residual": Case(
        lambda x, w, b, r: F.gelu(F.linear(x, w, b)) + r, [(12, 16), (24, 16), (24,), (12, 24)]
    ),
    "two linears": Case(lambda x, w, v: F.linear(F.linear(x, w).relu(), v), [(12, 16), (24, 16), (8, 24)], dtype=HALF),
    "gated": Case(lambda x, w, v: F.silu(x @ w) * (x @ v), [(12, 16), (16, 24), (16, 24)], dtype=HALF),
    "addmm": Case(torch.addmm, [(24,), (12, 16), (16, 24)]),
    "addmm of matrices": Case(lambda c, a, b: torch.addmm(c, a, b, beta=0.5), [(12, 24), (12, 16), (16, 24)]),
    "baddbmm": Case(torch.baddbmm, [(3, 12, 24), (3, 12, 16), (3, 16, 24)]),
    "einsum": Case(lambda a, b: torch.einsum("bij,bjk->bik", a, b), [(3, 12, 16), (3, 16, 24)]),
    "einsum of heads": Case(lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b), [(2, 6, 3, 8), (2, 7, 3, 8)]),
    "einsum of three": Case(lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), [(6, 8), (8, 10), (10, 12)]),
    "tensordot": Case(lambda a, b: torch.tensordot(a, b, 2), [(6, 4, 5), (4, 5, 7)]),
    "chosen matrices": Case(lambda x, w, i: torch.bmm(x, w[i]), [(5, 12, 16), (3, 16, 24), (5,)], (2,)),
    "embedding": Case(lambda i, w: F.embedding(i, w), [(5, 7), (10, 12)], (0,)),
    "add": Case(lambda x, y: x + y, [(6, 10), (6, 10)]),
    "add a row": Case(lambda x, y: x * y, [(6, 10), (10,)]),
    "three of one size": Case(lambda x, y, z: torch.where(x > 0, y, z), [(6, 10), (6, 10), (6, 10)]),
    "outer sum": Case(lambda x, y: x[:, None] + y, [(6,), (10,)]),
    "mul and sum": Case(lambda x, y: (x * y).sum(-1), [(6, 10), (6, 10)]),
    "sum of all": Case(lambda x, y: (x - y).square().mean(), [(6, 10), (6, 10)]),
    "cosine similarity": Case(lambda x, y: F.cosine_similarity(x, y, -1), [(6, 10), (6, 10)]),
    "layer norm": Case(lambda x, w, b: F.layer_norm(x, w.shape, w, b), [(6, 10), (10,), (10,)]),
    "layer norm of 10": Case(lambda x, w, b: F.layer_norm(x, (10,), w, b), [(6, 10), (10,), (10,)]),
    "rms norm": Case(lambda x, w: F.rms_norm(x, w.shape, w), [(6, 10), (10,)]),
    "group norm": Case(lambda x, w, b: F.group_norm(x, 2, w, b), [(3, 8, 5), (8,), (8,)]),
    "batch norm": Case(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), [(3, 8, 5), (8,), (8,), (8,), (8,)]),
    "batch norm, training": Case(  # F.batch_norm would refuse one value a channel, though its sizes fit
        lambda x, w: torch.batch_norm(x, w, None, None, None, True, 0.1, 1e-5, False), [(3, 8, 5), (8,)]
    ),
    "softmax with a mask": Case(lambda x, m: (x + m).softmax(-1), [(2, 6, 10), (6, 10)]),
    "cross entropy": Case(lambda x, t: F.cross_entropy(x, t), [(6, 10), (6,)], (1,)),
    "cross entropy of images": Case(lambda x, t: F.cross_entropy(x, t), [(2, 10, 4, 5), (2, 4, 5)], (1,)),
    "weighted cross entropy": Case(lambda x, t, w: F.cross_entropy(x, t, w), [(6, 10), (6,), (10,)], (1,)),
    "mse": Case(F.mse_loss, [(6, 10), (6, 10)]),
    "kl divergence": Case(lambda x, y: F.kl_div(x, y, reduction="batchmean"), [(6, 10), (6, 10)]),
    "cross": Case(torch.linalg.cross, [(6, 3), (6, 3)]),
    "lerp": Case(torch.lerp, [(6, 10), (6, 10), (6, 10)]),
    "addcmul": Case(torch.addcmul, [(6, 10), (6, 10), (6, 10)]),
    "cat of rows": Case(lambda x, y: torch.cat((x, y)), [(6, 10), (4, 10)]),
    "cat of columns": Case(lambda x, y: torch.cat((x, y), 1) * 2, [(6, 10), (6, 10)]),
    "stack": Case(lambda x, y: torch.stack((x, y)), [(6, 10), (6, 10)]),
    "unbind": Case(lambda x: torch.stack(x.unbind(1)[::-1], 1) * 2, [(6, 4)]),
    "unpacked": Case(lambda x: (lambda a, b: a * b)(*x.unbind(1)), [(6, 2)]),
    "chunk": Case(lambda x: (lambda a, b: a * b)(*x.chunk(2, -1)), [(6, 10)]),
    "split": Case(lambda x: (lambda a, b: a * b)(*x.split(5, -1)), [(6, 10)]),
    "split with sizes": Case(lambda x: (lambda a, b: (a.exp(), b * 2))(*x.split([3, 7], -1)), [(6, 10)]),
    "tensor_split": Case(lambda x: (lambda a, b: a * b)(*x.tensor_split(2, -1)), [(6, 10)]),
    "narrow": Case(lambda x: x.narrow(1, 2, 5) * 2, [(6, 10)]),
    "index_select": Case(lambda x, i: x.index_select(1, i), [(6, 10), (4,)], (1,)),
    "gather": Case(lambda x, i: x.gather(1, i), [(6, 10), (6, 10)], (1,)),
    "scatter_add": Case(lambda x, i, s: x.scatter_add(1, i, s), [(6, 10), (6, 10), (6, 10)], (1,)),
    "index_add": Case(lambda x, i, s: x.index_add(0, i, s), [(6, 10), (4,), (4, 10)], (1,)),
    "index_put of lines": Case(
        lambda x, i, s: x.index_put((torch.arange(x.shape[0], device=x.device), i), s), [(6, 10, 4), (6,), (6, 4)], (1,)
    ),
    "view": Case(lambda x: x.view(2, -1) * 2, [(6, 10)]),
    "view of heads": Case(lambda x: x.view(6, 2, 5).transpose(0, 1).contiguous(), [(6, 10)]),
    "unflatten": Case(lambda x: x.unflatten(1, (2, 5)).sum(1), [(6, 10)]),
    "pixel_shuffle": Case(lambda x: F.pixel_shuffle(x, 2), [(2, 8, 3, 5)]),
    "squeeze of 1": Case(lambda x, y: x.squeeze(1) * y, [(6, 1, 10), (6, 10)]),
    "expand": Case(lambda x: x.expand(6, 10) * 2, [(1, 10)]),
    "conv1d": Case(lambda x, w, b: F.conv1d(x, w, b), [(2, 4, 16), (8, 4, 3), (8,)]),
    "conv2d": Case(lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(), [(2, 4, 8, 9), (8, 4, 3, 3), (8,)]),
    "conv2d of bfloat16": Case(lambda x, w: F.conv2d(x, w), [(2, 8, 8, 8), (8, 8, 3, 3)], dtype=HALF),
    "depthwise conv1d": Case(lambda x, w: F.conv1d(x, w, padding=1, groups=4), [(2, 4, 16), (4, 1, 3)]),
    "grouped conv2d": Case(lambda x, w: F.conv2d(x, w, groups=2), [(2, 4, 8, 8), (6, 2, 3, 3)]),
    "conv_transpose2d": Case(lambda x, w: F.conv_transpose2d(x, w, stride=2), [(2, 4, 5, 6), (4, 8, 3, 3)]),
    "max_pool2d": Case(lambda x: F.max_pool2d(x, 3, 2), [(2, 3, 9, 11)]),
    "avg_pool1d and a residual": Case(lambda x, y: F.avg_pool1d(x, 3, 1, 1) + y, [(2, 3, 9), (2, 3, 9)]),
    "cumsum of a product": Case(lambda x, y: (x * y).cumsum(-1), [(6, 10), (6, 10)]),
    "first-order scan": Case(lambda x, y: (x.cumsum(0) * y), [(6, 10), (10,)]),
    "topk": Case(lambda x: tuple(x.topk(4)), [(6, 10)]),
    "kthvalue": Case(lambda x: x.kthvalue(7).values, [(6, 10)]),
    "sort of a sum": Case(lambda x, y: (x + y).sort().values, [(6, 10), (6, 10)]),
    "argsort": Case(lambda x: x.argsort(dim=-1, stable=True), [(6, 10)]),
    "cdist": Case(lambda x, y: torch.cdist(x, y), [(6, 8), (7, 8)]),
    "bilinear": Case(F.bilinear, [(6, 4), (6, 5), (7, 4, 5)]),
    "prelu": Case(F.prelu, [(3, 4, 5), (4,)]),
    "glu": Case(lambda x: F.glu(x), [(6, 10)]),
    "rotary": Case(lambda x, c: torch.cat((-x[..., 4:], x[..., :4]), -1) * c, [(2, 3, 6, 8), (6, 8)]),
    "attention": Case(ATTENTION, [(2, 3, 8, 16), (2, 3, 10, 16), (2, 3, 10, 16)], dtype=HALF),
    "attention of one size": Case(ATTENTION, [(2, 2, 16, 16)] * 3, dtype=HALF),
    "attention, causal": Case(lambda q, k, v: ATTENTION(q, k, v, is_causal=True), [(2, 3, 8, 16)] * 3, dtype=HALF),
    "attention with a mask": Case(ATTENTION, [(2, 3, 8, 16), (2, 3, 10, 16), (2, 3, 10, 16), (8, 10)], dtype=HALF),
    "attention of float32": Case(ATTENTION, [(2, 3, 8, 16), (2, 3, 10, 16), (2, 3, 10, 16)]),
    "softmax(q k) v": Case(
        lambda q, k, v: (q @ k.mT).softmax(-1) @ v, [(3, 8, 16), (3, 10, 16), (3, 10, 12)], dtype=HALF
    ),
    "triangle": Case(lambda x, y: x.tril() + y.triu(), [(8, 8), (8, 8)]),
    "trace": Case(lambda x, y: (x @ y).diagonal().sum(), [(6, 10), (10, 6)]),
}  # fmt: skip


def other_shapes(shapes: Shapes) -> Iterator[Shapes]:
    """Each dimension larger, twice as large and 1, alone and with each other dimension."""
    places = [(at, dim) for at, shape in enumerate(shapes) for dim in range(len(shape))]
    ways = (lambda n: n + 1, lambda n: 2 * n, lambda n: 1)
    seen = [shapes]
    for count, way in itertools.product((1, 2), ways):
        for chosen in itertools.combinations(places, count):
            sizes = [
                tuple(way(n) if (at, dim) in chosen else n for dim, n in enumerate(s)) for at, s in enumerate(shapes)
            ]
            if sizes not in seen:
                seen.append(sizes)
                yield sizes


def inputs_of(case: Case, shapes: Shapes, device: str = "cpu") -> list[torch.Tensor]:
    """The same random normal values in each call, and indices of 0."""
    draws = torch.Generator().manual_seed(0)
    return [
        torch.zeros(shape, dtype=torch.int64, device=device)
        if at in case.indices
        else torch.randn(shape, generator=draws).to(case.dtype).to(device)
        for at, shape in enumerate(shapes)
    ]


def shapes_of(result: Any) -> list[Shape]:
    return [tuple(each.shape) for each in (result if isinstance(result, tuple) else (result,))]


def finding(case: Case, kernel_fn: Callable[..., Any], shapes: Shapes) -> tuple[str, str]:
    """What a call comes to, and a sentence."""
    try:
        theirs = shapes_of(case.function(*inputs_of(case, shapes)))
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
        theirs, refusal = None, str(error)
    try:
        ours = shapes_of(kernel_fn(*inputs_of(case, shapes, "cuda")))
    except Exception as error:  # noqa: BLE001
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        known = isinstance(error, ValueError) and any(part in told for part in OWN_SENTENCE)
        return ("refused" if theirs is None else "narrow") if known else "unclear", told
    if theirs is None:
        return "accepts", refusal.splitlines()[0]
    return ("holds", "") if ours == theirs else ("shape", f"{ours}, PyTorch {theirs}")


def values(case: Case, kernel: Path, arch: str, shapes: Shapes) -> str:
    """What is wrong with the results on the emulated GPU, if anything."""
    exact = case.function(*(t.double() if t.is_floating_point() else t for t in inputs_of(case, shapes)))
    tolerance = {torch.float32: 3e-3, HALF: 3e-2}[case.dtype]  # convolutions of float32 may round to tf32
    tolerances = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}  # variances are negative here, too
    try:
        with emulated_device(arch) as device:
            found = runpy.run_path(str(kernel))["kernel_fn"](*inputs_of(case, shapes, "cuda"))
            pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (found, exact)), strict=True)
            for ours, theirs in pairs:
                torch.testing.assert_close(ours.cpu().double(), theirs.double(), **tolerances)
        return "; ".join(map(str, device.findings))
    except (AssertionError, CutesmithError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def kernel_of(case: Case, arch: str, folder: Path) -> Path:
    """The first kernel that is drafted for a case."""
    plan = plan_kernel(trace_function(case.function, inputs_of(case, case.shapes)), arch)
    path = Path(tempfile.mkdtemp(dir=folder)) / "kernel.py"
    path.write_text(plan.render(plan.configurations(arch)[0]))
    return path


def findings_of(case: Case, arch: str, folder: Path, run: bool) -> Iterator[tuple[Shapes, str, str]]:
    """Each call of other shapes, what it comes to, and a sentence."""
    kernel = kernel_of(case, arch, folder)
    with session(arch, share=NONE):
        kernel_fn = runpy.run_path(str(kernel))["kernel_fn"]
        found = [(shapes, *finding(case, kernel_fn, shapes)) for shapes in other_shapes(case.shapes)]
    for shapes, status, told in found:
        if run and status == "holds" and any(1 in shape for shape in shapes):
            told = values(case, kernel, arch, shapes)
            status = "wrong" if told else status
        yield shapes, status, told


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="functions whose name has this")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument(
        "--narrow", action="store_true", help="also print calls that PyTorch takes and a kernel refuses"
    )
    parser.add_argument("--run", action="store_true", help="run calls with a size of 1 on the emulated GPU")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # of targets that PyTorch broadcasts
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            if arguments.only not in name:
                continue
            try:
                found = list(findings_of(case, arguments.arch, Path(folder), arguments.run))
            except CutesmithError as error:
                print(f"{name}: not drafted: {error}")
                continue
            counts.update(status for _, status, _ in found)
            for status in ("accepts", "shape", "wrong", "unclear", *["narrow"] * arguments.narrow):
                of_status = [(shapes, told) for shapes, each, told in found if each == status]
                if of_status:
                    shapes, told = of_status[0]
                    print(f"{name}: {len(of_status)} {status}, such as {shapes}: {told[:200]}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    return int(bool(counts["accepts"] or counts["shape"] or counts["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
