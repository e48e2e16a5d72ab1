"""Cases of `bench_patterns.py`: layers of recurrent networks, beside cuDNN, which nn.Module calls.

Each is a file, as a module's parameters have no place among a case's arguments. The time contains the product that
gives the input of all steps. cuDNN gets weights that do not lie together, and copies them in each call.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernelbench_cases import arguments_of
from pattern_cases import Case

from cutesmith.problems.loading import load_file

FILE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.{kind}({inputs}, {units}, batch_first=True, bidirectional={both_ways}).to(torch.{dtype})

    def forward(self, x):
        return self.net(x)[0]


def get_inputs():
    return [torch.randn({rows}, {steps}, {inputs}, dtype=torch.{dtype})]


def get_init_inputs():
    return []
"""
LAYERS = (
    *(("LSTM", *layer) for layer in ((256, 10, 512), (256, 64, 256), (128, 16, 256), (512, 32, 128), (32, 256, 128))),
    *(("GRU", *layer) for layer in ((256, 10, 512), (512, 64, 128), (1024, 64, 64))),
    *(("RNN", *layer) for layer in ((256, 8, 512), (512, 32, 256))),
)


def recurrent() -> Iterator[Case]:
    """Kinds, units, rows of the batch and steps; half as many inputs as units."""
    for kind, *sizes in LAYERS:
        yield _case(kind, *sizes)
    for units, rows, steps in ((256, 32, 256), (512, 32, 128)):
        yield _case("LSTM", units, rows, steps, dtype="bfloat16")
    yield _case("LSTM", 128, 64, 256, both_ways=True)


def _case(kind: str, units: int, rows: int, steps: int, *, dtype: str = "float32", both_ways: bool = False) -> Case:
    words = {"kind": kind, "inputs": units // 2, "units": units, "rows": rows, "steps": steps, "dtype": dtype}
    path = Path(tempfile.mkdtemp(prefix="cutesmith-")) / "problem.py"
    path.write_text(FILE.format(both_ways=both_ways, **words))
    problem = load_file(path)
    ways = ", both ways" if both_ways else ""
    name = f"{kind} of {units}, {rows} rows, {steps} steps, {dtype}{ways}"
    return Case(
        name, problem.reference_fn, arguments_of(problem), 2, compiled="default", problem=problem, tolerance=2e-2
    )
