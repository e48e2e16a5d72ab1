"""A checkout of KernelBench as tasks: `KernelBench/level1/19_ReLU.py` is "level1/19_ReLU". No copy of it is kept here.

Its 250 problems are levels 1 to 3. Level 4 is left out: those 20 files fetch whole models from the Hugging Face hub,
and a worker has no network.
KernelBench: Ouyang et al. 2025, https://github.com/ScalingIntelligence/KernelBench.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cutesmith.errors import UsageError

FOLDER = "KernelBench"
GET = "git clone https://github.com/ScalingIntelligence/KernelBench, then --path KernelBench"
LEVEL = re.compile(r"level[123]")
NUMBERED = re.compile(r"\d+_.*\.py")


def problems_of_checkout(checkout: Path | None) -> Iterator[tuple[str, Path]]:
    """Ids and files of the levels; `checkout` is the repository's root or the folder that holds `level1`.

    Raises UsageError where there is none.
    """
    if checkout is None:
        raise UsageError("the suite kernelbench needs --path: where its checkout is", hint=GET)
    for root in (checkout / FOLDER, checkout):
        levels = sorted(path for path in root.glob("level*") if path.is_dir() and LEVEL.fullmatch(path.name))
        files = [path for level in levels for path in level.glob("*.py") if NUMBERED.fullmatch(path.name)]
        if files:
            yield from ((f"{path.parent.name}/{path.stem}", path) for path in files)
            return
    raise UsageError(f"{checkout}: no checkout of KernelBench: it has no {FOLDER}/level1/1_….py", hint=GET)
