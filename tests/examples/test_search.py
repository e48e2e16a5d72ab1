"""Searching an index made for the test: ranking, reasons, filters, architectures, and what to relax.

And the index as it is shipped: recall, reciprocal rank and time over the labelled queries.
"""

from __future__ import annotations

import time

import pytest

from cutesmith.errors import UsageError
from cutesmith.examples.index.records import read_index
from cutesmith.examples.search.search import Filters, find_examples, resolve
from cutesmith.verdicts import ExitCode
from evals.retrieval.measure import QUERIES, LabelledQuery, ask, read_queries, scores
from tests.examples.fetch_samples import cutlass


def record(name, operation="gemm", arch="sm_90a", features="", dtypes="float16", **more):
    more = {"summary": "", "title": name.rpartition("/")[2].replace("_", " "), **more}
    lists = {"features": tuple(features.split()), "dtypes": tuple(dtypes.split())}
    return cutlass(name, operation=operation, arch=tuple(arch.split()), **lists, **more)


INDEX = (
    record("ampere/flash_attention", "attention", "sm_80", "mma_sync cp_async causal", "float16 bfloat16"),
    record("ampere/tensorop_gemm", "gemm", "sm_80", "mma_sync cp_async", "float16 bfloat16"),
    record("blackwell/dense_gemm", "gemm", "sm_100a", "tcgen05 tma", "float16 bfloat16 float8_e4m3fn"),
    record("blackwell/rmsnorm", "rmsnorm", "sm_90a sm_100a", "cluster", "float32 bfloat16"),
    record("hopper/dense_gemm", "gemm", "sm_90a", "wgmma tma", "float16 float8_e4m3fn"),
    record("hopper/dense_gemm_gelu", "gemm", "sm_90a", "wgmma tma activation epilogue_fusion", "float16"),
    record("hopper/grouped_gemm", "grouped_gemm", "sm_90a", "wgmma tma", "float16 bfloat16"),
)


def find(query, *, index=INDEX, limit=5, **filters):
    return find_examples(query, index, filters=Filters(**filters), limit=limit)


def ids(verdict):
    return [example.id.removeprefix("cutlass/") for example in verdict.examples]


def test_what_agrees_most_comes_first_with_the_reasons():
    verdict = find("hopper gemm gelu fp16 causal")
    first = verdict.examples[0]
    assert first.id == "cutlass/hopper/dense_gemm_gelu"
    assert first.matched == ("operation gemm", "architecture (native)", "dtype float16", "feature activation")
    assert first.missing == ("feature causal",)
    assert (verdict.exit_code, verdict.summary) == (0, "nearest: cutlass/hopper/dense_gemm_gelu")
    assert [e.score for e in verdict.examples] == sorted((e.score for e in verdict.examples), reverse=True)


def test_what_was_understood_is_told():
    understood = find("blackwel nvfp4 matmul without tma, kahan").understood
    assert understood.operations == ("blockscaled_gemm",)
    assert understood.archs == ("sm_100a",)
    assert understood.unwanted == ("tma",)
    assert understood.words == ("kahan",)
    assert understood.corrections == {"blackwel": "blackwell"}


def test_a_feature_that_is_not_wanted_pushes_back():
    assert ids(find("hopper gemm with an activation"))[0] == "hopper/dense_gemm_gelu"
    assert ids(find("hopper gemm, no activation")).index("hopper/dense_gemm_gelu") > 0


def test_an_older_example_is_offered_for_a_newer_gpu_and_it_is_said():
    verdict = find("attention on an RTX 5090")
    first = verdict.examples[0]
    assert (first.id, first.fit) == ("cutlass/ampere/flash_attention", "runs")
    assert first.note == "written for sm_80; it runs on sm_120a as well, without what is new there"
    assert verdict.hint == f"Nothing nearer was written for sm_120a: {first.note}."


def test_a_newer_example_comes_after_those_that_run_and_says_that_it_does_not():
    verdict = find("gemm for an A100")
    assert ids(verdict)[0] == "ampere/tensorop_gemm"
    hopper = next(example for example in verdict.examples if example.id == "cutlass/hopper/dense_gemm")
    assert (hopper.fit, "does not run there" in hopper.note) == ("foreign", True)


