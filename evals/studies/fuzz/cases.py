"""A problem from a seed: a function of 2 to 9 operations from all families, and its inputs.

One family is the case's anchor: the first input has a shape that suits it, and one step at least is of it. The other
steps are pointwise for the most part. Floats are cast to integers within their range, and no sign of a NaN is asked
for: there PyTorch's CPU and GPU differ.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from evals.studies.fuzz.comparison import EPSILON
from evals.studies.fuzz.families import DTYPES, FAMILIES, LAST_SIZES, SIZES, Draws, Unfit, dtype_name, tensor

MOST_ELEMENTS = 20_000
ANCHORS = {
    "pointwise": 4, "movement": 1, "reductions": 3, "norms": 2, "losses": 1, "contractions": 5, "convolutions": 4,
    "windows": 2, "scans": 2, "attention": 2, "selection": 2, "scatters": 1, "writes": 2,
}  # fmt: skip
USUAL = {"pointwise": 12, "views": 4, "reductions": 3, "norms": 1, "movement": 1, "losses": 1, "contractions": 1,
         "writes": 1}  # fmt: skip
"""How often a step that is not the anchor's is of a family."""
CHANNELS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
IMAGES = {1: (1, 5, 16, 17, 33, 100, 257), 2: (1, 3, 4, 5, 7, 8, 13, 16, 28), 3: (2, 3, 4, 5, 7, 8)}
FLOATS = ("float32", "float32", "float32", "bfloat16", "bfloat16", "float16", "float64")


@dataclass(frozen=True)
class Case:
    """A problem made from a seed: the body of `reference_fn`, and the inputs."""

    seed: int
    source: str
    inputs: tuple[torch.Tensor, ...]
    coarsest: torch.dtype = torch.float64
    """Of the float types that values on the way have."""
    families: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The inputs and the function, to read."""
        named = (f"{dtype_name(t)}{list(t.shape)} stride {list(t.stride())}" for t in self.inputs)
        return f"seed {self.seed}: {'; '.join(named)}\n{self.source}"


def make_case(seed: int) -> Case:
    """The case of a seed: the same in every run."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    (anchor,) = rng.choices([*ANCHORS], [*ANCHORS.values()])
    while True:
        draws = Draws(rng, MOST_ELEMENTS, special=rng.random() < 0.12)
        _first_inputs(draws, anchor)
        case = _composed(seed, draws, anchor)
        if case is not None:
            return case


def _composed(seed: int, d: Draws, anchor: str) -> Case | None:
    """A case on these inputs; None where the anchor or an input found no place in it."""
    wanted = d.rng.randint(2, 9)
    turn, lines, families = d.rng.randrange(max(1, wanted - 1)), list[str](), list[str]()
    for _ in range(8 * wanted):
        if len(lines) == wanted:
            break
        (usual,) = d.rng.choices([*USUAL], [*USUAL.values()])
        family = anchor if len(lines) >= turn and anchor not in families else usual
        line = _step(d, family, f"v{len(lines)}")
        lines += [line] if line else []
        families += [family] if line else []
    used = "\n".join(lines)
    if len(lines) < 2 or anchor not in families or not all(_reads(used, f"x{n}") for n in range(len(d.inputs))):
        return None
    source = _source(d, lines)
    return Case(seed, source, tuple(d.inputs), _coarsest(d.values.values()), tuple(dict.fromkeys(families)))


def _reads(text: str, name: str) -> bool:
    return any(not text[at + len(name) :][:1].isdigit() for at in range(len(text)) if text.startswith(name, at))


def _coarsest(values: Iterable[torch.Tensor]) -> torch.dtype:
    floats = [value.dtype for value in values if value.is_floating_point()]
    return max(floats, key=EPSILON.__getitem__, default=torch.float64)


def _first_inputs(d: Draws, anchor: str) -> None:
    """The first input as the anchor takes it, and others that broadcast with it."""
    rng = d.rng
    while True:
        shape = _shape(rng, anchor)
        if 0 in shape and rng.random() < 0.7:
            continue
        if torch.Size(shape).numel() <= d.most:
            break
    floats = anchor in ("contractions", "convolutions", "windows", "attention", "norms", "losses")
    first = tensor(rng, tuple(shape), rng.choice(FLOATS if floats else DTYPES), d.special)
    d.input(first)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        name = rng.choice((dtype_name(first), dtype_name(first), rng.choice(DTYPES)))
        d.input(tensor(rng, _broadcastable(rng, shape), name, d.special))


def _shape(rng: random.Random, anchor: str) -> list[int]:
    if anchor in ("convolutions", "windows"):
        rank = rng.choice((1, 2, 2, 2, 3))
        return [rng.choice((1, 1, 2, 3)), rng.choice(CHANNELS), *(rng.choice(IMAGES[rank]) for _ in range(rank))]
    if anchor == "attention":
        heads = rng.choice(([2], [1, 2], [2, 4], [1, 1], [3, 2]))
        return [*heads, rng.choice((1, 2, 7, 16, 17, 33, 64, 100)), rng.choice((16, 32, 40, 64, 64, 128))]
    rank = rng.choice((1, 2, 2, 2, 3, 3, 4)) if anchor != "pointwise" else rng.choice((0, 1, 2, 2, 2, 3, 3, 4))
    return [rng.choice(LAST_SIZES if dim == rank - 1 else SIZES) for dim in range(rank)]


def _broadcastable(rng: random.Random, shape: Sequence[int]) -> tuple[int, ...]:
    sizes = [1 if rng.random() < 0.25 else size for size in shape]
    return tuple(sizes[rng.choice((0, 0, 0, len(sizes) // 2)) :])


def _step(d: Draws, family: str, name: str) -> str:
    """One line of the function, "" where this try does not fit; what it made is taken back then."""
    inputs, before = len(d.inputs), (dict(d.values), dict(d.wide))
    try:
        code = f"{name} = {FAMILIES[family](d)}".format(v=name)
        value, exact = run_text(code, name, d.values), run_text(code, name, d.wide)
    except (Unfit, RuntimeError, IndexError, TypeError, ValueError, AttributeError):
        value = exact = None
    if value is None or exact is None or value.is_complex() or value.numel() > 2 * d.most or value.dim() > 5:
        del d.inputs[inputs:]
        d.values, d.wide = before
        return ""
    d.values[name], d.wide[name] = value, exact
    return f"    {code}"


def run_text(code: str, name: str, values: dict[str, Any]) -> torch.Tensor:
    """What one step gives its name, on tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(code, {"torch": torch, "F": torch.nn.functional}, names := dict(values))
    found = names[name]
    assert isinstance(found, torch.Tensor)
    return found


def _source(d: Draws, lines: Sequence[str]) -> str:
    """`reference_fn` returns the last value, at times also one that nothing else reads."""
    body = "\n".join(lines)
    unread = [f"v{n}" for n in range(len(lines) - 1) if not any(_reads(line, f"v{n}") for line in lines[n + 1 :])]
    outputs = [f"v{len(lines) - 1}", *(d.rng.sample(unread, min(len(unread), 2)))]
    returned = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
    arguments = ", ".join(f"x{place}" for place in range(len(d.inputs)))
    return (
        "import torch\nimport torch.nn.functional as F\n\n\n"
        f"def reference_fn({arguments}):\n{body}\n    return {returned}\n"
    )
