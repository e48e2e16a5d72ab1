"""Ranking of examples: reasons, filters, architectures, what to relax and what is lacking, on an index of the test."""

from __future__ import annotations

import pytest

from cutesmith.errors import UsageError
from cutesmith.examples.search.search import Filters, find_examples, fit, resolve
from cutesmith.verdicts import ExitCode
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


RARE = record("x/late", "gemm", "sm_80", title="kahan gemm")
BACKWARD = record("blackwell/flash_bwd", "attention_backward", "sm_100a", "backward tcgen05")
TWINS = (record("x/a", "softmax"), record("x/b", "softmax", meets_contract=True))


@pytest.mark.parametrize(
    ("query", "index", "first"),
    [
        ("softmax", TWINS, "x/b"),  # our own kernels meet the contract
        ("softmax fp8", (record("x/a", "softmax", dtypes="float8_e4m3fn"), TWINS[1]), "x/a"),
        ("softmax", (record("a", "softmax", source="package"), record("b", "softmax")), "b"),  # not part of a library
        ("hopper gemm kahan", (*INDEX, RARE), "x/late"),  # a rare word outweighs one that fits the architecture better
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
        ({"sources": ("cutlas",)}, "--source cutlas", "There are: cutesmith, package, cutlass, repository."),
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
    assert verdict.hint.endswith("python scripts/search_references.py 'zzz qqq'")  # a page may have what no example has
    with pytest.raises(UsageError, match="needs words or a filter"):
        find(" ")


def test_an_id_or_a_path_finds_its_example():
    for query in ("cutlass/hopper/grouped_gemm", INDEX[3].path):
        assert find(query).examples[0].id in query.replace("examples/python/CuTeDSL/cute", "cutlass")


def test_the_limit_holds_and_an_empty_index_finds_nothing():
    assert len(find("gemm", limit=2).examples) == 2
    assert find("gemm", index=()).exit_code == ExitCode.WRONG_RESULT


def test_an_operation_that_is_none_tells_which_features_its_words_name():
    with pytest.raises(UsageError) as refused:
        resolve("operation", "embedding_bag")
    assert "--feature gather" in refused.value.hint


@pytest.mark.parametrize(
    ("arch", "features", "target", "kind", "said"),
    [
        ("sm_80", (), "sm_80", "native", ""),
        ("sm_80", (), "sm_86", "runs", "runs on sm_86"),
        ("sm_80", ("mma_sync",), "sm_90a", "runs", "written for sm_80"),
        ("sm_80", (), "sm_120a", "runs", "runs on sm_120a"),
        ("sm_90a", ("tma",), "sm_100a", "runs", "runs on sm_100a"),
        ("sm_90a", ("wgmma",), "sm_100a", "port", "the MMA becomes tcgen05.mma"),
        ("sm_90a", ("wgmma",), "sm_120a", "port", "the MMA becomes mma.sync"),
        ("sm_90a", (), "sm_80", "foreign", "newer than sm_80: it does not run"),
        ("sm_100a", ("tcgen05",), "sm_90a", "foreign", "does not run"),
        ("sm_100a", ("tcgen05",), "sm_120a", "foreign", "neither tcgen05 nor tensor memory"),
        ("sm_100a", ("tcgen05",), "sm_103a", "runs", "of the family"),
        ("sm_103a", ("tcgen05",), "sm_100a", "foreign", "newer"),
        ("sm_120a", (), "sm_121a", "runs", "runs on sm_121a"),
        ("sm_80 sm_90a", ("wgmma",), "sm_100a", "runs", "written for sm_80"),
        ("", (), "sm_80", "foreign", "not known"),
    ],
)
def test_how_an_example_fits_an_architecture(arch, features, target, kind, said):
    found = fit(cutlass(arch=tuple(arch.split()), features=features), target)
    assert (found.kind, said in found.note) == (kind, True)


def test_the_older_an_example_the_less_it_fits():
    targets = [fit(cutlass(arch=("sm_80",)), target).value for target in ("sm_80", "sm_86", "sm_90a", "sm_100a")]
    assert targets == sorted(targets, reverse=True)
    assert targets[-1] > fit(cutlass(arch=("sm_120a",)), "sm_100a").value


def test_what_the_index_lacks_is_said():
    verdict = find("5-point stencil, gemm")
    assert verdict.lacking == ("stencil",)
    assert verdict.hint.startswith("No stencil here; nearest: cutlass/")
    assert find("hopper gemm").lacking == ()


def test_a_verified_kernel_that_lacks_nothing_comes_before_a_librarys():
    has = "wgmma tma persistent"
    library = record("x/library", features=f"{has} rasterization", lines=2000, summary="persistent")
    index = (*INDEX, library, record("x/ours", features=has, lines=300, meets_contract=True))
    assert ids(find("persistent hopper gemm", index=index))[0] == "x/ours"
    assert ids(find("persistent hopper gemm with rasterization", index=index))[0] == "x/library"  # ours lacks that
    assert ids(find("persistent gemm for blackwell", index=index))[0] != "x/ours"  # it would have to be ported


def test_of_what_no_record_names_the_words_are_said():
    assert find("kaleidoscope of causal rows").lacking == ()  # a feature is named: the other words may be about it
    assert find("kaleidoscope distance 64x64, on hopper").lacking == ("kaleidoscope", "distance")
    assert find("hopper gemm, kaleidoscope").lacking == ()


def test_an_example_of_the_same_structure_is_near_whatever_it_computes():
    carried = record("x/prefix", "scan", "sm_80", "recurrence", dtypes="float32", title="prefix")
    assert ids(find("h[t] = a[t]*h[t-1] + b[t]", index=(*INDEX, carried)))[0] == "x/prefix"


GATHERED = record("x/bags", "copy", "sm_80", "gather", title="bags")
SHIFTED = record("x/windows", "convolution", "sm_80", "stencil", title="windows")


def test_neighbours_that_an_index_lists_are_gathered_and_those_of_a_grid_are_shifted():
    index = (*INDEX, GATHERED, SHIFTED)
    assert ids(find("mean of the neighbours of each node, adjacency list", index=index))[0] == "x/bags"
    assert ids(find("mean of the neighbours in a grid", index=index))[0] == "x/windows"


def test_a_loss_that_is_a_recurrence_is_not_a_cross_entropy():
    carried = record("x/prefix", "scan", "sm_80", "recurrence", title="prefix")
    index = (*INDEX, carried, record("x/losses", "cross_entropy", title="losses"))
    assert ids(find("CTC loss", index=index))[0] == "x/prefix"
    assert ids(find("loss", index=index))[0] == "x/losses"
