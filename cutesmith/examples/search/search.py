"""Find the nearest examples: filters first, then the ranking; and what to relax where nothing is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache

from cutesmith.errors import UsageError
from cutesmith.examples.index.records import SOURCES, Example
from cutesmith.examples.search.fit import FOREIGN, NATIVE, fit
from cutesmith.examples.search.intent import Intent, understand
from cutesmith.examples.search.ranking import Ranked, Ranking
from cutesmith.examples.search.words import lexicon, stem, tokens
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS
from cutesmith.verdicts import ExitCode, FindVerdict, FoundExample

TERMS: dict[str, Iterable[str]] = {"operation": OPERATIONS, "feature": FEATURES, "dtype": DTYPES, "arch": ARCHS}
OPTIONS = {"operation": "--op", "feature": "--feature", "dtype": "--dtype", "arch": "--arch", "source": "--source"}


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What every result must have: any of the operations and sources, all features and dtypes, a fit to the arch.

    Values are terms of the vocabulary or their synonyms (`bf16`, `hopper`); a source is one of SOURCES or the first
    part of an id (`quack`).
    """

    arch: str = ""
    operations: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Test:
    """One filter: its option as typed, and whether an example passes."""

    shown: str
    passes: Callable[[Example], bool]


@dataclass(frozen=True)
class _Wanted:
    tests: tuple[_Test, ...] = ()
    arch: str = ""
    features: tuple[str, ...] = ()
    dtypes: tuple[frozenset[str], ...] = field(default=())


def find_examples(
    query: str, index: Sequence[Example], *, filters: Filters | None = None, limit: int = 5
) -> FindVerdict:
    """The `limit` examples nearest to the query, best first, with the reasons; exit code 1 where there is none.

    Raises UsageError for an unknown filter value, and where there is neither a query nor a filter.
    """
    start = time.monotonic()
    wanted = _wanted(filters or Filters(), index)
    if not query.strip() and not wanted.tests:
        raise UsageError("find needs words or a filter", hint='Such as: find "hopper gemm bias gelu bf16"')
    ranking = _ranking(tuple(index))
    intent = _with_filters(understand(query, ranking.known), wanted)
    among = [example for example in index if all(test.passes(example) for test in wanted.tests)]
    ranked = _exact(query, among) + (ranking.rank(intent, among) if query.strip() else _listed(among, wanted))
    best = list({one.example.id: one for one in reversed(ranked)}.values())[::-1][:limit]
    hint = _advice(best, intent) if best else _relax(query, intent, wanted, index)
    return FindVerdict(
        exit_code=ExitCode.PASSED if best else ExitCode.WRONG_RESULT,
        summary=_summary(best, query),
        seconds=time.monotonic() - start,
        query=query,
        understood=intent.to_dict(),
        examples=tuple(map(_found, best)),
        hint=hint,
    )


@lru_cache(maxsize=2)
def _ranking(index: tuple[Example, ...]) -> Ranking:
    """The prepared index; a process that searches again, as `cutesmith mcp` does, prepares it once."""
    return Ranking(index)


def resolve(kind: str, text: str) -> tuple[str, ...]:
    """The terms of a kind (`operation`, `feature`, `dtype`, `arch`) that a text names; raises UsageError."""
    words = tokens(text)
    key = "".join([*words[:-1], stem(words[-1])]) if words else ""
    names = [m.name for m in lexicon().meanings.get(key, ()) if m.kind == kind]
    if names:
        return tuple(names)
    phrases = dict(lexicon().phrases(kind))
    close = get_close_matches(text.lower(), phrases, n=5, cutoff=0.6)
    nearest = list(dict.fromkeys(phrases[phrase] for phrase in close))[:3]
    known = f"Nearest: {', '.join(nearest)}." if nearest else f"There are: {', '.join(TERMS[kind])}."
    raise UsageError(f"{OPTIONS[kind]} {text}: the index knows no such {kind}", hint=known)


