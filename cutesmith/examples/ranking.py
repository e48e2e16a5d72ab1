"""How near an example is to a query: terms that agree, words that occur, and how its architecture fits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from cutesmith.examples.fit import FOREIGN, Fit, fit
from cutesmith.examples.intent import Intent
from cutesmith.examples.records import Example
from cutesmith.examples.words import stems, tokens

OPERATION, ARCH, DTYPE, FEATURE, WORDS, NAME, OWN = 8.0, 4.0, 2.5, 2.0, 5.0, 1.5, 0.6
"""What full agreement of each kind is worth; a feature's share grows with its rarity."""
FOREIGN_COST = 3.0
UNASKED_UTILITY = 2.0
FIELDS = {"id": 1.0, "title": 1.0, "symbols": 0.7, "terms": 0.6, "summary": 0.6, "path": 0.5, "lesson": 0.4}
"""What a word is worth by the field of the record where it stands; the best field counts."""

_GEMMS = ("gemm", "blockscaled_gemm", "blockwise_gemm", "grouped_gemm", "mixed_input_gemm", "distributed_gemm")
_NEAR: dict[frozenset[str], float] = {
    **{frozenset((a, b)): 0.45 for a in _GEMMS for b in _GEMMS if a != b},
    frozenset(("gemm", "gated_mlp")): 0.6,
    frozenset(("blockscaled_gemm", "blockwise_gemm")): 0.6,
    frozenset(("collective", "distributed_gemm")): 0.5,
    frozenset(("attention", "attention_backward")): 0.5,
    frozenset(("attention", "mla")): 0.6,
    frozenset(("softmax", "cross_entropy")): 0.5,
    frozenset(("softmax", "reduction")): 0.4,
    frozenset(("rmsnorm", "layernorm")): 0.7,
    frozenset(("rmsnorm", "reduction")): 0.4,
    frozenset(("layernorm", "reduction")): 0.4,
    frozenset(("scan", "reduction")): 0.4,
    frozenset(("topk", "sort")): 0.5,
    frozenset(("transpose", "copy")): 0.5,
    frozenset(("elementwise", "copy")): 0.4,
    frozenset(("elementwise", "rotary")): 0.4,
    frozenset(("quantization", "elementwise")): 0.4,
    frozenset(("hardware_primitive", "synchronization")): 0.5,
    frozenset(("convolution", "gemm")): 0.4,
}
"""Operations from which another is soon written."""

_WIDTHS = (
    frozenset(("float16", "bfloat16")),
    frozenset(("float8_e4m3fn", "float8_e5m2")),
    frozenset(("float6_e3m2fn", "float6_e2m3fn")),
    frozenset(("int8", "uint8")),
    frozenset(("float32", "tfloat32")),
)
_SAME_WIDTH = 0.6


@dataclass(frozen=True)
class Ranked:
    """An example with its score, how it fits the asked architecture (None: none was asked), and the reasons."""

    example: Example
    score: float
    fit: Fit | None
    matched: tuple[str, ...]
    missing: tuple[str, ...]


