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
from dataclasses import replace
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.examples.index.features import Source, facts, in_order
from cutesmith.examples.index.records import Example
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS, canonical
from cutesmith.problems import contract

FIELD = re.compile(r"^(Arch|Operation|Features):\s*(.+)$", re.MULTILINE)
START = re.compile(r"^Start here .*", re.MULTILINE | re.DOTALL)
NEAREST = {"activation": "elementwise", "normalize": "reduction"}  # what docstrings say → the nearest operation
SENTENCE = re.compile(r"(?<=[.!?])\s")


def described(source: Source, file: Path) -> Example:
    """The record of one kernel: facts from its code, words from its docstring.

    Feature words that the vocabulary does not have are left out (`unknown_words` names them). Raises ContractError
    where the file is no kernel file, UsageError where the docstring lacks a field or names no known operation or arch.
    """
    contract.inspect_kernel(file)
    fields = dict(FIELD.findall(source.docstring))
    for name in ("Operation", "Arch"):
        if name not in fields:
            said = f"{source.path}: its docstring has no line `{name}: …`"
            raise UsageError(said, hint="See examples/index/kernels.py")
    word = fields["Operation"].strip(" .")
    operation = canonical(NEAREST.get(word, word), OPERATIONS)
    if operation is None:
        hint = "Operations are listed in cutesmith/examples/vocabulary.py"
        raise UsageError(f"{source.path}: no operation {word!r}", hint=hint)
    archs = {part.strip(" .+") for part in fields["Arch"].split(",")}
    if unknown := sorted(archs - ARCHS.keys()):
        raise UsageError(f"{source.path}: no arch {unknown}", hint=f"One of {', '.join(ARCHS)}")
    read = facts(source, id=f"cutesmith/{file.stem}", kind="cutesmith", repository="", version="", licence="Apache-2.0")
    return replace(
        read,
        operation=operation,
        arch=in_order(archs, ARCHS),
        dtypes=in_order({*read.dtypes, *(DTYPES.keys() & set(_words(source)))}, DTYPES),
        features=in_order({*read.features, *filter(None, _features(source).values())}, FEATURES),
        summary=_first_sentence(source.docstring),
        lesson=_lesson(source),
        meets_contract=True,
    )


def unknown_words(source: Source) -> list[str]:
    """Words of the docstring's `Features:` that the vocabulary has neither as a name nor as a synonym."""
    return [word for word, name in _features(source).items() if name is None]


def _features(source: Source) -> dict[str, str | None]:
    return {word: canonical(word, FEATURES) for word in _words(source) if word not in DTYPES}


def _words(source: Source) -> list[str]:
    words = dict(FIELD.findall(source.docstring)).get("Features", "").split(",")
    return [word.strip(" .") for word in words if word.strip(" .")]


def _lesson(source: Source) -> str:
    """The first sentence of the second paragraph, and the sentence that says when to start here."""
    paragraphs = source.docstring.split("\n\n")
    start = START.search(source.docstring)
    if len(paragraphs) < 2 or start is None:
        raise UsageError(f"{source.path}: its docstring lacks what it shows, or `Start here when …`", hint="Add it")
    return f"{_first_sentence(paragraphs[1])} {_first_sentence(start.group())}"


def _first_sentence(text: str) -> str:
    return SENTENCE.split(" ".join(text.split()), maxsplit=1)[0]
