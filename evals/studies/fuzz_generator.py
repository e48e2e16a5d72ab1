"""Random compositions of operations through the offline generator, each kernel run on the emulated GPU.

python evals/studies/fuzz_generator.py [--seeds FIRST LAST] [--moves] [--show] [--keep FOLDER] [--out RESULTS.jsonl]

A seed decides a problem of 2 to 9 operations: pointwise ones, casts, reductions, norms, losses and views, over inputs
of any rank, dtype and stride, with sizes such as 0, 1, primes and thousands. It is traced and drafted as `generate`
does, and the first kernel's results are compared with the function in float64. An element may be off by the rounding
of the coarsest dtype on the way, by some times what PyTorch is off, and by some times what a change of the inputs in
their last digits makes. An element where those differ in kind (a NaN, another integer) is not decided. Floats are
cast to integers within their range, and no sign of a NaN is asked for: there PyTorch's CPU and GPU differ. `--show`
prints each failure's problem, `--keep` writes it as a file that `cutesmith verify` takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.errors import EmulationError
from cutesmith.errors import CutesmithError, UnmatchedError
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 8, 13, 16, 17, 31, 32, 64, 100, 129)
LAST_SIZES = (*SIZES, 257, 1000, 1024, 4099)
MOST_ELEMENTS = 20_000
DTYPES = (
    *["float32"] * 9, *["bfloat16"] * 3, *["float16"] * 2, *["float64"] * 2,
    "int64", "int32", "int16", "uint8", "int8", "bool",
)  # fmt: skip
EPSILON = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 4e-6, torch.float64: 1e-13}
NUDGE = {torch.bfloat16: 2.0**-16, torch.float16: 2.0**-16, torch.float32: 2.0**-21, torch.float64: 2.0**-48}

FLOAT_UNARY = """
torch.relu({0}) torch.sigmoid({0}) torch.tanh({0}) torch.exp({0}) torch.log({0}.abs()+1e-3) torch.sqrt({0}.abs())
torch.rsqrt({0}.abs()+0.5) F.gelu({0}) F.gelu({0},approximate='tanh') F.silu({0}) F.softplus({0}) F.elu({0})
F.leaky_relu({0},0.1) F.hardswish({0}) F.mish({0}) F.hardtanh({0}) torch.floor({0}) torch.ceil({0}) torch.round({0})
torch.trunc({0}) torch.frac({0}) torch.sin({0}) torch.cos({0}) torch.erf({0}) torch.expm1({0}) torch.log1p({0}.abs())
torch.nan_to_num({0}) torch.reciprocal({0}) torch.sinc({0}) torch.logit({0},1e-3) torch.atan({0}) torch.deg2rad({0})
torch.angle({0}) torch.signbit({0}.nan_to_num()) torch.isnan({0}) torch.isfinite({0}) {0}**2 {0}**-1
{0}.abs()**0.5 2**{0}
torch.softmax({0},-1) torch.log_softmax({0},-1) F.layer_norm({0},{0}.shape[-1:]) F.rms_norm({0},{0}.shape[-1:])
F.normalize({0},dim=-1) {0}.std(-1) {0}.var(-1,keepdim=True) {0}.norm(dim=-1) {0}.logsumexp(-1)
{0}.mean(-1,keepdim=True) {0}.mean() {0}.softmax(-1).max(-1).values
{0}.nan_to_num().clamp(-99,99).to(torch.int32) {0}.nan_to_num().clamp(-99,99).to(torch.int64) torch.exp2({0})
""".split()
UNARY = """
torch.abs({0}) torch.neg({0}) torch.sign({0}) torch.clamp({0},-1,1) {0}.float() {0}.double() {0}.half() {0}.bfloat16()
{0}.to(torch.bool) {0}.nan_to_num().clamp(0,99).to(torch.uint8)
{0}*0.5 {0}+1 2-{0} {0}*3 {0}/3 {0}//2 {0}%3 {0}>0 {0}==0 torch.square({0})
{0}.sum(-1) {0}.sum(-1,keepdim=True) {0}.sum() {0}.amax(-1) {0}.amax(-1,keepdim=True) {0}.amin(-1) {0}.prod(-1)
{0}.argmax(-1) {0}.argmin(-1,keepdim=True) {0}.max(-1).values {0}.any(-1) {0}.all(-1,keepdim=True)
torch.count_nonzero({0},-1) {0}.sum((-2,-1)) {0}.amax((-2,-1),keepdim=True) {0}.amax() torch.ones_like({0})
""".split()
VIEWS = """
{0}.unsqueeze(0) {0}.unsqueeze(-1) {0}.squeeze() {0}.squeeze(-1) {0}.squeeze(0) {0}.reshape(-1) {0}.reshape(-1,1)
{0}.transpose(0,-1) {0}.flatten(1) {0}[...,::2] {0}[1:] {0}[...,:1] {0}.chunk(2,-1)[0] {0}.flatten() {0}.t()
{0}.unsqueeze(1) {0}[0] {0}.contiguous() {0}.view({0}.shape) {0}.narrow(-1,0,1) {0}.expand(2,*{0}.shape)
""".split()
MOVES = """
{0}.flip(-1) {0}.flip((0,-1)) {0}.roll(1,-1) {0}.roll((2,-1),(0,-1)) {0}.roll(3) torch.cat(({0},{0}*2),-1)
torch.cat(({0}[1:],{0}[:1])) torch.stack(({0},{0}.neg()),-1) F.pad({0},(1,2)) F.pad({0},(0,1,-1,2))
{0}.repeat(2,*[1]*{0}.dim()) {0}.repeat_interleave(2,-1) {0}.tril() {0}.triu(1)
{0}.index_select(0,torch.arange({0}.shape[0]//2+1)%{0}.shape[0])
{0}.unflatten(-1,(1,-1)) {0}.unflatten(-1,(-1,2))
""".split()
"""Templates that `--moves` adds to the views; without it a seed's case stays what it was."""
BINARY = """
{0}+{1} {0}-{1} {0}*{1} {0}/{1} {0}+{1} {0}*{1} {0}/({1}.abs()+1) {0}%{1} {0}//{1} torch.fmod({0},{1})
torch.minimum({0},{1}) torch.maximum({0},{1}) torch.where({0}>{1},{0},{1}) torch.where({0}>0,{1},{0}) {0}>{1} {0}=={1}
{0}!={1} torch.remainder({0},{1}) torch.add({0},{1},alpha=2) torch.true_divide({0},{1}) torch.logical_and({0},{1})
""".split()
FLOAT_BINARY = """
torch.atan2({0},{1}) torch.heaviside({0},{1}) torch.xlogy({0},{1}) torch.special.xlog1py({0},{1}) torch.hypot({0},{1})
torch.copysign({0},{1}.nan_to_num()) torch.logaddexp({0},{1}) torch.fmax({0},{1}) torch.lerp({0},{1},0.3) {0}.abs()**{1}
F.mse_loss({0},{1}) F.l1_loss({0},{1},reduction='sum') F.smooth_l1_loss({0},{1}) F.huber_loss({0},{1},reduction='none')
F.binary_cross_entropy_with_logits({0},{1}.sigmoid()) F.cosine_similarity({0},{1},dim=-1) F.kl_div({0},{1}.softmax(-1))
F.gaussian_nll_loss({0},{1},{0}.abs()+0.1) ({0}*{1}).sum(-1) F.soft_margin_loss({0},{1}.sign()) {0}.where({1}>0,0.0)
""".split()


@dataclass(frozen=True)
class Case:
    """A problem made from a seed: the body of `reference_fn`, and the inputs."""

    seed: int
    source: str
    inputs: tuple[torch.Tensor, ...]
    coarsest: torch.dtype = torch.float64
    """Of the float types that values on the way have."""

    @property
    def description(self) -> str:
        """The inputs and the function, to read."""
        named = (f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)} stride {list(t.stride())}" for t in self.inputs)
        return f"seed {self.seed}: {'; '.join(named)}\n{self.source}"


@dataclass(frozen=True)
class Outcome:
    """What became of a case: held, refused, no input for it, or a failure of a class."""

    seed: int
    status: str  # held, refused, undecided, wrong, failed
    reason: str
    seconds: float = 0.0


# Problems


def make_case(seed: int, *, most_elements: int = MOST_ELEMENTS, special: bool = True, moves: bool = False) -> Case:
    """The case of a seed: the same in every run; `moves`: elements are moved, too."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    while True:
        inputs = _inputs(rng, most_elements, special and rng.random() < 0.15)
        lines = list[str]()
        values = {f"x{place}": value for place, value in enumerate(inputs)}
        wanted = rng.randint(2, 9)
        for _ in range(6 * wanted):
            if len(lines) == wanted:
                break
            line = _step(rng, values, f"v{len(lines)}", most_elements, VIEWS + MOVES if moves else VIEWS)
            lines += [line] if line else []
        used = "\n".join(lines)
        if lines and all(f"x{place}" in used for place in range(len(inputs))):
            return Case(seed, _source(rng, lines, values, len(inputs)), inputs, _coarsest(values.values()))


def _coarsest(values: Iterable[torch.Tensor]) -> torch.dtype:
    floats = [value.dtype for value in values if value.is_floating_point()]
    return max(floats, key=EPSILON.__getitem__, default=torch.float64)


def _inputs(rng: random.Random, most: int, special: bool) -> tuple[torch.Tensor, ...]:
    rank = rng.choice((0, 1, 2, 2, 2, 3, 3, 4))
    while True:
        shape = [rng.choice(LAST_SIZES if dim == rank - 1 else SIZES) for dim in range(rank)]
        if 0 in shape and rng.random() < 0.7:
            continue
        if torch.Size(shape).numel() <= most:
            break
    first = _tensor(rng, tuple(shape), rng.choice(DTYPES), special)
    others = [_tensor(rng, _broadcastable(rng, shape), rng.choice((str(first.dtype)[6:], rng.choice(DTYPES))), special)
              for _ in range(rng.choice((0, 1, 1, 2)))]  # fmt: skip
    return (first, *others)


def _broadcastable(rng: random.Random, shape: Sequence[int]) -> tuple[int, ...]:
    sizes = [1 if rng.random() < 0.25 else size for size in shape]
    return tuple(sizes[rng.choice((0, 0, 0, len(sizes) // 2)) :])


def _tensor(rng: random.Random, shape: tuple[int, ...], name: str, special: bool) -> torch.Tensor:
    dtype = getattr(torch, name)
    layout = rng.choice(("dense", "dense", "dense", "transposed", "sliced", "offset", "expanded")) if shape else "dense"
    whole = list(shape)
    if layout == "transposed":
        whole = whole[::-1]
    elif layout == "sliced":
        whole[-1] *= 2
    elif layout == "offset":
        whole[0] += 1
    elif layout == "expanded":
        whole[0] = min(1, whole[0])
    values = torch.randn(whole, dtype=torch.float64)
    if not dtype.is_floating_point:
        values = (values * 4).round().clamp(0 if dtype == torch.uint8 else -9, 9)
    elif special and values.numel():
        flat = values.view(-1)
        for number in (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-30, 1e30):
            flat[rng.randrange(flat.numel())] = number
    values = values > 0 if dtype == torch.bool else values.to(dtype)
    if layout == "transposed":
        return values.permute(*reversed(range(len(shape))))
    if layout == "sliced":
        return values[..., ::2]
    return values[1:] if layout == "offset" else values.expand(shape)


def _step(rng: random.Random, values: dict[str, torch.Tensor], name: str, most: int, views: Sequence[str]) -> str:
    names = list(values)
    operand = rng.choice(names[-3:] if rng.random() < 0.8 else names)
    floating = values[operand].dtype.is_floating_point
    roll = rng.random()
    if roll < 0.15:
        template = rng.choice(views)
    elif roll < 0.6:
        template = rng.choice(FLOAT_UNARY if floating and rng.random() < 0.65 else UNARY)
    else:
        template = rng.choice(FLOAT_BINARY if floating and rng.random() < 0.35 else BINARY)
    code = template.format(operand, rng.choice(names))
    try:
        value = run_text(code, values)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return ""
    supported = not value.is_complex() and value.numel() <= 2 * most and value.dim() <= 5
    if not supported:
        return ""
    values[name] = value
    return f"    {name} = {code}"


def run_text(code: str, values: dict[str, Any]) -> torch.Tensor:
    """One expression of the tables above, on tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = eval(code, {"torch": torch, "F": torch.nn.functional}, dict(values))
    assert isinstance(found, torch.Tensor)
    return found


def _source(rng: random.Random, lines: Sequence[str], values: dict[str, torch.Tensor], count: int) -> str:
    """`reference_fn` returns the last value, at times also one that nothing else reads."""
    body = "\n".join(lines)
    unread = [f"v{place}" for place in range(len(lines) - 1) if body.count(f"v{place}") == 1]
    outputs = [f"v{len(lines) - 1}", *(rng.sample(unread, min(len(unread), 2)))]
    returned = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
    arguments = ", ".join(f"x{place}" for place in range(count))
    return (
        "import torch\nimport torch.nn.functional as F\n\n\n"
        f"def reference_fn({arguments}):\n{body}\n    return {returned}\n"
    )


# Checks


def check(case: Case, folder: Path) -> Outcome:
    """Draft the case's kernel, run it on the emulated GPU, and compare."""
    began = time.monotonic()

    def outcome(status: str, reason: str = "") -> Outcome:
        return Outcome(case.seed, status, reason, round(time.monotonic() - began, 2))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = _module(case.source, folder).reference_fn
        try:
            plan = plan_kernel(trace_function(reference, case.inputs), "sm_90a")
            kernel = plan.render(plan.configurations("sm_90a")[0])
        except UnmatchedError as refusal:
            return outcome("refused", f"{refusal.operation.split(' at ')[0]}: {refusal.message}")
        except Exception as error:  # a fault of the generator: its class is the finding
            return outcome("failed", f"draft: {type(error).__name__}: {error}")
        try:
            with emulated_device("sm_90a"):
                given = [_moved(value) for value in case.inputs]
                found = [value.cpu() for value in _listed(_module(kernel, folder).kernel_fn(*given))]
        except (EmulationError, CutesmithError) as error:
            return outcome("failed", f"{type(error).__name__}: {str(error).splitlines()[0][:160]}")
        except Exception as error:  # the class of whatever the kernel's host code raised is the finding
            return outcome("failed", f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}")
        problem = differences(reference, case.inputs, found, case.coarsest)
    return outcome("wrong", problem) if problem else outcome("held")


def differences(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], found: Sequence[torch.Tensor], coarsest: torch.dtype
) -> str:
    """What is wrong with these results of the function, "" for nothing."""
    own = _listed(function(*inputs))
    exact = _listed(function(*map(_wide, inputs)))
    nudged = [_listed(function(*(_nudged(value, sign) for value in inputs))) for sign in (1, -1, 0)]
    if len(own) != len(found):
        return f"{len(found)} results, {len(own)} expected"
    for place, (ours, theirs) in enumerate(zip(found, own, strict=True)):
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return f"shape: {ours.dtype}{list(ours.shape)} for {theirs.dtype}{list(theirs.shape)}"
        wrong = _wrong(ours, theirs, exact[place], [each[place] for each in nudged], EPSILON[coarsest])
        if wrong.any():
            at = int(wrong.flatten().nonzero()[0])
            values = " ".join(f"{float(t.flatten()[at]):.9g}" for t in (ours, theirs, exact[place]))
            return (
                f"value: {int(wrong.sum())} of {ours.numel()} {theirs.dtype}, such as {values} (ours, PyTorch, exact)"
            )
    return ""


