#!/usr/bin/env python3
"""What the judge says of convolutions that round: KernelBench by PyTorch on a CPU, with such factors.

    python evals/studies/simulated_tf32.py KERNELBENCH --out FILE [--level N] [--only NUMBER …] [--seeds N] [--derived]

Problems with convolutions at reduced sizes, by KernelBench's tolerance of 1e-4. "Kernels" round the factors of each
convolution that PyTorch may round: to 11 bits (tf32), also with a scale in the weights, which are right, and to 11 bits
by cutting, 10 and 8 bits (bfloat16). One line a draw and kernel in --out, which grows. `--derived`: also the
draws that the judge makes itself, with the first kernel alone. Exit code 1 where a right one fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from cutesmith.evals.suites.loading import KERNELBENCH_FULL, load_suite  # noqa: E402
from cutesmith.evals.suites.reduced import reduced_text  # noqa: E402
from cutesmith.judge.reference_side.cases import Fitted, fit  # noqa: E402
from cutesmith.judge.reference_side.reference import Reference  # noqa: E402
from cutesmith.judge.reference_side.requests import Draw, Judge, Load, Plan, Tolerances  # noqa: E402
from cutesmith.judge.reference_side.rounded_factors import CONVOLUTION, _may_round  # noqa: E402
from cutesmith.judge.transfer.requests import Start  # noqa: E402
from cutesmith.judge.transfer.tensors import copy_of, write_tensor  # noqa: E402

WHOLE = 1 << 40  # elements: sizes stay, as on a GPU
SCALE = 1.37  # folded into the weights before they are rounded, and taken out of the sums


@dataclass(frozen=True)
class Rounding:
    """How a kernel rounds the factors of convolutions; `right`: no more than tf32 does."""

    name: str
    bits: int
    right: bool
    cuts: bool = False
    scale: float = 1.0

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """To nearest, ties away from zero, or towards zero."""
        mantissa, exponent = torch.frexp(value.double())
        steps = mantissa * 2**self.bits
        whole = steps.trunc() if self.cuts else (steps.abs() + 0.5).floor() * mantissa.sign()
        rounded = torch.ldexp(whole / 2**self.bits, exponent)
        return torch.where(value.isfinite(), rounded, value.double()).to(value.dtype)


KERNELS = (
    Rounding("tf32", 11, right=True),
    Rounding("tf32 of scaled weights", 11, right=True, scale=SCALE),
    Rounding("tf32, cut off", 11, right=False, cuts=True),
    Rounding("ten bits", 10, right=False),
    Rounding("bfloat16", 8, right=False),
)


class Convolving(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
    """Within it, float32 convolutions that PyTorch may round have rounded factors, and sums of float32."""

    def __init__(self, rounding: Rounding) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.rounding = rounding

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            if func is not CONVOLUTION or not _may_round(*args):
                return func(*args, **(kwargs or {}))
            image, weight, bias, *rest = args
            weight = self.rounding.of(weight * self.rounding.scale)
            result = func(self.rounding.of(image), weight, None, *rest) / self.rounding.scale
            return result if bias is None else result + bias.view(-1, *[1] * (len(rest[0])))


class WholeReference(Reference):
    """A reference on the CPU that leaves the sizes as they are."""

    def _fitted(self, values: list[Any], most_elements: int = WHOLE) -> Fitted:
        return replace(fit(values, WHOLE, self._refusal), values=[])


def lines(problem: Path, seeds: int, kernels: int, *, derived: bool, folder: Path) -> Iterator[dict[str, Any]]:
    """What the judge says of the first so many kernels on each draw of a problem."""
    reference = WholeReference()
    reference.start(Start("emulator"))
    reference.load(Load("emulator", str(problem), 1, "sm_90a"))
    draws = [("", True)]
    if derived:
        cases = reference.plan(Plan(shapes=False, quick=False)).cases
        draws += [(name, case.strict) for case in cases if not case.may_decline for name in case.draws if name]
    for seed in range(seeds):
        for draw, strict in draws:
            drawn = reference.draw(Draw(key="drawn", seed=seed, folder=str(folder / "in"), derive=draw))
            for rounding in KERNELS[: 1 if draw else kernels] if drawn.accepted else ():
                yield {
                    "seed": seed,
                    "draw": draw,
                    **said(reference, rounding, folder, derived=bool(draw), strict=strict),
                }
    reference.exits.close()


def said(reference: Reference, rounding: Rounding, folder: Path, *, derived: bool, strict: bool) -> dict[str, Any]:
    """The verdict on one kernel for the inputs that were drawn last."""
    function: Callable[..., Any] = reference.function
    with torch.no_grad(), Convolving(rounding):
        returned = function(*map(copy_of, reference.drawn["drawn"]))
    is_tuple = isinstance(returned, (tuple, list))
    outputs = list(returned) if is_tuple else [returned]
    files = tuple(write_tensor(output, folder / f"out{index}") for index, output in enumerate(outputs))
    stated = Tolerances(rtol=KERNELBENCH_FULL, atol=KERNELBENCH_FULL, derived=derived, strict=strict)
    judged = reference.judge(Judge("drawn", files, is_tuple, stated))
    why = judged.violation.text if judged.violation else ""
    passed = judged.violation is None
    return {
        "kernel": rounding.name, "right": rounding.right, "passed": passed, "tf32_decided": judged.rounded,
        "why": why, "note": judged.note, "elements": outputs[0].numel(),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--level", type=int, action="append", default=[])
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=len(KERNELS), help="how many of them, the first ones")
    parser.add_argument("--derived", action="store_true")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    suite = load_suite("kernelbench", path=options.checkout, levels=options.level, ids=options.only)
    wrong = 0
    with options.out.open("a") as out, TemporaryDirectory() as folder:
        for task in suite.tasks:
            if "Conv" not in task.path.read_text():
                continue
            problem = Path(folder) / task.path.name
            problem.write_text(reduced_text(task.path))
            found = lines(problem, options.seeds, options.kernels, derived=options.derived, folder=Path(folder))
            for line in found:
                wrong += line["right"] and not line["passed"]
                print(json.dumps({"task": task.id, **line}), file=out, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