@pytest.mark.parametrize(
    ("arch", "first", "never"),
    [
        ("sm_80", "ampere/tensorop_gemm", {"hopper/dense_gemm", "blackwell/dense_gemm"}),
        ("hopper", "hopper/dense_gemm", {"blackwell/dense_gemm"}),
        ("b200", "blackwell/dense_gemm", set()),
        ("sm_120a", "ampere/tensorop_gemm", {"blackwell/dense_gemm"}),
        ("rtx 3090", "ampere/tensorop_gemm", {"hopper/dense_gemm", "blackwell/dense_gemm"}),
    ],
)
def test_the_arch_filter_keeps_what_runs_or_can_be_ported(arch, first, never):
    found = ids(find("gemm", arch=arch, limit=20))
    assert found[0] == first
    assert not never & set(found)


RARE = record("x/late", "gemm", "sm_100a", title="kahan gemm")
BACKWARD = record("blackwell/flash_bwd", "attention_backward", "sm_100a", "backward tcgen05")
TWINS = (record("x/a", "softmax"), record("x/b", "softmax", meets_contract=True))


@pytest.mark.parametrize(
    ("query", "index", "first"),
    [
        ("softmax", TWINS, "x/b"),  # our own kernels meet the contract
        ("softmax fp8", (record("x/a", "softmax", dtypes="float8_e4m3fn"), TWINS[1]), "x/a"),
        ("softmax", (record("a", "softmax", source="package"), record("b", "softmax")), "b"),  # not part of a library
        ("hopper gemm kahan", (*INDEX, RARE), "x/late"),  # a rare word outweighs the architecture
        ("flash attention backward h100", (*INDEX, BACKWARD), "blackwell/flash_bwd"),  # so does the operation
        ("softmax on an A100", (record("a", "softmax", "sm_100a"), record("b", "softmax")), "b"),  # nearer generation
    ],
)
def test_of_examples_that_are_nearly_equal_the_better_start_comes_first(query, index, first):
    assert ids(find(query, index=index))[0] == first


def test_the_shorter_of_two_is_preferred_and_more_so_for_a_learner():
    pair = (record("x/left", lines=1500, features="tma"), record("x/right", lines=60))
    assert ids(find("gemm", index=pair)) == ["x/right", "x/left"]
    assert ids(find("gemm tma", index=pair)) == ["x/left", "x/right"]
    found = (find(query, index=pair).examples for query in ("gemm", "easy gemm"))
    little, much = (first.score - second.score for first, second in found)
    assert much > 5 * little


def test_filters_are_hard_and_take_synonyms():
    assert ids(find("gemm", dtypes=("bf16",), arch="h100")) == ["ampere/tensorop_gemm", "hopper/grouped_gemm"]
    assert set(ids(find("", operations=("matmul", "group gemm"), features=("tma",), limit=9))) == {
        "blackwell/dense_gemm",
        "hopper/dense_gemm",
        "hopper/dense_gemm_gelu",
        "hopper/grouped_gemm",
    }
    assert set(ids(find("", dtypes=("fp8", "fp16")))) == {"blackwell/dense_gemm", "hopper/dense_gemm"}
    assert find("gemm", sources=("package",)).exit_code == ExitCode.WRONG_RESULT
    assert len(find("gemm", sources=("cutlass",)).examples) == 5


def test_filters_alone_list_what_passes_natives_first():
    verdict = find("", operations=("gemm",), arch="sm_100a")
    assert ids(verdict)[0] == "blackwell/dense_gemm"
    assert verdict.examples[0].matched == ("--arch sm_100a", "--op gemm")