def _wanted(filters: Filters, index: Sequence[Example]) -> _Wanted:
    arch = resolve("arch", filters.arch)[0] if filters.arch else ""
    operations = {name for text in filters.operations for name in resolve("operation", text)}
    features = tuple(dict.fromkeys(resolve("feature", text)[0] for text in filters.features))
    dtypes = tuple(frozenset(resolve("dtype", text)) for text in filters.dtypes)
    sources = {_source(text, index) for text in filters.sources}
    tests = [_Test(f"--arch {filters.arch}", lambda e: fit(e, arch).kind != FOREIGN)] if arch else []
    if operations:
        tests.append(_Test(_shown("operation", filters.operations), lambda e: e.operation in operations))
    for group, text in zip(dtypes, filters.dtypes, strict=True):
        tests.append(_Test(f"--dtype {text}", lambda e, group=group: bool(group & set(e.dtypes))))  # type: ignore[misc]
    for feature in features:
        tests.append(_Test(f"--feature {feature}", lambda e, feature=feature: feature in e.features))  # type: ignore[misc]
    if sources:
        tests.append(_Test(_shown("source", filters.sources), lambda e: bool({e.source, _prefix(e)} & sources)))
    return _Wanted(tuple(tests), arch, features, dtypes)


def _shown(kind: str, values: Sequence[str]) -> str:
    return " ".join(f"{OPTIONS[kind]} {value}" for value in values)


def _prefix(example: Example) -> str:
    return example.id.partition("/")[0]


def _source(text: str, index: Sequence[Example]) -> str:
    known = dict.fromkeys([*SOURCES, *map(_prefix, index)])
    if text.lower() not in known:
        raise UsageError(f"--source {text}: the index has none of that name", hint=f"There are: {', '.join(known)}.")
    return text.lower()


def _with_filters(intent: Intent, wanted: _Wanted) -> Intent:
    """The intent with the filters' terms: they explain a result, and `--arch` decides how it fits."""
    return replace(
        intent,
        archs=(wanted.arch,) if wanted.arch else intent.archs,
        features=dict(intent.features) | dict.fromkeys(wanted.features, 1.0),
        filtered=frozenset(wanted.features) - intent.features.keys(),
        dtypes=tuple(dict.fromkeys((*intent.dtypes, *wanted.dtypes))),
    )


def _exact(query: str, among: Sequence[Example]) -> list[Ranked]:
    """The example whose id or path the query is."""
    name = query.strip().removesuffix(".py").lower()
    return [
        Ranked(example, 100.0, None, (f"id {example.id}",), ())
        for example in among
        if name in (example.id, example.path.removesuffix(".py").lower())
    ]


def _listed(among: Sequence[Example], wanted: _Wanted) -> list[Ranked]:
    """What passes the filters where there are no words: our own first, then as the architecture fits, then by id."""
    fits = {example.id: fit(example, wanted.arch) if wanted.arch else None for example in among}
    matched = tuple(test.shown for test in wanted.tests)
    ranked = [Ranked(e, (one.value if (one := fits[e.id]) else 0.0), one, matched, ()) for e in among]
    return sorted(ranked, key=lambda one: (-one.score, not one.example.meets_contract, one.example.id))


def _summary(best: Sequence[Ranked], query: str) -> str:
    if not best:
        return f"no example for {query!r}" if query else "no example passes the filters"
    return f"nearest: {best[0].example.id}"


def _advice(best: Sequence[Ranked], intent: Intent) -> str:
    """What to know before starting from the first one."""
    first = best[0].fit
    if first is None or first.kind == NATIVE:
        return ""
    return f"Nothing nearer was written for {' or '.join(intent.archs)}: {first.note}."


def _relax(query: str, intent: Intent, wanted: _Wanted, index: Sequence[Example]) -> str:
    """Which filter, left out alone, gives results; or that no word is known."""
    ranking = _ranking(tuple(index))

    def count(tests: Sequence[_Test]) -> int:
        among = [example for example in index if all(test.passes(example) for test in tests)]
        return len(ranking.rank(intent, among)) if query.strip() else len(among)

    if not wanted.tests or not count(()):
        return (
            "No word of the query is in the index. Name an operation, an architecture, a dtype or a feature (--help)."
        )
    without = {test.shown: count([t for t in wanted.tests if t is not test]) for test in wanted.tests}
    helpful = [f"without {shown} there are {n}" for shown, n in without.items() if n]
    return f"Relax a filter: {'; '.join(helpful) or 'no single one suffices, leave out two'}."


def _found(one: Ranked) -> FoundExample:
    example, fitting = one.example, one.fit
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
        score=one.score,
        fit=fitting.kind if fitting else "",
        matched=one.matched,
        missing=one.missing,
        note=fitting.note if fitting else "",
        meets_contract=example.meets_contract,
    )
