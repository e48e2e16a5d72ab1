"""How near an example is to a query: terms that agree, words that occur, and how its architecture fits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from cutesmith.examples.index.records import Example
from cutesmith.examples.search.fit import FOREIGN, Fit, fit
from cutesmith.examples.search.intent import Intent
from cutesmith.examples.search.words import compounds, parts, stems, tokens
from cutesmith.examples.vocabulary import ARCHS

OPERATION, ARCH, DTYPE, FEATURE, WORDS, NAME, OWN = 6.5, 6.5, 5.0, 3.3, 14.0, 3.6, 0.4
"""What full agreement of each kind is worth; a feature's share grows with the square of its rarity.

Fitted by logistic regression over the labelled queries of evals/retrieval, five-fold, then rounded and changed by hand.
"""
ANYWHERE = 0.45  # of an architecture's worth to an example of another operation than the asked one
RARITY = 1.5  # the power of its rarity by which a word counts
RAREST = 1.5  # more for the rarest word of the query that names no term, by the third power of its rarity
COMMON_NAME = 0.2  # keeps a name of one usual word (`gemm_sm100`: gemm) from agreeing in full
MEANING = 0.4  # what a word is worth to a record that has the term but says it otherwise
NAMED = 2.0  # more for a feature that the example is named after
TIE = 0.7  # for the shortest of those that are equally near
EASE = 4.0  # for the shortest, where something to learn from is asked for
USUAL, LONG = 3, 2.0  # words of a query; how much more the words of a long one are worth at most
UNWANTED = 4.0  # less for a feature that the query excludes
LIBRARY = 0.5  # less for a part of a library, which does not run alone
UNASKED_UTILITY = 2.5
UNASKED_EXPERIMENT = 1.6  # examples of an experimental API, where an operation is asked for and not that API
EXPERIMENTAL = {"primitives_api", "task_scheduling"}
EXPERIMENTAL_FOLDER = "cute_ext"
FIELDS = {"id": 1.0, "title": 1.0, "symbols": 0.7, "terms": 0.6, "summary": 0.6, "path": 0.5, "lesson": 0.4}
"""What a word is worth by the field of the record where it stands; the best field counts."""

_GEMMS = ("gemm", "blockscaled_gemm", "blockwise_gemm", "grouped_gemm", "mixed_input_gemm", "distributed_gemm")
_NEAR: dict[frozenset[str], float] = {
    **{frozenset((a, b)): 0.45 for a in _GEMMS for b in _GEMMS if a != b},
    frozenset(("gemm", "gated_mlp")): 0.6,
    frozenset(("blockscaled_gemm", "blockwise_gemm")): 0.6,
    frozenset(("collective", "distributed_gemm")): 0.5,
    frozenset(("attention", "attention_backward")): 0.3,
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

_SHOWN_BY = {
    "blockscaled_gemm": "block_scaled",
    "mixed_input_gemm": "dequantization",
    "distributed_gemm": "multi_gpu",
    "attention_backward": "backward",
    "quantization": "quantized_output",
}
"""The feature by which an example of a near operation shows this one as well."""
SHOWN = 0.8
_PLACES = frozenset(word for name, others in ARCHS.items() for text in (name, *others) for word in tokens(text))
MEANT = 0.5

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
    specific: bool = True  # whether an operation, a feature or a word of the query agrees


class Ranking:
    """The index, prepared: the words of each record by their worth, and how rare each word and feature is."""

    def __init__(self, index: Sequence[Example]) -> None:
        self.index = tuple(index)
        self._words = {example.id: _record_words(example) for example in index}
        self._names = {example.id: _name(example) for example in index}
        self._word_counts = Counter(word for words in self._words.values() for word in words)
        self._feature_counts = Counter(feature for example in index for feature in example.features)
        self._total = max(2, len(index))
        self._terms = {e.id: {e.operation, *e.arch, *e.dtypes, *e.features} for e in index}
        self._rare = {word: self._rarity(count) for word, count in self._word_counts.items()}
        self._name_worth = {
            name: COMMON_NAME + sum(self._rare[word] for word in words) for name, words in self._names.items()
        }

    @property
    def known(self) -> frozenset[str]:
        """Every stem that some record uses."""
        return frozenset(self._word_counts)

    def rank(self, intent: Intent, among: Iterable[Example]) -> list[Ranked]:
        """The examples that agree with the query in something, best first; ties in the order of their ids.

        An architecture or a dtype alone is agreement only where the query names nothing else.
        """
        specific = bool(intent.operations or intent.features.keys() - intent.filtered or intent.plain)
        asked = {word: weight * self._rare.get(word, 1.0) ** RARITY for word, weight in intent.words.items()}
        ranked = (self._ranked(example, intent, asked) for example in among)
        found = (one for one in ranked if one.matched and (one.specific or not specific))
        return sorted(found, key=lambda one: (-one.score, one.example.id))

    def _ranked(self, example: Example, intent: Intent, asked: Mapping[str, float]) -> Ranked:
        reasons = _Reasons()
        fitting = _best_fit(example, intent.archs)
        near = _operation(example, intent, reasons)
        score = OPERATION * near if intent.operations else 0.0
        score += (ANYWHERE + (1 - ANYWHERE) * near) * _arch(fitting, reasons)
        score += _dtypes(example, intent, reasons)
        score += self._features(example, intent, reasons)
        score += self._text(example, intent, asked, reasons)
        score += RAREST * self._rarest(example, intent)
        score += (EASE if intent.easy else TIE) * _shortness(example)
        score += OWN * example.meets_contract - LIBRARY * (example.source == "package")
        score -= _unasked(example, intent)
        specific = any(kind in ("operation", "word") or name not in intent.filtered for kind, name in reasons.specific)
        return Ranked(example, round(score, 3), fitting, tuple(reasons.matched), tuple(reasons.missing), specific)

    def _features(self, example: Example, intent: Intent, reasons: _Reasons) -> float:
        """What each asked feature that it has is worth: more where it is rare or the example's name."""
        score = 0.0
        for feature, weight in intent.features.items():
            present = feature in example.features
            reasons.add(present == (weight > 0), f"feature {feature}" if weight > 0 else f"no {feature}")
            if present:
                named = self._names[example.id].issuperset(stems(tokens(feature)))
                rarity = self._rarity(self._feature_counts[feature])
                score += weight * (FEATURE * rarity**2 + NAMED * named if weight > 0 else UNWANTED * rarity)
        return score

    def _text(self, example: Example, intent: Intent, asked: Mapping[str, float], reasons: _Reasons) -> float:
        """How much of the query's words (`asked`: each by its worth) the record holds, and of its name the query."""
        words, terms = self._words[example.id], self._terms[example.id]
        for word in sorted(intent.plain & words.keys()):
            reasons.add(True, f"word {word}")
        said = {word for word, named in intent.spoken.items() if not named.isdisjoint(terms)}
        found = sum(worth * max(words.get(word, 0.0), MEANING * (word in said)) for word, worth in asked.items())
        shared = sum(self._rare[word] for word in self._names[example.id] & asked.keys())
        length = min(LONG, max(1.0, math.sqrt(len(asked) / USUAL)))
        share = found / (sum(asked.values()) or 1.0)
        return WORDS * length * share + NAME * shared / self._name_worth[example.id]

    def _rarest(self, example: Example, intent: Intent) -> float:
        """The worth of the rarest word that the record shares with the query and that names no term."""
        words = self._words[example.id]
        return max((self._rare[word] ** 3 * words[word] for word in intent.plain & words.keys()), default=0.0)

    def _rarity(self, count: int) -> float:
        """1 for what one record has, towards 0.2 for what all have; as much as the rarest for what none has."""
        return 0.2 + 0.8 * math.log(self._total / max(1, count)) / math.log(self._total)


