"""Find the nearest examples: filters first, then BM25 over their words and terms; and what to relax where none is left.

The terms of a record (its operation, features and dtypes) are words of its own, and so are those that the phrases of a
query name: a synonym agrees with whatever the record says. How an example fits the asked architecture adds to that.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from cutesmith.bm25 import Bm25
from cutesmith.errors import UsageError
from cutesmith.examples.index.records import SOURCES, Example
from cutesmith.examples.search.query import Meaning, Query, compounds, key, lexicon, read_query, spoken_terms
from cutesmith.examples.search.structure import STRUCTURES
from cutesmith.examples.search.words import parts, stems, tokens
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS
from cutesmith.verdicts import ExitCode, FindVerdict, FoundExample

NAME, SYMBOLS, SUMMARY, LESSON, LIBRARY = 4, 1, 1, 0.5, 1
"""What a word counts by the field where it stands; the last is the first part of an id: `quack`, `cutlass`."""
OPERATION, FEATURE, DTYPE = 3, 2, 2
"""What a term counts."""
STRUCTURE = 2.0
"""What a query that names a structure weighs it by: how elements depend on one another decides the kernel."""
ARCH, EASE, OWN, WHOLE = 1.0, 0.7, 0.1, 1.0
"""What adds to the score, in units of a word that one record has: how the architecture fits, how short an example is
where one to learn from is asked for, that it meets the contract, and that such a one also lacks nothing of the query:
300 verified lines are a better start than a library's 2 000."""
PARTLY = 0.5  # the part of WHOLE for one of the operation and the architecture that lacks another term of the query
FOREIGN_COST = 1.0  # what one loses, in units of ARCH, that does not run on the asked architecture
HELPERS, HELPER = ("utility", "integration", "tuning"), 6
"""Operations of modules that serve others, and what one loses, in units of OWN, where another one is asked for."""
PART = {"package": 1, "repository": 2}  # what a part of a library loses, in units of OWN: longer, and seldom alone

NATIVE, RUNS, PORT, FOREIGN = "native", "runs", "port", "foreign"
_RUNS, _PORT = 0.75, 0.5  # of 1.0 for an example of the very architecture
_FAMILY = 0.8  # runs, and misses next to nothing: sm_80 on sm_86, sm_120 on sm_121
_NEWER = 0.3  # does not run, but the nearer its generation the more carries over
_STEP = 0.1  # what each generation between costs an example that runs
_TCGEN05 = range(100, 120)  # sm_100, sm_103, sm_107, sm_110: tcgen05 and tensor memory
_GENERATIONS = (80, 90, 100)

TERMS: dict[str, Iterable[str]] = {"operation": OPERATIONS, "feature": FEATURES, "dtype": DTYPES, "arch": ARCHS}
OPTIONS = {"operation": "--op", "feature": "--feature", "dtype": "--dtype", "arch": "--arch", "source": "--source"}
_KINDS = ("operation", "architecture", "dtype", "feature", "no", "word")  # the order of the reasons


@dataclass(frozen=True)
class Fit:
    """A kind (`native`, `runs`, `port`, `foreign`), what it is worth (0 to 1), and one sentence unless native."""

    kind: str
    value: float
    note: str = ""


@dataclass(frozen=True)
class Filters:
    """What every result must have: an architecture that it fits, one of the operations and sources, all of the others.

    Values are terms of the vocabulary or their synonyms (`bf16`, `hopper`); a source is one of SOURCES or the first
    part of an id (`quack`).
    """

    arch: str = ""
    operations: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


Tests = dict[str, Callable[[Example], bool]]  # the option of a filter as typed → whether an example passes


