"""One record an example, and the index that holds them, sorted by id: `examples_index/index.jsonl`.

`examples_index/table.md` is the index for people, one Markdown table an operation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutesmith import resources
from cutesmith.errors import UsageError
from cutesmith.examples.vocabulary import OPERATIONS

FILE, TABLE = "index.jsonl", "table.md"
SOURCES = ("cutesmith", "package", "cutlass", "repository")
TABLE_INTRODUCTION = """\
# All examples, by operation

Generated from `index.jsonl` by `scripts/update_examples_index.py --write`; do not edit. What the sources are:
[README.md](README.md). `scripts/find_example.py` searches the same records and says why one is near.
"""


@dataclass(frozen=True)
class Example:
    """What is known of one example.

    `id` is unique, made of a–z, 0–9, `-`, `_` and `/`, and starts with its source: `cutesmith/gemm_sm80_bias_gelu`,
    `quack/softmax`, `operators/…`, `cutlass/hopper/dense_gemm_persistent`. `path` is relative to `examples_index/` for
    our own kernels, to the site-packages folder for a package, else to the root of its repository.
    """

    id: str
    title: str
    operation: str  # of OPERATIONS in vocabulary.py: gemm, attention, softmax, …
    arch: tuple[str, ...]  # sm_80, sm_90a, sm_100a, …: what it was written for
    dtypes: tuple[str, ...]  # torch's names: bfloat16, float16, float8_e4m3fn, …
    features: tuple[str, ...]  # of FEATURES in vocabulary.py: tma, wgmma, cp_async, persistent, cluster, …
    source: str  # of SOURCES
    repository: str  # "" for our own, the distribution's name for a package, else GitHub's: "NVIDIA/cutlass"
    version: str  # "" for our own, the distribution's version, the commit (40 hex digits)
    path: str
    sha256: str
    lines: int
    summary: str  # one sentence
    lesson: str  # what to learn from it: one or two sentences
    symbols: tuple[str, ...]  # entry points: kernel classes, @cute.jit and @cute.kernel functions
    meets_contract: bool = False  # kernel_fn, reference_fn and get_inputs
    licence: str = "BSD-3-Clause"

    @property
    def from_github(self) -> bool:
        """Is it a file at a commit, neither our own nor of a package?"""
        return self.source in ("cutlass", "repository")


def read_index(path: Path | None = None) -> tuple[Example, ...]:
    """Every record, in the order of the file; raises UsageError with the line where one is broken."""
    file = path or resources.folder("examples_index") / FILE
    examples = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            if line.strip():
                read = json.loads(line).items()
                fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in read}
                examples.append(Example(**fields))
        except (ValueError, TypeError, AttributeError) as error:
            hint = "Rebuild it: scripts/update_examples_index.py --help"
            raise UsageError(f"{file}:{number}: no example record: {error}", hint=hint) from error
    return tuple(examples)


def write_index(examples: Iterable[Example], path: Path) -> None:
    """Write the records sorted by id, one JSON object a line."""
    lines = [json.dumps(asdict(e), ensure_ascii=False) for e in sorted(examples, key=lambda e: e.id)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(examples: Sequence[Example]) -> str:
    """The text of `table.md`: in the order of the vocabulary's operations; our own kernels come first in each."""
    counts = Counter(example.source for example in examples)
    counted = ", ".join(f"{counts[source]} {source}" for source in SOURCES if counts[source])
    ranked = sorted(examples, key=lambda example: (SOURCES.index(example.source), example.id))
    groups = ((name, [e for e in ranked if e.operation == name]) for name in OPERATIONS)
    tables = "\n\n".join("\n".join(_group(name, members)) for name, members in groups if members)
    return f"{TABLE_INTRODUCTION}\n{len(examples)} examples: {counted}.\n\n{tables}\n"


def _group(operation: str, members: Iterable[Example]) -> Iterator[str]:
    meaning = OPERATIONS[operation].meaning
    yield f"## {operation}\n\n{meaning[0].upper()}{meaning[1:]}.\n"
    yield "| example | written for | dtypes | what it is |\n|---|---|---|---|"
    for example in members:
        cells = (_link(example), " ".join(example.arch), " ".join(example.dtypes), example.summary)
        escaped = (cell.replace("|", r"\|") for cell in cells)
        yield f"| {' | '.join(escaped)} |"


def _link(example: Example) -> str:
    if example.source == "cutesmith":
        return f"[`{example.id}`]({example.path})"
    if example.from_github:
        return f"[`{example.id}`](https://github.com/{example.repository}/blob/{example.version}/{example.path})"
    return f"`{example.id}` ({example.repository} {example.version})"