class Ranking:
    """The index, prepared: the words of each record by their worth, and how rare each word and feature is."""

    def __init__(self, index: Sequence[Example]) -> None:
        self.index = tuple(index)
        self._words = {example.id: _record_words(example) for example in index}
        self._names = {example.id: frozenset(stems(tokens(_name(example)))) for example in index}
        self._word_counts = Counter(word for words in self._words.values() for word in words)
        self._feature_counts = Counter(feature for example in index for feature in example.features)

    @property
    def known(self) -> frozenset[str]:
        """Every stem that some record uses."""
        return frozenset(self._word_counts)

    def rank(self, intent: Intent, among: Iterable[Example]) -> list[Ranked]:
        """The examples that agree with the intent in something, best first; ties in the order of their ids."""
        ranked = (self._ranked(example, intent) for example in among)
        return sorted((one for one in ranked if one.matched), key=lambda one: (-one.score, one.example.id))

    def _ranked(self, example: Example, intent: Intent) -> Ranked:
        reasons = _Reasons()
        fitting = _best_fit(example, intent.archs)
        score = _operation(example, intent, reasons)
        score += _arch(fitting, reasons)
        score += _dtypes(example, intent, reasons)
        score += self._features(example, intent, reasons)
        score += self._text(example, intent, reasons)
        score += OWN if example.meets_contract else 0.0
        score -= UNASKED_UTILITY if example.operation == "utility" and "utility" not in intent.operations else 0.0
        return Ranked(example, round(score, 3), fitting, tuple(reasons.matched), tuple(reasons.missing))

    def _features(self, example: Example, intent: Intent, reasons: _Reasons) -> float:
        score = 0.0
        for feature, weight in intent.features.items():
            present = feature in example.features
            reasons.add(present, f"feature {feature}")
            score += present * weight * FEATURE * self._rarity(self._feature_counts[feature])
        return score

    def _text(self, example: Example, intent: Intent, reasons: _Reasons) -> float:
        """How much of the query's words the record holds, and how much of the record's name the query."""
        words, name = self._words[example.id], self._names[example.id]
        asked = {word: weight * self._rarity(self._word_counts[word]) for word, weight in intent.words.items()}
        found = sum(worth * words.get(word, 0.0) for word, worth in asked.items())
        named = sum(self._rarity(self._word_counts[word]) for word in name)
        shared = sum(self._rarity(self._word_counts[word]) for word in name if word in asked)
        for word in sorted(intent.plain & words.keys()):
            reasons.add(True, f"word {word}")
        return WORDS * found / (sum(asked.values()) or 1.0) + NAME * shared / (named or 1.0)

    def _rarity(self, count: int) -> float:
        """1 for what one record has, towards 0.2 for what all have; as much as the rarest for what none has."""
        total = max(2, len(self.index))
        return 0.2 + 0.8 * math.log(total / max(1, count)) / math.log(total)


class _Reasons:
    """What agreed and what is missing, in the order in which it was looked at."""

    def __init__(self) -> None:
        self.matched: list[str] = []
        self.missing: list[str] = []

    def add(self, present: bool, what: str) -> None:
        (self.matched if present else self.missing).append(what)


def _name(example: Example) -> str:
    return f"{example.id} {example.title}"


def _record_words(example: Example) -> Mapping[str, float]:
    texts = {
        "id": example.id,
        "title": example.title,
        "symbols": " ".join(example.symbols),
        "terms": " ".join((example.operation, *example.features)),
        "summary": example.summary,
        "path": " ".join(PurePosixPath(example.path).parts[-3:]),
        "lesson": example.lesson,
    }
    words: dict[str, float] = {}
    for field, text in texts.items():
        for word in stems(tokens(text)):
            words[word] = max(words.get(word, 0.0), FIELDS[field])
    return words


def _operation(example: Example, intent: Intent, reasons: _Reasons) -> float:
    if not intent.operations:
        return 0.0
    asked = intent.operations
    near = {name: weight * _nearness(name, example.operation) for name, weight in asked.items()}
    best = max(near, key=lambda name: near[name])
    if example.operation in asked:
        reasons.add(True, f"operation {example.operation}")
    elif near[best] > 0:
        reasons.add(True, f"operation {example.operation}, near to {best}")
    missing = [name for name, weight in asked.items() if weight == 1.0 and name != example.operation]
    if missing and example.operation not in asked:
        reasons.add(False, f"operation {missing[0]}")
    return OPERATION * near[best]


def _nearness(asked: str, there: str) -> float:
    return 1.0 if asked == there else _NEAR.get(frozenset((asked, there)), 0.0)


def _best_fit(example: Example, archs: tuple[str, ...]) -> Fit | None:
    return max((fit(example, arch) for arch in archs), key=lambda one: one.value, default=None)


def _arch(fitting: Fit | None, reasons: _Reasons) -> float:
    if fitting is None:
        return 0.0
    if fitting.kind == FOREIGN:
        return -FOREIGN_COST
    reasons.add(True, f"architecture ({fitting.kind})")
    return ARCH * fitting.value


def _dtypes(example: Example, intent: Intent, reasons: _Reasons) -> float:
    score = 0.0
    for group in intent.dtypes:
        present = bool(group & set(example.dtypes))
        same_width = any(group & width and set(example.dtypes) & width for width in _WIDTHS)
        reasons.add(present, f"dtype {'|'.join(sorted(group & set(example.dtypes) or group))}")
        score += 1.0 if present else _SAME_WIDTH if same_width else 0.0
    return DTYPE * score / (len(intent.dtypes) or 1)