class _Reasons:
    """What agreed and what is missing, in the order in which it was looked at."""

    def __init__(self) -> None:
        self.matched: list[str] = []
        self.missing: list[str] = []

    def add(self, present: bool, what: str) -> None:
        (self.matched if present else self.missing).append(what)

    @property
    def specific(self) -> list[tuple[str, str]]:
        """Kind and name of what matched and is neither architecture nor dtype."""
        split = (what.split(" ", 2)[:2] for what in self.matched)
        return [(kind, name) for kind, name in split if kind in ("operation", "feature", "word")]


def _name(example: Example) -> frozenset[str]:
    """The words of its own name and title that set it apart: not its folder, nor its architecture."""
    name = f"{example.id.rpartition('/')[2]} {example.title}"
    return frozenset(stems(word for word in tokens(name) if word not in _PLACES))


def _record_words(example: Example) -> Mapping[str, float]:
    texts = {
        "id": example.id,
        "title": example.title,
        "symbols": " ".join((*example.symbols, *(word for name in example.symbols for word in parts(name)))),
        "terms": " ".join((example.operation, *example.features)),
        "summary": example.summary,
        "path": " ".join(PurePosixPath(example.path).parts[-3:]),
        "lesson": example.lesson,
    }
    words: dict[str, float] = {}
    for field in sorted(FIELDS, key=lambda name: FIELDS[name]):  # the best field comes last and counts
        said = tokens(texts[field])
        words.update(dict.fromkeys([*stems(said), *compounds(said)], FIELDS[field]))
    return words