def _wrong(
    ours: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, nudged: Sequence[torch.Tensor], epsilon: float
) -> torch.Tensor:
    """A mask of the elements that are decided and off; `epsilon` is of the coarsest type on the way."""
    floating = own.is_floating_point()
    epsilon = max(epsilon, EPSILON[own.dtype]) if floating else epsilon
    ours, own, exact = (value.double() for value in (ours, own, exact))
    slack, decided = torch.zeros_like(exact), torch.ones_like(exact, dtype=torch.bool)
    for other in (own, *(value.double() for value in nudged)):
        decided &= _same_kind(exact, other)
        slack = torch.maximum(slack, (other - exact).abs().nan_to_num())
    if not floating:
        return decided & (slack == 0) & (ours != exact)
    size = 1 + exact.abs().nan_to_num(posinf=0, neginf=0)
    near = _same_kind(exact, ours) & (
        (ours == exact) | exact.isnan() | ((ours - exact).abs() <= 4 * epsilon * size + 8 * slack)
    )
    return decided & ~near & (slack <= 0.05 * size)


def _same_kind(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Where both are finite, both NaN, or the same infinity."""
    infinite = first.isinf() | second.isinf()
    return (first.isnan() == second.isnan()) & (~infinite | (first == second))


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def _nudged(value: torch.Tensor, sign: int) -> torch.Tensor:
    """The same numbers but for their last digits, in float64; `sign` 0: up and down by turns."""
    if not value.is_floating_point():
        return value
    signs = torch.randint(0, 2, value.shape).double() * 2 - 1 if sign == 0 else torch.full(value.shape, float(sign))
    return value.double() * (1 + signs * NUDGE[value.dtype])


def _listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _moved(value: torch.Tensor) -> torch.Tensor:
    """On the GPU, with the same strides and offset."""
    base = value.new_empty(0).set_(value.untyped_storage()).cuda()
    return base.as_strided(value.shape, value.stride(), value.storage_offset())


def _module(source: str, folder: Path) -> ModuleType:
    path = Path(tempfile.mkdtemp(dir=folder)) / "module.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("fuzzed", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The command


def main() -> int:
    """Check the cases of a range of seeds; 1 where one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 200), metavar=("FIRST", "LAST"))
    parser.add_argument("--moves", action="store_true", help="cat, pad, flip, roll and the like among the operations")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case, outcome in checked(range(*options.seeds), Path(folder), moves=options.moves):
            counts[outcome.status] += 1
            if options.out:
                with options.out.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(asdict(outcome)) + "\n")
            if outcome.status != "held":
                print(f"{outcome.seed}: {outcome.status}: {outcome.reason}", flush=True)
                if options.show:
                    print(case.description, flush=True)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"seed_{outcome.seed}.py").write_text(case.source, encoding="utf-8")
    print(", ".join(f"{number} {status}" for status, number in counts.most_common()))
    return 1 if counts["wrong"] or counts["failed"] else 0


def checked(seeds: Sequence[int], folder: Path, *, moves: bool = False) -> Iterator[tuple[Case, Outcome]]:
    """Each seed's case with what became of it."""
    for seed in seeds:
        case = make_case(seed, moves=moves)
        yield case, check(case, folder)


if __name__ == "__main__":
    sys.exit(main())
