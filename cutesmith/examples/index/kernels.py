"""Our own kernels, `examples_index/kernels/*.py`: each meets the contract and describes itself in its docstring.

What it is, one sentence.

Shows … (what a reader learns).

Arch: sm_80+
Operation: softmax
Features: vectorized_copy, warp_shuffle
Start here when …
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.examples.index import features
from cutesmith.examples.index.reading import Source
from cutesmith.examples.index.records import Example
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS, canonical
from cutesmith.problems import contract

FOLDER = "kernels"
FIELD = re.compile(r"^(Arch|Operation|Features):\s*(.+)$", re.MULTILINE)
START = re.compile(r"^Start here .*", re.MULTILINE | re.DOTALL)
NEAREST = {"activation": "elementwise", "normalize": "reduction"}  # what docstrings say → the nearest operation
SENTENCE = re.compile(r"(?<=[.!?])\s")


def kernel_files(root: Path) -> Iterator[Path]:
    """The kernel files, sorted."""
    return (file for file in sorted((root / FOLDER).glob("*.py")) if file.name != "__init__.py")


def described(source: Source, file: Path) -> Example:
    """The record of one kernel: facts from its code, words from its docstring.

    Feature words that the vocabulary does not have are left out (`unknown_words` names them). Raises ContractError
    where the file is no kernel file, UsageError where the docstring lacks a field or names no known operation or arch.
    """
    contract.inspect_kernel(file)
    fields = dict(FIELD.findall(source.docstring))
    found = {*features.features(source), *filter(None, _features(source).values())}
    stated = DTYPES.keys() & set(_words(source))
    return Example(
        id=f"cutesmith/{file.stem}",
        title=file.stem.replace("_", " "),
        operation=_operation(_required(fields, "Operation", source.path), source.path),
        arch=_archs(_required(fields, "Arch", source.path), source.path),
        dtypes=features.in_order(stated | set(features.dtypes(source)), DTYPES),
        features=features.in_order(found, FEATURES),
        source="cutesmith",
        repository="",
        version="",
        path=source.path,
        sha256=source.sha256,
        lines=source.lines,
        summary=_first_sentence(source.docstring),
        lesson=_lesson(source),
        symbols=features.symbols(source),
        meets_contract=True,
        licence="Apache-2.0",
    )


def _required(fields: dict[str, str], name: str, path: str) -> str:
    if name not in fields:
        raise UsageError(f"{path}: its docstring has no line `{name}: …`", hint="See examples/index/kernels.py")
    return fields[name]


def unknown_words(source: Source) -> list[str]:
    """Words of the docstring's `Features:` that the vocabulary has neither as a name nor as a synonym."""
    return [word for word, name in _features(source).items() if name is None]


def _features(source: Source) -> dict[str, str | None]:
    return {word: canonical(word, FEATURES) for word in _words(source) if word not in DTYPES}


def _words(source: Source) -> list[str]:
    words = dict(FIELD.findall(source.docstring)).get("Features", "").split(",")
    return [word.strip(" .") for word in words if word.strip(" .")]


def _operation(word: str, path: str) -> str:
    word = word.strip(" .")
    name = canonical(NEAREST.get(word, word), OPERATIONS)
    if name is None:
        raise UsageError(
            f"{path}: no operation {word!r}", hint="Operations are listed in cutesmith/examples/vocabulary.py"
        )
    return name


def _archs(text: str, path: str) -> tuple[str, ...]:
    archs = {part.strip(" .+") for part in text.split(",")}
    if not archs <= ARCHS.keys():
        raise UsageError(f"{path}: no arch {sorted(archs - ARCHS.keys())}", hint=f"One of {', '.join(ARCHS)}")
    return features.in_order(archs, ARCHS)


def _lesson(source: Source) -> str:
    """The first sentence of the second paragraph, and the sentence that says when to start here."""
    paragraphs = source.docstring.split("\n\n")
    start = START.search(source.docstring)
    if len(paragraphs) < 2 or start is None:
        raise UsageError(f"{source.path}: its docstring lacks what it shows, or `Start here when …`", hint="Add it")
    return f"{_first_sentence(paragraphs[1])} {_first_sentence(start.group())}"


def _first_sentence(text: str) -> str:
    return SENTENCE.split(" ".join(text.split()), maxsplit=1)[0]