@pytest.mark.parametrize(
    ("filters", "message", "hint"),
    [
        ({"arch": "sm_91"}, "--arch sm_91: the index knows no such arch", "Nearest: sm_90a"),
        ({"operations": ("sofmax",)}, "--op sofmax: the index knows no such operation", "Nearest: softmax"),
        ({"dtypes": ("bf17",)}, "--dtype bf17", "Nearest: bfloat16"),
        ({"features": ("wgma",)}, "--feature wgma", "Nearest: wgmma"),
        ({"features": ("zzzz",)}, "--feature zzzz", "There are: tma, "),
        ({"sources": ("cutlas",)}, "--source cutlas", "There are: cutesmith, package, cutlass."),
        ({"arch": "gemm"}, "--arch gemm", "There are: sm_80"),
        ({"arch": "-"}, "--arch -", "There are: sm_80"),
    ],
)
def test_an_unknown_filter_value_is_usage_and_names_the_nearest(filters, message, hint):
    with pytest.raises(UsageError) as error:
        find("gemm", **filters)
    assert error.value.message.startswith(message)
    assert error.value.hint.startswith(hint)


def test_a_synonym_names_its_term():
    assert resolve("arch", "H100") == ("sm_90a",)
    assert resolve("dtype", "fp8") == ("float8_e4m3fn", "float8_e5m2")
    assert resolve("feature", "warp specialised") == ("warp_specialization",)
    assert resolve("operation", "flash attention") == ("attention",)


def test_without_results_it_says_which_filter_to_relax():
    verdict = find("gemm", operations=("rmsnorm",), dtypes=("fp8",), arch="sm_90a")
    assert (verdict.exit_code, verdict.examples) == (ExitCode.WRONG_RESULT, ())
    assert verdict.hint.startswith("Relax a filter: ")
    assert "without --op rmsnorm there are " in verdict.hint
    assert "without --arch" not in verdict.hint


def test_without_a_known_word_or_any_word_it_says_so():
    verdict = find("zzz qqq")
    assert (verdict.exit_code, verdict.summary) == (ExitCode.WRONG_RESULT, "no example for 'zzz qqq'")
    assert verdict.hint.startswith("No word of the query is in the index.")
    with pytest.raises(UsageError, match="needs words or a filter"):
        find(" ")


def test_an_id_or_a_path_finds_its_example():
    for query in ("cutlass/hopper/grouped_gemm", INDEX[3].path):
        assert find(query).examples[0].id in query.replace("examples/python/CuTeDSL/cute", "cutlass")


def test_the_limit_holds_and_an_empty_index_finds_nothing():
    assert len(find("gemm", limit=2).examples) == 2
    assert find("gemm", index=()).exit_code == ExitCode.WRONG_RESULT


SHIPPED = read_index()
SETS = {name: read_queries(QUERIES.with_name(f"{name}.jsonl")) for name in ("queries", "second", "third", "heldout")}


@pytest.mark.parametrize(("name", "queries"), [("queries", 300), ("second", 160), ("third", 70), ("heldout", 100)])
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
    [("queries", 0.95, 0.88), ("second", 0.95, 0.9), ("third", 0.93, 0.83), ("heldout", 0.95, 0.9)],
)
def test_recall_and_reciprocal_rank(name, recall, reciprocal_rank):
    outcomes = [ask(query, SHIPPED) for query in SETS[name]]
    measured = scores(outcomes)
    missed = [outcome.query.query for outcome in outcomes if outcome.place is None or outcome.place > 3]
    assert measured.recall_at_3 >= recall, missed
    assert measured.mean_reciprocal_rank >= reciprocal_rank


def test_a_search_takes_less_than_a_tenth_of_a_second():
    taken = []
    for shift in range(1, 5):  # the best of four: what else runs on the machine is not our slowness
        unseen = SHIPPED[shift:] + SHIPPED[:shift]  # another order: prepared anew
        start = time.process_time()
        find_examples("warp specialised gemm for a B200 with bias", unseen)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.1


def test_an_example_is_found_by_its_own_summary():
    outcomes = [ask(LabelledQuery(example.summary, (example.id,)), SHIPPED) for example in SHIPPED[::3]]
    assert len(outcomes) > 80
    assert scores(outcomes).recall_at_3 >= 0.9