def find_examples(
    query: str, index: Sequence[Example], *, filters: Filters | None = None, limit: int = 5
) -> FindVerdict:
    """The `limit` examples nearest to the query, best first, with the reasons; exit code 1 where there is none.

    Raises UsageError for an unknown filter value, and where there is neither a query nor a filter.
    """
    start = time.monotonic()
    filters = filters or Filters()
    tests = _tests(filters, index)
    if not query.strip() and not tests:
        raise UsageError("find needs words or a filter", hint='Such as: find "hopper gemm bias gelu bf16"')
    corpus = _corpus(tuple(index))
    asked = read_query(query, corpus.words)
    archs = resolve("arch", filters.arch)[:1] if filters.arch else tuple(asked.named("arch"))
    among = [place for place, example in enumerate(index) if all(passes(example) for passes in tests.values())]
    if query.strip():
        ranked = _exact(query, [index[place] for place in among]) + _rank(asked, archs, index, corpus, among)
    else:
        ranked = _listed([index[place] for place in among], archs, tests)
    best = list({one.id: one for one in reversed(ranked)}.values())[::-1][:limit]
    lacking = _lacking(asked, [index[place] for place in among]) if query.strip() else ()
    hint = ""
    if not best:
        hint = _relax(query, asked, archs, tests, index, corpus)
    elif lacking:
        hint = f"No {' or '.join(lacking)} here; nearest: {best[0].id} ({best[0].summary.rstrip('.')})."
    elif best[0].fit not in ("", NATIVE):
        hint = f"Nothing nearer was written for {' or '.join(archs)}: {best[0].note}."
    nothing = f"no example for {query!r}" if query else "no example passes the filters"
    return FindVerdict(
        exit_code=ExitCode.PASSED if best else ExitCode.WRONG_RESULT,
        summary=f"nearest: {best[0].id}" if best else nothing,
        seconds=time.monotonic() - start,
        query=query,
        understood=asked.understood(),
        examples=tuple(best),
        lacking=lacking,
        hint=hint,
    )


def _lacking(asked: Query, among: Sequence[Example]) -> tuple[str, ...]:
    """The structures and operations that the query names and that no example here has.

    Where it names no operation and no feature, the words that no record has may say what is computed: `levenshtein`.
    """
    held = {Meaning("operation", example.operation) for example in among}
    held |= {Meaning("feature", name) for example in among for name in example.features}
    missing = [] if asked.named("operation") or asked.named("feature") else list(asked.unknown)
    for phrase in asked.phrases:
        operations = [meaning for meaning in phrase if meaning.kind == "operation"]
        structures = [meaning for meaning in phrase if meaning.name in STRUCTURES]
        absent = [meaning.name for meaning in structures if meaning not in held]
        if not structures and operations and held.isdisjoint(operations):
            absent = [operations[0].name]
        missing += absent
    return tuple(dict.fromkeys(name.replace("_", " ") for name in missing))


def fit(example: Example, target: str) -> Fit:
    """How `example` fits the architecture `target`: the best over the architectures that it was written for.

    Sources are compiled for each architecture, so what decides is the instructions: mma.sync and cp.async run on
    whatever came after, wgmma exists on sm_90 only, tcgen05 and tensor memory on sm_100 to sm_110 only (not on sm_120).
    PTX ISA, "Instructions: wgmma.mma_async" and "tcgen05", target ISA notes.
    """
    fits = (_fit_of(example, arch, target) for arch in example.arch)
    return max(fits, key=lambda one: one.value, default=Fit(FOREIGN, 0.0, "its architecture is not known"))


def _fit_of(example: Example, arch: str, target: str) -> Fit:
    have, want = (int(re.sub(r"\D", "", name)) for name in (arch, target))
    generations = sum(have < first <= want for first in _GENERATIONS) - sum(
        want < first <= have for first in _GENERATIONS
    )
    if have == want:
        return Fit(NATIVE, 1.0)
    if have > want:
        note = f"written for {arch}, which is newer than {target}: it does not run there"
        return Fit(FOREIGN, _NEWER + _STEP * generations, note)
    if have in _TCGEN05 and want in _TCGEN05:
        return Fit(RUNS, _FAMILY, f"written for {arch}, of the family of {target}")
    if have in _TCGEN05:
        note = f"written for {arch}: {target} has neither tcgen05 nor tensor memory, and 99 KB of shared memory"
        return Fit(FOREIGN, 0.0, note)
    if have == 90 and "wgmma" in example.features:
        unit, value = ("tcgen05.mma", _PORT) if want in _TCGEN05 else ("mma.sync", _PORT - _STEP)
        note = f"written for {arch}: {target} has no wgmma; pipeline and warp roles carry over, the MMA becomes {unit}"
        return Fit(PORT, value, note)
    value = _FAMILY if have // 10 == want // 10 else _RUNS - _STEP * generations
    return Fit(RUNS, value, f"written for {arch}; it runs on {target} as well, without what is new there")


def resolve(kind: str, text: str) -> tuple[str, ...]:
    """The terms of a kind (`operation`, `feature`, `dtype`, `arch`) that a text names; raises UsageError."""
    names = tuple(meaning.name for meaning in lexicon().get(key(tokens(text)), ()) if meaning.kind == kind)
    if names:
        return names
    phrases = {phrase: meaning.name for meaning, phrase in spoken_terms() if meaning.kind == kind}
    close = get_close_matches(text.lower(), phrases, n=5, cutoff=0.6)
    nearest = list(dict.fromkeys(phrases[phrase] for phrase in close))[:3]
    known = f"Nearest: {', '.join(nearest)}." if nearest else f"There are: {', '.join(TERMS[kind])}."
    others = dict.fromkeys(m for phrase in read_query(text).phrases for m in phrase if m.kind != kind)
    if others:
        known += f" What its words name: {', '.join(f'{OPTIONS[m.kind]} {m.name}' for m in others)}."
    raise UsageError(f"{OPTIONS[kind]} {text}: the index knows no such {kind}", hint=known)


