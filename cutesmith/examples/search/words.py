"""Words as the search sees them: tokens, their stems, the phrases that name a term, and what a misspelling meant."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from cutesmith.devices import SM_VERSIONS
from cutesmith.examples.search.synonyms import MORE_ARCHS, MORE_DTYPES, MORE_FEATURES, MORE_OPERATIONS, OLD_ARCHS, WEAK
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS

STOPWORDS = frozenset(
    """a about all also am an and any are as at be but by can code cute cutedsl cutlass do does dsl each example
    examples fast find for from get give good gpu gpus has have help how i if im implement implementation
    in into is it its just kernel kernels like look looking make me my need nvidia of on one or our out
    over per please pytorch reference run runs running sample show so some something start starting such
    than that the their them then there this to try trying two up us use used uses using via want we what
    when where which while who will with without work would write writing you your""".split()
)
"""Words that tell nothing apart: English ones, and those that hold for every example."""

SHORT = {
    "attn": "attention",
    "bwd": "backward",
    "bmm": "gemm",
    "dequant": "dequantize",
    "fwd": "forward",
    "matmul": "gemm",
    "mcast": "multicast",
    "mm": "gemm",
    "multiplication": "gemm",
    "multiplies": "gemm",
    "multiply": "gemm",
    "ptr": "pointer",
    "quant": "quantize",
    "resadd": "residual",
    "warpspec": "specialized",
}
"""Short forms and twins, for the text of records and queries alike."""

NEGATIONS = {"without", "no", "not", "non"}

EASY = frozenset(
    """basic basics beginner beginners classic easiest easy explained intro introduction introductory learn learning
    minimal naive plain simple simplest smallest taught teaching tutorial tutorials""".split()
)
"""Ways to ask for an example to learn from: they prefer what is short, and tell nothing else."""


@dataclass(frozen=True)
class Meaning:
    """One term that a phrase names: its kind (operation, feature, arch, dtype), its name, and whether it only hints."""

    kind: str
    name: str
    weak: bool = False


@dataclass(frozen=True)
class Phrase:
    """A run of the query's words that names terms; `corrected` is what it was read as where it was misspelt."""

    text: str
    meanings: tuple[Meaning, ...]
    corrected: str = ""
    negated: bool = False  # "without tensor cores", "non-persistent"


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SUFFIX = re.compile(r"(?:ations?|tions?|ings?|ers?|ed|es|s|e)$")
_IZE = re.compile(r"is(?=(?:e|ed|es|ing|ation|ations|er)$)")


def tokens(text: str) -> list[str]:
    """Lower-case words of letters and digits."""
    return re.findall(r"[a-z0-9]+", text.lower())


def parts(name: str) -> list[str]:
    """The words inside a CamelCase name: `HopperGEMMKernel` is hopper, gemm, kernel."""
    return tokens(_HUMP.sub(" ", name))


@cache
def stem(word: str) -> str:
    """The word without its ending (`quantised`, `quantization` → `quantiz`); short words and codes stay."""
    if len(word) <= 4 or any(c.isdigit() for c in word):
        return word[:-1] if word.endswith("s") and len(word) == 4 and word[-2] != "s" else word
    base = _SUFFIX.sub("", _IZE.sub("iz", word), count=1)
    return base if len(base) >= 3 else word


def stems(words: Iterable[str]) -> list[str]:
    """The stems of words that tell something apart, short forms written out."""
    return [stem(SHORT.get(word, word)) for word in words if word not in STOPWORDS]


def compounds(words: Sequence[str]) -> list[str]:
    """The stems of neighbours that are also written as one word: `all reduce` is `allreduce` to somebody."""
    pairs = (first + second for first, second in itertools.pairwise(words))
    return [stem(pair) for pair in pairs if len(pair) > 4 and pair in lexicon().words]


def _key(words: Sequence[str]) -> str:
    """Words run together, stemmed: `rms norm`, `rmsnorm` and `RMS-norms` have one key."""
    return "".join([*words[:-1], stem(words[-1])])


