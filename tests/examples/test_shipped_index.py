"""The index as it is shipped: recall, reciprocal rank and time over the labelled queries."""

from __future__ import annotations

import time

import pytest

from cutesmith.examples.index.records import read_index
from cutesmith.examples.search.search import find_examples
from evals.retrieval.measure import QUERIES, LabelledQuery, ask, read_queries, scores

SHIPPED = read_index()
SETS = {
    name: read_queries(QUERIES.with_name(f"{name}.jsonl"))
    for name in ("queries", "second", "third", "heldout", "fourth", "fifth", "sixth", "seventh", "eighth")
}


@pytest.mark.parametrize(
    ("name", "queries"),
    [
        ("queries", 300),
        ("second", 160),
        ("third", 70),
        ("heldout", 100),
        ("fourth", 24),
        ("fifth", 40),
        ("sixth", 20),
        ("seventh", 10),
        ("eighth", 12),
    ],
)
def test_the_labels_name_examples_that_exist_and_every_query_is_there_once(name, queries):
    known = {example.id for example in SHIPPED}
    unknown = {accepted for query in SETS[name] for accepted in query.accept} - known
    assert unknown == set()
    assert all(query.accept for query in SETS[name])
    asked = [(query.query, query.filters) for query in SETS[name]]
    assert len(asked) == len(set(asked)) >= queries


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "recall", "reciprocal_rank"),
    [
        ("queries", 0.94, 0.85),
        ("second", 0.95, 0.87),
        ("third", 0.93, 0.79),
        ("heldout", 0.94, 0.87),
        ("fourth", 0.93, 0.85),
        ("fifth", 0.95, 0.89),
        ("sixth", 0.9, 0.73),
        ("seventh", 0.9, 0.91),
        ("eighth", 0.75, 0.68),
    ],
)
def test_recall_and_reciprocal_rank(name, recall, reciprocal_rank):
    outcomes = [ask(query, SHIPPED) for query in SETS[name]]
    measured = scores(outcomes)
    missed = [outcome.query.query for outcome in outcomes if outcome.place is None or outcome.place > 3]
    assert measured.recall_at_3 >= recall, missed
    assert measured.mean_reciprocal_rank >= reciprocal_rank


@pytest.mark.slow
def test_a_search_takes_less_than_a_fifth_of_a_second():
    taken = []
    for shift in range(1, 9):  # the best of eight: what else runs on the machine is not our slowness
        unseen = SHIPPED[shift:] + SHIPPED[:shift]  # another order, so it is prepared again
        start = time.process_time()
        find_examples("warp specialised gemm for a B200 with bias", unseen)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.2  # 0.08 on an idle core, 0.13 beside five other processes on two


@pytest.mark.slow
def test_an_example_is_found_by_its_own_summary():
    outcomes = [ask(LabelledQuery(example.summary, (example.id,)), SHIPPED) for example in SHIPPED[::6]]
    assert len(outcomes) > 40
    assert scores(outcomes).recall_at_3 >= 0.9


def test_a_kernel_comes_before_the_modules_that_serve_it():
    found = find_examples("block-sparse attention on Hopper", SHIPPED, limit=3).examples
    assert [example.id for example in found[:2]] == ["flash_attention/flash_fwd_sm90", "cutesmith/flash_attention_sm90"]
