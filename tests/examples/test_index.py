"""The index as it is shipped: whole, in order, in the vocabulary's words, and equal to what it was made from."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from importlib.metadata import distribution

import pytest

from cutesmith import resources
from cutesmith.examples.index.comparison import compare
from cutesmith.examples.index.curation import faults, read_curation, uncurated
from cutesmith.examples.index.rebuilding import FOLDER, PACKAGES, own
from cutesmith.examples.index.records import TABLE, Example, read_index, table
from cutesmith.examples.vocabulary import FEATURES, OPERATIONS, Term, canonical
from cutesmith.problems import contract

ROOT = resources.folder("examples_index")
INDEX = read_index()
BY_ID = {example.id: example for example in INDEX}


def of(source: str) -> list[Example]:
    return [example for example in INDEX if example.source == source]


def test_no_faults_and_every_example_of_every_source_is_described():
    assert list(faults(INDEX, ROOT)) == []
    assert uncurated(INDEX) == ()
    assert len(of("cutlass")) == 216  # of 220 .py and .ipynb files at this commit: 3 __init__.py and 1 test left out
    assert len(of("package")) == len(read_curation(ROOT, "package")) >= 60
    assert len(of("cutesmith")) >= 12
    assert {example.path for example in of("cutlass")} == read_curation(ROOT, "cutlass").keys()
    assert {example.version for example in of("cutlass")} == {"7107b05535f8977f5ecb9d01ee203205b1fd9bc4"}
    assert all(example.path.startswith(f"{FOLDER}/") for example in of("cutlass"))
    for texts in ([e.summary for e in INDEX], [e.lesson for e in INDEX]):
        assert [text for text, count in Counter(texts).items() if count > 1] == []


@pytest.mark.parametrize("example", of("package"), ids=lambda example: example.id)
def test_a_package_record_is_the_installed_file(example: Example):
    found = distribution(example.repository)
    assert example.version == found.version
    assert hashlib.sha256(found.locate_file(example.path).read_bytes()).hexdigest() == example.sha256


def test_our_kernels_are_what_a_rebuild_gives_and_meet_the_contract():
    rebuilt = own(ROOT)
    assert rebuilt.faults == ()
    assert compare(of("cutesmith"), rebuilt.examples) == ()
    assert {example.path for example in rebuilt.examples} == {f"kernels/{f.name}" for f in ROOT.glob("kernels/*.py")}
    assert all(example.meets_contract and "kernel_fn" in example.symbols for example in rebuilt.examples)
    assert all(contract.inspect(ROOT / example.path).kind == "kernel" for example in rebuilt.examples)


def test_the_table_has_every_example_once_under_its_operation():
    page = table(INDEX)
    assert (ROOT / TABLE).read_text(encoding="utf-8") == page
    parts = (part.partition("\n") for part in page.split("\n## ")[1:])
    sections = {title: body for title, _, body in parts}
    assert all(sections[example.operation].count(f"`{example.id}`") == 1 for example in INDEX)
    assert list(sections) == [name for name in OPERATIONS if name in sections]


def test_licences():
    assert {example.licence for example in of("cutesmith")} == {"Apache-2.0"}
    assert {example.licence for example in of("cutlass")} == {"BSD-3-Clause"}
    for package in PACKAGES:
        named = {example.licence for example in of("package") if example.repository == package.distribution}
        assert named == {package.licence}


KNOWN = {
    "cutlass/hopper/dense_gemm_persistent": ("gemm", "sm_90a", {"tma", "wgmma", "persistent", "warp_specialization"}),
    "cutlass/ampere/flash_attention_v2": ("attention", "sm_80", {"cp_async", "mma_sync", "online_softmax", "causal"}),
    "cutlass/blackwell/mla_decode_fp16": ("mla", "sm_100a", {"tcgen05", "two_cta", "paged_kv", "decode"}),
    "cutlass/blackwell_geforce/dense_gemm": ("gemm", "sm_120a", {"tma", "mma_sync", "ldmatrix"}),
    "cutlass/notebooks/tour_to_sol_gemm": ("gemm", "sm_100a", {"tma", "tcgen05"}),
    "cutlass/primitives/tma/tma_multicast": ("copy", "sm_90a", {"tma", "tma_multicast", "cluster"}),
    "quack/softmax": ("softmax", "sm_90a", {"backward", "cluster_reduction", "torch_op"}),
    "operators/sm90_static_persistent_impl": ("gemm", "sm_90a", {"wgmma", "tma_store"}),
    "cutesmith/gemm_sm90_bias_gelu": ("gemm", "sm_90a", {"bias", "activation", "epilogue_fusion", "wgmma"}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_of_an_example(name: str):
    operation, arch, features = KNOWN[name]
    assert BY_ID[name].operation == operation
    assert arch in BY_ID[name].arch
    assert features <= set(BY_ID[name].features)


def test_wgmma_and_tcgen05_never_stand_for_another_architecture():
    for example in of("cutlass"):
        if "wgmma" in example.features:
            assert example.arch == ("sm_90a",), example.id
        if "tcgen05" in example.features:
            assert set(example.arch) <= {"sm_100a", "sm_103a"}, example.id


GOOD = BY_ID["cutlass/hopper/dense_gemm_persistent"]


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (replace(GOOD, operation="matmul"), "no operation 'matmul'"),
        (replace(GOOD, arch=("sm_91",)), "no arch 'sm_91'"),
        (replace(GOOD, dtypes=("fp16",)), "no dtype 'fp16'"),
        (replace(GOOD, features=("cluster", "tma")), "not in the vocabulary's order"),
        (replace(GOOD, summary="No full stop"), "end with a full stop"),
        (replace(GOOD, lesson="word " * 100 + "."), "too long"),
        (replace(GOOD, id="Cutlass/X"), "not of the right form"),
        (replace(GOOD, sha256="0" * 63), "not of the right form"),
        (replace(GOOD, symbols=()), "are missing"),
    ],
)
def test_a_broken_record_is_a_fault(broken: Example, fault: str, tmp_path):
    assert list(faults([GOOD], tmp_path)) == []
    assert any(fault in found for found in faults([broken], tmp_path))


def test_order_and_doubles_are_faults_and_a_record_without_words_is_uncurated(tmp_path):
    two = BY_ID["cutlass/ampere/sgemm"]
    assert "the records are not sorted by id" in list(faults([GOOD, two], tmp_path))
    assert any("2 records have this id" in fault for fault in faults([two, two], tmp_path))
    assert uncurated([replace(GOOD, summary="", lesson="", operation="")]) == (GOOD.id,)


@pytest.mark.parametrize("vocabulary", [OPERATIONS, FEATURES], ids=["operations", "features"])
def test_a_synonym_names_one_term(vocabulary: dict[str, Term]):
    named = Counter(word.replace("_", " ") for term in vocabulary.values() for word in {term.name, *term.synonyms})
    shared = {word for word, count in named.items() if count > 1}
    assert not shared


@pytest.mark.parametrize(
    ("word", "name"),
    [("Warp-Specialized", "warp_specialization"), ("cp.async", "cp_async"), ("split K", "split_k"), ("quantum", None)],
)
def test_canonical(word: str, name: str | None):
    assert canonical(word, FEATURES) == name