class Lexicon:
    """Every phrase that names a term of the vocabulary; finds them in a query, longest first."""

    LONGEST = 6

    def __init__(self) -> None:
        self.meanings: dict[str, list[Meaning]] = {}
        self.words: set[str] = set()
        for kind, name, phrase in _phrases():
            words = tokens(phrase)
            weak = phrase in WEAK.get(name, ())
            found = self.meanings.setdefault(_key(words), [])
            if all((m.kind, m.name) != (kind, name) for m in found):
                found.append(Meaning(kind, name, weak))
            self.words.update(words, ["".join(words)])

    def read(self, words: Sequence[str], known: frozenset[str] = frozenset()) -> tuple[list[Phrase], list[str]]:
        """The phrases in `words`, and every word (misspellings put right); `known` words are never corrected."""
        spelt = [self._spelling(word, known) for word in words]
        phrases: list[Phrase] = []
        start = 0
        while start < len(spelt):
            length = self._longest(spelt, start)
            if length:
                run = slice(start, start + length)
                now, was = " ".join(spelt[run]), " ".join(words[run])
                meanings = (*self.meanings[_key(spelt[run])], *self._inside(spelt[run]))
                negated = start > 0 and spelt[start - 1] in NEGATIONS
                phrases.append(Phrase(was, meanings, "" if now == was else now, negated))
            start += length or 1
        return phrases, spelt

    @staticmethod
    def phrases(kind: str) -> list[tuple[str, str]]:
        """Every (phrase, term) of one kind."""
        return [(phrase, name) for of, name, phrase in _phrases() if of == kind]

    def _inside(self, words: Sequence[str]) -> list[Meaning]:
        """The dtypes and features of single words in a phrase that names an operation (`mxfp8 gemm`)."""
        if len(words) == 1 or all(meaning.kind != "operation" for meaning in self.meanings[_key(words)]):
            return []
        inner = (meaning for word in words for meaning in self.meanings.get(_key([word]), ()))
        return [meaning for meaning in inner if meaning.kind in ("dtype", "feature") and not meaning.weak]

    def _longest(self, words: Sequence[str], start: int) -> int:
        for length in range(min(self.LONGEST, len(words) - start), 0, -1):
            run = words[start : start + length]
            if _key(run) in self.meanings and not (length == 1 and run[0] in STOPWORDS):
                return length
        return 0

    def _spelling(self, word: str, known: frozenset[str]) -> str:
        if len(word) < 5 or word in STOPWORDS or word in self.words or stem(word) in known or word.isdigit():
            return word
        if _key([word]) in self.meanings:
            return word
        close = get_close_matches(word, [w for w in self.words if abs(len(w) - len(word)) <= 2], n=1, cutoff=0.82)
        return close[0] if close else word


def _phrases() -> Iterable[tuple[str, str, str]]:
    """(kind, term, phrase) for every name, synonym and product."""
    for kind, terms, more in (("operation", OPERATIONS, MORE_OPERATIONS), ("feature", FEATURES, MORE_FEATURES)):
        for name, term in terms.items():
            for phrase in (name, *term.synonyms, *_listed(more, name)):
                yield kind, name, phrase
    for kind, names, extra in (("dtype", DTYPES, MORE_DTYPES), ("arch", ARCHS, MORE_ARCHS)):
        for name, synonyms in names.items():
            for phrase in (name, *synonyms, *_listed(extra, name)):
                yield kind, name, phrase
    for name, listed in OLD_ARCHS.items():
        yield from (("arch", name, phrase) for phrase in (name, *listed.split(",")))
    targets = {name.rstrip("af"): name for name in ARCHS}
    for sm in SM_VERSIONS.values():
        plain = f"sm_{sm.number}"
        for phrase in (*sm.products, plain, f"{plain}a", f"{plain}f"):
            yield "arch", targets.get(plain, plain), phrase


def _listed(more: dict[str, str], name: str) -> list[str]:
    return [phrase for phrase in more.get(name, "").split(",") if phrase]


@cache
def lexicon() -> Lexicon:
    """The one lexicon of the vocabulary."""
    return Lexicon()