def _tests(filters: Filters, index: Sequence[Example]) -> Tests:
    def holds(wanted: Iterable[str], words: Callable[[Example], Iterable[str]]) -> Callable[[Example], bool]:
        return lambda example: not set(wanted).isdisjoint(words(example))

    tests: Tests = {}
    if filters.arch:
        arch = resolve("arch", filters.arch)[0]
        tests[f"--arch {filters.arch}"] = lambda e: fit(e, arch).kind != FOREIGN
    if filters.operations:
        operations = [name for text in filters.operations for name in resolve("operation", text)]
        tests[_shown("operation", filters.operations)] = holds(operations, lambda e: (e.operation,))
    for text in filters.dtypes:
        tests[f"--dtype {text}"] = holds(resolve("dtype", text), lambda e: e.dtypes)
    for text in filters.features:
        name = resolve("feature", text)[0]
        tests[f"--feature {name}"] = holds((name,), lambda e: e.features)
    if filters.sources:
        known = dict.fromkeys([*SOURCES, *(example.id.partition("/")[0] for example in index)])
        sources = [text.lower() for text in filters.sources]
        for text, source in zip(filters.sources, sources):
            if source not in known:
                wrong = f"--source {text}: the index has none of that name"
                raise UsageError(wrong, hint=f"There are: {', '.join(known)}.")
        tests[_shown("source", filters.sources)] = holds(sources, lambda e: (e.source, e.id.partition("/")[0]))
    return tests


def _shown(kind: str, values: Sequence[str]) -> str:
    return " ".join(f"{OPTIONS[kind]} {value}" for value in values)


@lru_cache(maxsize=2)
def _corpus(index: tuple[Example, ...]) -> Bm25:
    """The prepared index; a process that searches again, as `cutesmith mcp` does, prepares it once."""
    return Bm25([_bag(example) for example in index])


def _bag(example: Example) -> Counter[str]:
    """The words and terms of a record, each with what it counts."""
    library, _, name = example.id.partition("/")
    symbols = " ".join((*example.symbols, *(word for symbol in example.symbols for word in parts(symbol))))
    bag: Counter[str] = Counter()
    fields = (f"{name} {example.title}", NAME), (symbols, SYMBOLS), (library, LIBRARY), (example.summary, SUMMARY)
    for text, weight in (*fields, (example.lesson, LESSON)):
        words = tokens(text)
        for word in (*stems(words), *compounds(words)):
            bag[word] += weight  # type: ignore[assignment]
    bag |= Counter({Meaning("operation", example.operation).word: OPERATION})
    bag |= Counter({Meaning("feature", name).word: FEATURE for name in example.features})
    bag |= Counter({Meaning("dtype", name).word: DTYPE for name in example.dtypes})
    return bag


def _rank(
    query: Query, archs: Sequence[str], index: Sequence[Example], corpus: Bm25, among: Iterable[int]
) -> list[FoundExample]:
    """The examples that agree with the query in a word, an operation or a feature, best first; ties: the shorter first.

    Where the query names none of these, the dtype or the architecture is enough.
    """
    terms = [meaning for phrase in query.phrases for meaning in phrase if meaning.kind != "arch"]
    weights = dict.fromkeys(query.words, 1.0)
    weights |= {meaning.word: STRUCTURE if meaning.name in STRUCTURES else 1.0 for meaning in terms}
    scores = corpus.scores(weights | {meaning.word: -1.0 for meaning in query.unwanted})
    telling = {*query.topic, *(meaning.word for meaning in terms if meaning.kind != "dtype")}
    unit, operations = corpus.rarity(), query.named("operation")
    structures = {*query.named("feature")}.intersection(STRUCTURES)
    ranked = []
    for place in among:
        example, bag = index[place], corpus.bags[place]
        fitting = max((fit(example, arch) for arch in archs), key=lambda one: one.value, default=None)
        matched, missing = _reasons(query, example, bag, fitting)
        if not matched or (telling and telling.isdisjoint(bag)):
            continue
        more = ARCH * (fitting.value - FOREIGN_COST * (fitting.kind == FOREIGN)) if fitting else 0.0
        helps = example.operation in HELPERS and bool(operations) and example.operation not in operations
        more += OWN * (example.meets_contract - PART.get(example.source, 0) - HELPER * helps)
        native = fitting is None or fitting.kind == NATIVE
        wanted = example.operation in operations if operations else not structures.isdisjoint(example.features)
        if example.meets_contract and wanted and native:
            more += WHOLE * (not operations or query.plain <= bag.keys()) * (PARTLY if missing else 1)
        if query.easy:  # 1 for fifty lines or fewer, 0 for two thousand or more
            more += EASE * min(1.0, max(0.0, math.log(2000 / max(1, example.lines)) / math.log(2000 / 50)))
        ranked.append(_found(example, round(scores[place] + unit * more, 3), fitting, matched, missing))
    return sorted(ranked, key=lambda one: (-one.score, one.lines, one.id))


