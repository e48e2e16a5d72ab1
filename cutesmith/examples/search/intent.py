"""What a query asks for: operations, architectures, dtypes, features, and the words that are none of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cutesmith.examples.index.code_names import without_code
from cutesmith.examples.search.words import EASY, Meaning, Phrase, lexicon, stems, tokens

WEAK = 0.35  # of a phrase that only hints at a term
IMPLIED = 0.6  # of an operation that a more precise one stands before
REFINED_TO = 0.4  # of an operation that with another term is a more precise one
EASILY = 0.25  # of words that only ask for something easy
NAMED = 0.5  # of the words of a term that the query names otherwise

GEMMS = ("gemm", "blockscaled_gemm", "blockwise_gemm", "grouped_gemm", "mixed_input_gemm")
REFINED = {
    ("gemm", "block_scaled"): "blockscaled_gemm",
    ("gemm", "moe"): "grouped_gemm",
    ("gemm", "varlen"): "grouped_gemm",
    **{(gemm, other): "distributed_gemm" for gemm in GEMMS for other in ("collective", "multi_gpu", "multimem")},
    ("gemm", "dequantization"): "mixed_input_gemm",
    ("attention", "backward"): "attention_backward",
}
"""An operation with another term is an operation of its own."""

ABOUT = {
    "jax": "integration",
    "aot_export": "integration",
    "torch_op": "integration",
    "pointer_arguments": "integration",
    "autotune": "tuning",
    "profiling": "tuning",
    "pdl": "launch",
    "grid_sync": "launch",
    "cuda_graph": "launch",
    "printing": "language",
}
"""Features that are what an example is about: beside an operation, the query may mean either."""

SPECIAL = {
    "gemm": {
        "blockscaled_gemm",
        "blockwise_gemm",
        "grouped_gemm",
        "mixed_input_gemm",
        "distributed_gemm",
        "gated_mlp",
        "convolution",
    },
    "attention": {"attention_backward", "mla"},
    "reduction": {"softmax", "rmsnorm", "layernorm", "cross_entropy", "topk", "scan"},
    "copy": {"transpose"},
}
"""What is said of the special operation is said of the general one too: the special one is meant."""

_FP4 = "float4_e2m1fn"
_INTEGERS = {"int4", "int8"}
_HALVES = {"float16", "bfloat16"}


@dataclass(frozen=True)
class Intent:
    """A query, understood: terms with their weights (0 to 1), and stems of its words with theirs.

    A feature that is not wanted ("without tensor cores") weighs -1.
    `dtypes` is a conjunction of alternatives (`fp8` is either of two types).
    """

    operations: Mapping[str, float] = field(default_factory=dict)
    archs: tuple[str, ...] = ()
    dtypes: tuple[frozenset[str], ...] = ()
    features: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, float] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()  # the stems that name no term
    spoken: Mapping[str, frozenset[str]] = field(default_factory=dict)  # the terms that a phrase's stems name
    filtered: frozenset[str] = frozenset()  # features that a filter asks for, not the query
    easy: bool = False  # something short to learn from
    corrections: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """What `find --json` shows of it."""
        return {
            "operations": list(self.operations),
            "archs": list(self.archs),
            "dtypes": ["|".join(sorted(group)) for group in self.dtypes],
            "features": [name for name, weight in self.features.items() if weight > 0],
            "unwanted": [name for name, weight in self.features.items() if weight < 0],
            "words": sorted(self.plain),
            "corrections": dict(self.corrections),
        }


def understand(query: str, known: frozenset[str] = frozenset()) -> Intent:
    """Read a query; `known` are the stems that the index itself uses, which are never taken for misspellings."""
    words = tokens(without_code(query, known))
    easy = any(word in EASY for word in words)
    everything, spelt = lexicon().read(words, known)
    phrases = [phrase for phrase in everything if not phrase.negated]
    unwanted = [m for phrase in everything if phrase.negated for m in phrase.meanings if m.kind == "feature"]
    meanings = [(meaning, phrase) for phrase in phrases for meaning in phrase.meanings]
    dtypes = _dtypes(phrases)
    features = _weighted(meaning for meaning, _ in meanings if meaning.kind == "feature")
    operations = _operations([meaning for meaning, _ in meanings if meaning.kind == "operation"], features, dtypes)
    spoken = _spoken(everything)
    return Intent(
        operations=operations,
        archs=tuple(dict.fromkeys(m.name for m, _ in meanings if m.kind == "arch")),
        dtypes=dtypes,
        features=features | {m.name: -1.0 for m in unwanted if m.name not in features},
        words=_words(_wanted_words(spelt, everything), [meaning for meaning, _ in meanings]),
        plain=frozenset(stems(spelt)) - spoken.keys(),
        spoken=spoken,
        easy=easy,
        corrections={was: now for was, now in zip(words, spelt, strict=True) if was != now},
    )


def _weighted(meanings: Iterable[Meaning]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for meaning in meanings:
        weights[meaning.name] = max(weights.get(meaning.name, 0.0), WEAK if meaning.weak else 1.0)
    return weights


def _dtypes(phrases: Iterable[Phrase]) -> tuple[frozenset[str], ...]:
    groups = (frozenset(m.name for m in p.meanings if m.kind == "dtype" and not m.weak) for p in phrases)
    return tuple(dict.fromkeys(filter(None, groups)))


def _operations(
    meanings: Iterable[Meaning], features: Mapping[str, float], dtypes: tuple[frozenset[str], ...]
) -> dict[str, float]:
    """The operations asked for; hints count in full where nothing is named, and yield where something is."""
    weights = _weighted(meanings)
    if weights and max(weights.values()) <= WEAK and not any(weight == 1.0 for weight in features.values()):
        weights = dict.fromkeys(weights, 2 * WEAK)
    strong = [name for name, weight in weights.items() if weight == 1.0] or list(weights)
    for general, special in SPECIAL.items():
        meant = special & weights.keys()
        if (
            any(weights.get(name) == 1.0 for name in (general, *special)) and meant
        ):  # a hint at a special one holds where its kind is named
            weights |= dict.fromkeys(meant, 1.0) | ({general: IMPLIED} if general in weights else {})
    for feature, operation in ABOUT.items():
        if features.get(feature) == 1.0 and operation not in strong:
            weights[operation] = max(weights.get(operation, 0.0), IMPLIED)
    others = {*weights, *features, *_implied_by(dtypes)}
    for (operation, other), refined in REFINED.items():
        if operation in weights and other in others and refined not in strong:
            yielding = {operation, other} & weights.keys() & {"collective", *SPECIAL}
            weights |= {name: min(weights[name], REFINED_TO) for name in yielding} | {refined: 1.0}
    return weights


def _implied_by(dtypes: tuple[frozenset[str], ...]) -> set[str]:
    named = frozenset().union(*dtypes)
    implied = {"block_scaled"} if _FP4 in named else set()
    if named & _INTEGERS and named & _HALVES:
        implied.add("dequantization")
    return implied


def _wanted_words(spelt: Iterable[str], phrases: Iterable[Phrase]) -> list[str]:
    negated = {word for phrase in phrases if phrase.negated for word in (phrase.corrected or phrase.text).split()}
    return [word for word in spelt if word not in negated]


def _spoken(phrases: Iterable[Phrase]) -> dict[str, frozenset[str]]:
    named: dict[str, frozenset[str]] = {}
    for phrase in phrases:
        terms = frozenset(meaning.name for meaning in phrase.meanings if not meaning.weak)
        for word in stems((phrase.corrected or phrase.text).split()):
            named[word] = named.get(word, frozenset()) | terms
    return named


def _words(spelt: Iterable[str], meanings: Iterable[Meaning]) -> dict[str, float]:
    """Stems of the query's words, and of the names of the terms that it means, at less weight."""
    named = {
        s: NAMED for m in meanings if not m.weak and m.kind in ("operation", "feature") for s in stems(tokens(m.name))
    }
    easy = dict.fromkeys(stems(word for word in spelt if word in EASY), EASILY)
    return named | dict.fromkeys(stems(spelt), 1.0) | easy
