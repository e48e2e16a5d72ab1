"""One record an example, and the index that holds them: `examples_index/index.jsonl`, sorted by id."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutesmith import resources
from cutesmith.errors import UsageError

FILE = "index.jsonl"
SOURCES = ("cutesmith", "package", "cutlass")


@dataclass(frozen=True)
class Example:
    """What is known of one example.

    `id` is unique, made of a–z, 0–9, `-`, `_` and `/`, and starts with its source: `cutesmith/gemm_sm80_bias_gelu`,
    `quack/softmax`, `operators/…`, `cutlass/hopper/dense_gemm_persistent`. `path` is relative to `examples_index/` for
    our own kernels, to the site-packages folder for a package, to the repository's root for CUTLASS.
    """

    id: str
    title: str
    operation: str  # of OPERATIONS in vocabulary.py: gemm, attention, softmax, …
    arch: tuple[str, ...]  # sm_80, sm_90a, sm_100a, …: what it was written for
    dtypes: tuple[str, ...]  # torch's names: bfloat16, float16, float8_e4m3fn, …
    features: tuple[str, ...]  # of FEATURES in vocabulary.py: tma, wgmma, cp_async, persistent, cluster, …
    source: str  # of SOURCES
    repository: str  # "" for our own, the distribution's name for a package, "NVIDIA/cutlass"
    version: str  # "" for our own, the distribution's version, the commit (40 hex digits)
    path: str
    sha256: str
    lines: int
    summary: str  # one sentence
    lesson: str  # what to learn from it: one or two sentences
    symbols: tuple[str, ...]  # entry points: kernel classes, @cute.jit and @cute.kernel functions
    meets_contract: bool = False  # kernel_fn, reference_fn and get_inputs
    licence: str = "BSD-3-Clause"


def read_index(path: Path | None = None) -> tuple[Example, ...]:
    """Every record, in the order of the file; raises UsageError with the line where one is broken."""
    file = path or resources.folder("examples_index") / FILE
    return tuple(
        _record(line, file, number)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if line.strip()
    )


def write_index(examples: Iterable[Example], path: Path) -> None:
    """Write the records sorted by id, one JSON object a line."""
    lines = [json.dumps(asdict(e), ensure_ascii=False) for e in sorted(examples, key=lambda e: e.id)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _record(line: str, file: Path, number: int) -> Example:
    try:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(line).items()}
        return Example(**fields)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{file}:{number}: no example record: {error}", hint="Rebuild it: scripts/update_examples_index.py --help"
        ) from error