def _reasons(
    query: Query, example: Example, bag: Mapping[str, float], fitting: Fit | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What agrees and what is missing; of a phrase that names several terms one is enough."""
    matched = [f"architecture ({fitting.kind})"] if fitting and fitting.kind != FOREIGN else []
    missing: list[str] = []
    for phrase in query.phrases:
        named = [meaning for meaning in phrase if meaning.kind != "arch"]
        present = [meaning for meaning in named if meaning.word in bag]
        kinds = {meaning.kind for meaning in present or named}
        for kind in kinds if present else sorted(kinds)[:1]:
            names = "|".join(sorted(meaning.name for meaning in present or named if meaning.kind == kind))
            (matched if present else missing).append(f"{kind} {names}")
    for meaning in query.unwanted:
        (missing if meaning.word in bag else matched).append(f"no {meaning.name}")
    matched += [f"word {word}" for word in sorted((query.plain if matched else query.topic) & bag.keys())]
    ordered = sorted(dict.fromkeys(matched), key=lambda reason: _KINDS.index(reason.partition(" ")[0]))
    return tuple(ordered), tuple(dict.fromkeys(missing))


def _exact(query: str, among: Sequence[Example]) -> list[FoundExample]:
    """The example whose id or path the query is."""
    name = query.strip().removesuffix(".py").lower()
    named = (example for example in among if name in (example.id, example.path.removesuffix(".py").lower()))
    return [_found(example, 100.0, None, (f"id {example.id}",)) for example in named]


def _listed(among: Sequence[Example], archs: Sequence[str], tests: Tests) -> list[FoundExample]:
    """What passes the filters where there are no words: as the architecture fits, our own first, then by id."""
    fits = ((example, fit(example, archs[0]) if archs else None) for example in among)
    found = [_found(example, one.value if one else 0.0, one, tuple(tests)) for example, one in fits]
    return sorted(found, key=lambda one: (-one.score, not one.meets_contract, one.id))


def _relax(query: str, asked: Query, archs: Sequence[str], tests: Tests, index: Sequence[Example], corpus: Bm25) -> str:
    """Which filter, left out alone, gives results; or that no word is known."""

    def count(without: str = "", *, unfiltered: bool = False) -> int:
        kept = [] if unfiltered else [passes for shown, passes in tests.items() if shown != without]
        among = [place for place, example in enumerate(index) if all(passes(example) for passes in kept)]
        return len(_rank(asked, archs, index, corpus, among)) if query.strip() else len(among)

    if not tests or not count(unfiltered=True):
        structures = ", ".join(STRUCTURES)
        pages = f"python scripts/search_references.py {shlex.quote(query)}" if query.strip() else "--help"
        return (
            "No word of the query is in the index. Name an operation or a feature (--help), or how elements depend on"
            f" one another ({structures}). The pages may know it: {pages}"
        )
    helpful = [f"without {shown} there are {n}" for shown in tests if (n := count(shown))]
    return f"Relax a filter: {'; '.join(helpful) or 'no single one suffices, leave out two'}."


def _found(
    example: Example, score: float, fitting: Fit | None, matched: tuple[str, ...], missing: tuple[str, ...] = ()
) -> FoundExample:
    return FoundExample(
        id=example.id,
        title=example.title,
        operation=example.operation,
        arch=example.arch,
        dtypes=example.dtypes,
        features=example.features,
        summary=example.summary,
        lesson=example.lesson,
        source=example.source,
        path=example.path,
        lines=example.lines,
        licence=example.licence,
        score=score,
        fit=fitting.kind if fitting else "",
        matched=matched,
        missing=missing,
        note=fitting.note if fitting else "",
        meets_contract=example.meets_contract,
    )