def _operation(example: Example, intent: Intent, reasons: _Reasons) -> float:
    """How near (0 to 1) it is to the nearest of the asked operations and, of several, to their mean; 1 for none."""
    if not intent.operations:
        return 1.0
    near = {name: _nearness(name, example) for name in intent.operations}
    worth = {name: weight * near[name] for name, weight in intent.operations.items()}
    best = max(worth, key=lambda name: worth[name])
    meant = [name for name, weight in intent.operations.items() if weight == 1.0] or [best]
    if example.operation in near:
        reasons.add(True, f"operation {example.operation}")
    elif near[best] > 0:
        reasons.add(True, f"operation {example.operation}, near to {best}")
    for name in meant:
        if near[name] < SHOWN:
            reasons.add(False, f"operation {name}")
    mean = sum(near[name] for name in meant) / len(meant)
    return MEANT * mean + (1 - MEANT) * worth[best] if len(meant) > 1 else worth[best]


def _nearness(asked: str, example: Example) -> float:
    if example.operation == asked:
        return 1.0
    near = _NEAR.get(frozenset((asked, example.operation)), 0.0)
    return SHOWN if near and _SHOWN_BY.get(asked) in example.features else near


def _unasked(example: Example, intent: Intent) -> float:
    cost = UNASKED_UTILITY if example.operation == "utility" and "utility" not in intent.operations else 0.0
    experimental = EXPERIMENTAL & set(example.features) or EXPERIMENTAL_FOLDER in example.id
    unasked = 1.0 in intent.operations.values() and not EXPERIMENTAL & intent.features.keys()
    return cost + (UNASKED_EXPERIMENT if experimental and unasked else 0.0)


def _shortness(example: Example) -> float:
    """1 for fifty lines or fewer, 0 for two thousand or more."""
    return min(1.0, max(0.0, math.log(2000 / max(1, example.lines)) / math.log(2000 / 50)))


def _best_fit(example: Example, archs: tuple[str, ...]) -> Fit | None:
    return max((fit(example, arch) for arch in archs), key=lambda one: one.value, default=None)


def _arch(fitting: Fit | None, reasons: _Reasons) -> float:
    if fitting is None:
        return 0.0
    if fitting.kind != FOREIGN:
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
