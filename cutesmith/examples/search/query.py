"""What a query asks for: phrases that name terms of the vocabulary, what a misspelling meant, and all other words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cache

from cutesmith.devices import SM_VERSIONS
from cutesmith.examples.search.structure import structures_of_text
from cutesmith.examples.search.words import MORE, SHORT, STOPWORDS, parts, stem, stems, tokens
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS
from cutesmith.verdicts import UnderstoodQuery

NEGATIONS = {"without", "no", "not", "non"}
EASY = frozenset("basic basics beginner easiest easy intro introduction minimal naive simple simplest smallest".split())
"""Words that ask for something short to learn from."""

_CODE = [
    (re.compile(pattern), f" {words} ")
    for pattern, words in (
        (r"\.t\(\)\.contiguous\(\)|\.m?T\.contiguous\(\)", "transpose"),
        (r"(?<=[\w)])\s*@\s*(?=[\w(])", "matmul"),
        (r"\.m?T(?!\w)|\.t\(\)", ""),
        (r"(?<=\b[a-z])\s*[+*-]\s*(?=[a-z]\b)|(?<=\))\s*\*\s*(?=[a-z]\b)", "elementwise"),
    )
]
"""Operators of PyTorch code by the words that the records use."""

_LONGEST = 6  # words of a phrase
_TYPOS = 2  # letters that a misspelt word has wrong; two that changed places count twice


_TOGETHER = {
    ("attention", "backward"): "attention_backward",
    ("softmax", "gemm"): "attention",
    ("gemm", "block_scaled"): "blockscaled_gemm",
    ("gemm", "moe"): "grouped_gemm",
    ("gemm", "dequantization"): "mixed_input_gemm",
    ("gemm", "multi_gpu"): "distributed_gemm",
}
"""Operations that two terms of a query name together, wherever these stand: "gradient of attention"."""


@dataclass(frozen=True, order=True)
class Meaning:
    """A term that a phrase names: its kind (operation, arch, dtype, feature) and its name in the vocabulary."""

    kind: str
    name: str

    @property
    def word(self) -> str:
        """The term as a word of the ranking, which no text contains."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class Query:
    """A query: the terms that each phrase names, the terms that are not wanted, and the stems of its words."""

    phrases: tuple[tuple[Meaning, ...], ...] = ()
    unwanted: tuple[Meaning, ...] = ()
    words: tuple[str, ...] = ()
    plain: frozenset[str] = frozenset()  # those that name no term
    topic: frozenset[str] = frozenset()  # those that name no architecture and no dtype
    unknown: tuple[str, ...] = ()  # whole words that name no term and stand in no record
    easy: bool = False  # something short to learn from
    corrections: tuple[tuple[str, str], ...] = ()

    def named(self, kind: str) -> list[str]:
        """The terms of a kind, in the order of the query."""
        return list(dict.fromkeys(m.name for phrase in self.phrases for m in phrase if m.kind == kind))

    def understood(self) -> UnderstoodQuery:
        """What `find` shows of it."""
        groups = [sorted(m.name for m in phrase if m.kind == "dtype") for phrase in self.phrases]
        return UnderstoodQuery(
            operations=tuple(self.named("operation")),
            archs=tuple(self.named("arch")),
            dtypes=tuple(dict.fromkeys("|".join(group) for group in groups if group)),
            features=tuple(self.named("feature")),
            unwanted=tuple(meaning.name for meaning in self.unwanted),
            words=tuple(sorted(self.plain)),
            corrections=dict(self.corrections),
        )


def read_query(text: str, known: frozenset[str] = frozenset()) -> Query:
    """Read a query; `known` are the stems of the index, which are never taken for misspellings."""
    words = tokens(" ".join([_without_code(text, known), *structures_of_text(text)]))
    spelt = [_spelling(word, known) for word in words]
    phrases: list[tuple[Meaning, ...]] = []
    unwanted: list[Meaning] = []
    spoken, excluded, platform = set[int](), set[int](), set[int]()  # places of words
    for places, meanings in _phrases(spelt):
        spoken.update(places)
        if any(meaning.kind in ("arch", "dtype") for meaning in meanings):
            platform.update(places)
        if places[0] and spelt[places[0] - 1] in NEGATIONS:
            unwanted += [meaning for meaning in meanings if meaning.kind == "feature"]
            excluded.update(places)
        else:
            phrases.append(meanings)
    phrases = _reread([*phrases, *_together(phrases)])
    wanted = {meaning for phrase in phrases for meaning in phrase}

    def without(places: set[int]) -> list[str]:
        return stems(word for place, word in enumerate(spelt) if place not in places)

    return Query(
        phrases=tuple(phrases),
        unwanted=tuple(meaning for meaning in dict.fromkeys(unwanted) if meaning not in wanted),
        words=tuple(without(excluded)),
        plain=frozenset(without(spoken)),
        topic=frozenset(without(excluded | platform)),
        unknown=tuple(w for p, w in enumerate(spelt) if p not in spoken and _tells(w) and stem(w) not in known),
        easy=not EASY.isdisjoint(spelt),
        corrections=tuple((was, now) for was, now in zip(words, spelt) if was != now),
    )


@cache
def lexicon() -> dict[str, tuple[Meaning, ...]]:
    """Key of a phrase → the terms that it names."""
    found: dict[str, dict[Meaning, None]] = {}
    for meaning, phrase in spoken_terms():
        found.setdefault(key(tokens(phrase)), {})[meaning] = None
    return {phrase: tuple(meanings) for phrase, meanings in found.items()}


