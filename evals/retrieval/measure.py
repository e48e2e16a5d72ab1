"""How well `cutesmith find` finds: recall@1, recall@3, mean reciprocal rank and time over labelled queries.

    python evals/retrieval/measure.py [QUERIES.jsonl] [--index FILE] [--misses] [--json]

A line of the queries is {"query", "accept": [ids], "filters": {"arch", "op", "dtype", "feature", "source"}}; `accept`
holds every example that a person would call a nearest one. Recall@k: the share of queries with an accepted example
among the first k. Reciprocal rank: 1 / place of the first accepted one among ten, 0 where none is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cutesmith.examples.index.records import Example, read_index
from cutesmith.examples.search.search import Filters, find_examples

QUERIES = Path(__file__).with_name("queries.jsonl")
DEPTH = 10


@dataclass(frozen=True)
class LabelledQuery:
    """What is asked, and the ids of every example that a person would call a nearest one."""

    query: str
    accept: tuple[str, ...]
    filters: Filters = Filters()


@dataclass(frozen=True)
class Outcome:
    """One query: the ids that were found, the place (from 1) of the first accepted one or None, and milliseconds."""

    query: LabelledQuery
    found: tuple[str, ...]
    place: int | None
    milliseconds: float


@dataclass(frozen=True)
class Scores:
    """Shares and means over all queries; times in milliseconds, the first of them with the index prepared."""

    queries: int
    recall_at_1: float
    recall_at_3: float
    mean_reciprocal_rank: float
    first_ms: float
    median_ms: float
    slowest_ms: float


def read_queries(path: Path = QUERIES) -> list[LabelledQuery]:
    """The labelled queries of a file."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [LabelledQuery(one["query"], tuple(one["accept"]), _filters(one.get("filters", {}))) for one in lines]


def _filters(given: Mapping[str, Any]) -> Filters:
    names = {"op": "operations", "dtype": "dtypes", "feature": "features", "source": "sources"}
    several = {field: tuple(given.get(name, ())) for name, field in names.items()}
    return Filters(arch=given.get("arch", ""), **several)


def ask(query: LabelledQuery, index: Sequence[Example]) -> Outcome:
    """Run one query."""
    start = time.perf_counter()
    verdict = find_examples(query.query, index, filters=query.filters, limit=DEPTH)
    milliseconds = 1e3 * (time.perf_counter() - start)
    found = tuple(example.id for example in verdict.examples)
    places = [place for place, name in enumerate(found, 1) if name in query.accept]
    return Outcome(query, found, min(places, default=None), milliseconds)


def scores(outcomes: Sequence[Outcome]) -> Scores:
    """The means over outcomes."""

    def within(k: int) -> float:
        return statistics.fmean(outcome.place is not None and outcome.place <= k for outcome in outcomes)

    return Scores(
        queries=len(outcomes),
        recall_at_1=within(1),
        recall_at_3=within(3),
        mean_reciprocal_rank=statistics.fmean(1 / outcome.place if outcome.place else 0.0 for outcome in outcomes),
        first_ms=outcomes[0].milliseconds,
        median_ms=statistics.median(outcome.milliseconds for outcome in outcomes),
        slowest_ms=max(outcome.milliseconds for outcome in outcomes),
    )


def main() -> None:
    """Print the table of scores, and every query whose first answer is not accepted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", nargs="?", type=Path, default=QUERIES)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--misses", action="store_true", help="only queries without an accepted example in three")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    index = read_index(options.index)
    outcomes = [ask(query, index) for query in read_queries(options.queries)]
    measured = scores(outcomes)
    if options.json:
        print(json.dumps(vars(measured)))
        return
    worst = 3 if options.misses else 1
    for outcome in outcomes:
        if outcome.place is None or outcome.place > worst:
            print(f"{outcome.place or '-':>2}  {outcome.query.query}")
            print(f"      found   {', '.join(outcome.found[:3])}")
            print(f"      accepts {', '.join(outcome.query.accept[:4])}")
    for name, value in vars(measured).items():
        print(f"{name:<22}{value:>10.4g}")


if __name__ == "__main__":
    main()