def spoken_terms() -> Iterator[tuple[Meaning, str]]:
    """Every term with each of its names: synonyms, products."""
    kinds = {
        "operation": {name: term.synonyms for name, term in OPERATIONS.items()},
        "feature": {name: term.synonyms for name, term in FEATURES.items()},
        "dtype": DTYPES,
        "arch": {**dict.fromkeys(["sm_60", "sm_70", "sm_75"], ()), **ARCHS},
    }
    for kind, terms in kinds.items():
        for name, synonyms in terms.items():
            for phrase in (name, *synonyms, *filter(None, MORE.get(name, "").split(","))):
                yield Meaning(kind, name), phrase
    targets = {name.rstrip("af"): name for name in ARCHS}
    for sm in SM_VERSIONS.values():
        plain = f"sm_{sm.number}"
        for phrase in (*sm.products, plain, f"{plain}a", f"{plain}f"):
            yield Meaning("arch", targets.get(plain, plain)), phrase


def key(words: Sequence[str]) -> str:
    """Words run together, the last one stemmed: `rms norm`, `rmsnorm` and `RMS-norms` have one key."""
    return "".join([*words[:-1], stem(words[-1])]) if words else ""


@cache
def _vocabulary() -> frozenset[str]:
    """Every word of a phrase, and every phrase run together."""
    split = [tokens(phrase) for _, phrase in spoken_terms()]
    return frozenset([*itertools.chain(*split), *("".join(words) for words in split)])


def compounds(words: Sequence[str]) -> list[str]:
    """The stems of neighbours that are also written as one word: `all reduce` and `allreduce` are one."""
    pairs = (first + second for first, second in itertools.pairwise(words))
    return [stem(pair) for pair in pairs if len(pair) > 4 and pair in _vocabulary()]


def _phrases(words: Sequence[str]) -> list[tuple[range, tuple[Meaning, ...]]]:
    """The places and terms of the phrases in `words`; of overlapping ones of a kind, the longest counts.

    Within a phrase that says what is computed or how, shorter ones name no operation: `index_add` scatters and does not
    add elementwise.
    """
    found: list[tuple[range, tuple[Meaning, ...]]] = []
    taken: dict[str, set[int]] = {}
    longer: list[set[int]] = []
    for length in range(min(_LONGEST, len(words)), 0, -1):
        for start in range(len(words) - length + 1):
            places = range(start, start + length)
            if length == 1 and words[start] in STOPWORDS:
                continue
            named = lexicon().get(key(words[start : start + length]), ())
            within = any(whole.issuperset(places) and len(whole) > length for whole in longer)
            free = tuple(
                meaning
                for meaning in named
                if taken.get(meaning.kind, set()).isdisjoint(places) and not (within and meaning.kind == "operation")
            )
            for meaning in free:
                taken.setdefault(meaning.kind, set()).update(places)
            if free:
                found.append((places, free))
            if any(meaning.kind in ("operation", "feature") for meaning in free):
                longer.append(set(places))
    return sorted(found, key=lambda phrase: phrase[0].start)


def _together(phrases: Sequence[tuple[Meaning, ...]]) -> list[tuple[Meaning, ...]]:
    """The operations that several of the phrases name together."""
    named = {meaning.name for phrase in phrases for meaning in phrase}
    return [
        (Meaning("operation", name),)
        for terms, name in _TOGETHER.items()
        if named.issuperset(terms) and name not in named
    ]


def _reread(phrases: Sequence[tuple[Meaning, ...]]) -> list[tuple[Meaning, ...]]:
    """The phrases, without what others of them say better.

    A stencil where an index is named: the neighbours of a node are those that it lists. The plain product where a kind
    of product is named: an example of that kind lacks nothing of "weight-only linear".
    """
    named = {meaning.name for phrase in phrases for meaning in phrase}
    better = {"stencil": {"gather", "scatter"}, "gemm": {name for name in OPERATIONS if name.endswith("_gemm")}}
    worse = [name for name, others in better.items() if not named.isdisjoint(others)]
    return [phrase for phrase in phrases if [meaning.name for meaning in phrase] not in [[name] for name in worse]]


def _tells(word: str) -> bool:
    """Whether a word may say what is computed: not a size, not one of English."""
    return len(word) > 3 and word.isalpha() and word not in STOPWORDS


def _spelling(word: str, known: frozenset[str]) -> str:
    """The word itself, or the word of the vocabulary that a misspelt one is close to."""
    if len(word) < 5 or word.isdigit() or word in STOPWORDS or stem(word) in known:
        return word
    if word in _vocabulary() or key([word]) in lexicon():
        return word
    near = [other for other in _vocabulary() if other[0] == word[0] and _edits(word, other) <= _TYPOS]
    close = get_close_matches(word, sorted(near), n=1, cutoff=0.82)
    return close[0] if close else word


def _edits(word: str, other: str) -> int:
    """How many letters are put in, left out or replaced: of "interpolation" and "integration", four."""
    steps = SequenceMatcher(None, word, other, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for step, a, b, c, d in steps if step != "equal")


def _without_code(text: str, known: frozenset[str]) -> str:
    """The query in plain words; a CamelCase name is split unless the index itself writes it as one."""
    for pattern, words in _CODE:
        text = pattern.sub(words, text)

    def split(name: re.Match[str]) -> str:
        whole, words = name[0].lower(), parts(name[0])
        one = whole in STOPWORDS or whole in SHORT or stem(whole) in known or min(map(len, words)) < 3
        return name[0] if one else " ".join(words)

    return re.sub(r"[A-Za-z]*[a-z][A-Z][A-Za-z]*", split, text)
