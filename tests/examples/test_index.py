"""The index as it is shipped: whole, in order, in the vocabulary's words, and equal to what it was made from.

And what is read off a source: names without comments, features, dtypes, architectures, symbols, ids.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path

import pytest

from cutesmith import resources
from cutesmith.errors import ContractError, UsageError
from cutesmith.examples.index import features, libraries, rebuilding
from cutesmith.examples.index.comparison import compare
from cutesmith.examples.index.curation import faults, read_curation, uncurated
from cutesmith.examples.index.features import Source, read_source
from cutesmith.examples.index.libraries import PACKAGES, REPOSITORIES
from cutesmith.examples.index.rebuilding import own
from cutesmith.examples.index.records import TABLE, Example, read_index, table
from cutesmith.examples.vocabulary import FEATURES, OPERATIONS, Term, canonical
from cutesmith.problems import contract
from tests.examples.cutlass_tree import BLACKWELL_HELPER, ELEMENTWISE, FILES, FOLDER, HOPPER, entry, write_tree

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
    assert {example.path for example in of("repository")} == read_curation(ROOT, "repository").keys()
    pinned = {(example.repository, example.version) for example in of("repository")}
    assert sorted(name for name, _ in pinned) == sorted(library.name for library in REPOSITORIES)
    assert all(rebuilding.COMMIT.fullmatch(version) for _, version in pinned)
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


@pytest.mark.slow
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
        named = {example.licence for example in of("package") if example.repository == package.name}
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
    operation, arch, named = KNOWN[name]
    assert BY_ID[name].operation == operation
    assert arch in BY_ID[name].arch
    assert named <= set(BY_ID[name].features)


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


KERNEL = '''\
"""Softmax of rows. A second sentence.

Shows a reduction. And more.

Arch: sm_80+, sm_90a
Operation: softmax
Features: vectorized, row_reduction, float16, quantum
Start here when a row is reduced. Not otherwise.
"""
import cutlass.cute as cute


@cute.kernel
def softmax_kernel(x: cute.Tensor):
    cute.arch.sync_threads()


def kernel_fn(x):
    return x


def reference_fn(x):
    return x


def get_inputs():
    return []
'''


def source_of(text: str, path: str = "kernel.py") -> Source:
    return Source(path=path, sha256="", code=text, lines=1)


def facts(text: str, path: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    source = source_of(text, path)
    found = features.features(source)
    return found, features.archs(source, found), features.dtypes(source)


def test_what_a_docstring_speaks_of_is_no_feature():
    path = f"{FOLDER}/cute/ampere/kernel/elementwise/add.py"
    assert facts(ELEMENTWISE, path) == (("vectorized_copy", "predication"), ("sm_80",), ("float16",))


def test_a_hopper_class():
    found, archs, dtypes = facts(HOPPER, f"{FOLDER}/cute/hopper/kernel/dense_gemm/gemm.py")
    assert {"tma", "wgmma", "cluster", "register_reallocation", "named_barrier", "alpha_beta", "pipeline"} <= set(found)
    assert not {"tcgen05", "mma_sync", "persistent"} & set(found)
    assert (archs, dtypes) == (("sm_90a",), ("float32", "bfloat16"))


@pytest.mark.parametrize(
    ("text", "names"),
    [(HOPPER, ("HopperGemm",)), (BLACKWELL_HELPER, ("ceil_div",)), ("class _Only:\n    pass\n", ("_Only",))],
    ids=["launched", "public", "private"],
)
def test_symbols_are_what_is_launched_else_the_public_names(text, names):
    assert features.symbols(source_of(text)) == names


@pytest.mark.parametrize(
    ("path", "found", "archs"),
    [
        ("notes/a.py", (), ("sm_80",)),
        ("notes/a.py", ("tma",), ("sm_90a",)),
        ("notes/a.py", ("tma", "tcgen05"), ("sm_100a",)),
        ("notes/a.py", ("tmem",), ("sm_100a",)),
        ("cute/blackwell/kernel/copy/a.py", ("tma",), ("sm_90a", "sm_100a")),
        ("cute/blackwell/kernel/gemm/a.py", ("tcgen05",), ("sm_100a",)),
        ("cute/blackwell/kernel/gemm/sm103_a.py", ("tcgen05",), ("sm_103a",)),
        ("cute/blackwell_geforce/kernel/a.py", ("tma",), ("sm_120a",)),
        ("quack/gemm_sm90.py", ("wgmma",), ("sm_90a",)),
        ("distributed/gemm_blackwell.py", ("tcgen05",), ("sm_100a",)),
    ],
)
def test_archs(path: str, found: tuple[str, ...], archs: tuple[str, ...]):
    assert features.archs(source_of("", path), found) == archs


def test_bytes_beside_four_bit_floats_are_carriers():
    assert features.dtypes(source_of("a = cutlass.Float4E2M1FN\nb = cutlass.Int8\n")) == ("float4_e2m1fn",)
    assert features.dtypes(source_of("a = cutlass.Int4\nb = cutlass.Int8\n")) == ("int8", "int4")


def test_every_rule_is_of_the_vocabulary_and_reads_strings_but_no_docstrings():
    assert (features.RULES.keys() | features.STRING_RULES.keys()) <= features.FEATURES.keys()
    assert set(features.NUMERIC.values()) <= features.DTYPES.keys()
    assert features.features(source_of('f(options="--enable-tvm-ffi")')) == ("tvm_ffi",)
    assert features.features(source_of('"""Compile with --enable-tvm-ffi."""')) == ()


def test_a_notebook_is_the_code_of_its_cells(tmp_path: Path):
    file = write_tree(tmp_path) / FOLDER / "cute/notebooks/show.ipynb"
    source = read_source(file, f"{FOLDER}/cute/notebooks/show.ipynb")
    assert source.lines == 8  # 2 of text, 3 and 3 of code
    assert "load_ext" not in source.code and "nvidia" not in source.code
    assert features.features(source) == ("printing",)
    assert features.symbols(source) == ("show",)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.py", b"def f(:\n", "a.py:1: does not parse"),
        ("a.py", b"\xff\xfe", "no readable source"),
        ("a.ipynb", b"{}", "no readable source"),
        ("a.ipynb", b"not json", "no readable source"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(name: str, data: bytes, said: str, tmp_path: Path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=said):
        read_source(tmp_path / name, name)


def test_examples_of_a_checkout_leave_out_tests_and_package_markers(tmp_path: Path):
    found = [path.removeprefix(f"{FOLDER}/") for path, _ in rebuilding.example_files(write_tree(tmp_path))]
    assert found == sorted(path for path in FILES if path.endswith(("add.py", "gemm.py", "moe_utils.py", ".ipynb")))
    assert (source_of(ELEMENTWISE).licence, source_of("x = 1").licence) == ("BSD-3-Clause", "")


def test_ids_are_short_and_where_two_would_be_equal_whole():
    paths = [f"{FOLDER}/cute/hopper/kernel/{folder}/gemm.py" for folder in ("dense", "grouped")]
    alone = f"{FOLDER}/experimental/task_scheduling/blackwell/tutorial/01_copy/A.py"
    ids = rebuilding.identifiers([*paths, alone])
    assert ids[alone] == "cutlass/task_scheduling/01_copy/a"
    assert [ids[path] for path in paths] == [
        "cutlass/cute/hopper/kernel/dense/gemm_py",
        "cutlass/cute/hopper/kernel/grouped/gemm_py",
    ]
    assert rebuilding.identifiers(paths[:1]) == {paths[0]: "cutlass/hopper/gemm"}


def test_ids_of_packages():
    operators, quack = PACKAGES
    assert libraries.identifier("quack/epilogue/ops.py", quack) == "quack/epilogue/ops"
    gemm = "cutlass/operators/providers/cutedsl/gemm/implementations/sm90_impl.py"
    assert libraries.library_of(gemm, PACKAGES) == operators
    assert libraries.identifier(gemm, operators) == "operators/sm90_impl"
    assert libraries.library_of("torch/nn.py", PACKAGES) is None


def test_a_kernel_describes_itself(write_file):
    file = write_file(KERNEL, "softmax_rows.py")
    record, unknown = rebuilding.described(read_source(file, "kernels/softmax_rows.py"), file)
    assert (record.id, record.operation, record.arch) == ("cutesmith/softmax_rows", "softmax", ("sm_80", "sm_90a"))
    assert record.summary == "Softmax of rows."
    assert record.lesson == "Shows a reduction. Start here when a row is reduced."
    assert record.features == ("vectorized_copy", "block_reduction")
    assert record.dtypes == ("float16",)
    assert record.symbols == ("softmax_kernel", "kernel_fn") and record.meets_contract
    assert unknown == ["quantum"]


@pytest.mark.parametrize(
    ("line", "instead", "error", "said"),
    [
        ("Arch: sm_80+, sm_90a\n", "", UsageError, "no line `Arch"),
        ("sm_80+", "sm_81", UsageError, "no arch"),
        ("Operation: softmax", "Operation: sofmax", UsageError, "no operation 'sofmax'"),
        ("Start here when", "Begin here when", UsageError, "Start here when"),
        ("def kernel_fn", "def kernel", ContractError, "kernel_fn"),
    ],
)
def test_a_kernel_that_describes_itself_badly(line: str, instead: str, error: type, said: str, write_file):
    file = write_file(KERNEL.replace(line, instead), "softmax_rows.py")
    with pytest.raises(error, match=said):
        rebuilding.described(read_source(file, "kernels/softmax_rows.py"), file)


@pytest.fixture
def curate(tmp_path: Path):
    """A function that makes `path` the one module of a package that the curation describes; gives the index's root."""

    def curate(path: str) -> Path:
        (tmp_path / "curation").mkdir()
        line = entry("x").replace(f"{FOLDER}/x", path)
        (tmp_path / "curation/packages.jsonl").write_text(line + "\n", encoding="utf-8")
        return tmp_path

    return curate


def test_records_of_a_package_that_is_not_installed_stay_as_they_are(curate):
    absent = libraries.Library("cutesmith-has-no-such-package", "quack", "MIT", ("quack/",))
    current = replace(BY_ID["quack/softmax"], repository=absent.name)
    kept = rebuilding.packaged(curate("quack/softmax.py"), [current], [absent])
    assert kept.examples == (current,)
    assert kept.notes == ("cutesmith-has-no-such-package is not installed: its records were not compared",)


def test_curation_of_a_module_that_no_package_has_is_a_fault(curate):
    rebuilt = rebuilding.packaged(curate("quack/no_such_module.py"), [])
    assert rebuilt.examples == ()
    assert rebuilt.faults == ("quack/no_such_module.py: curation describes it, no installed package has it",)


LIGER = "src/liger_kernel/ops/cutedsl/ops"


def liger(root: Path, text: str = ELEMENTWISE) -> tuple[Path, Path]:
    """An index whose curation describes one module of Liger, and a checkout that has it."""
    (root / "index/curation").mkdir(parents=True)
    line = entry("x").replace(f"{FOLDER}/x", f"{LIGER}/add.py")
    (root / "index/curation/repositories.jsonl").write_text(line + "\n", encoding="utf-8")
    module = root / "checkout" / LIGER / "add.py"
    module.parent.mkdir(parents=True)
    module.write_text(text, encoding="utf-8")
    return root / "index", root / "checkout"


def test_a_checkout_of_another_repository_gives_the_records_of_its_described_modules(tmp_path: Path):
    index, checkout = liger(tmp_path)
    rebuilt = rebuilding.rebuild(index, [checkout], "a" * 40)
    (record,) = (example for example in rebuilt.examples if example.source == "repository")
    assert (record.id, record.repository, record.version) == ("liger/add", "linkedin/Liger-Kernel", "a" * 40)
    assert record.sha256 == hashlib.sha256(ELEMENTWISE.encode()).hexdigest()
    assert record.licence == "BSD-3-Clause"  # its own line counts, not the repository's BSD-2-Clause
    (described,) = rebuilding.from_repositories(index, {}, None, [replace(record, summary="")]).examples
    assert described == record  # without the checkout it keeps its facts and gets the curation's words


def test_a_described_module_that_neither_index_nor_checkout_has_is_a_fault(tmp_path: Path):
    index, checkout = liger(tmp_path)
    assert "give a --checkout of its repository" in rebuilding.rebuild(index).faults[0]
    (checkout / LIGER / "add.py").unlink()
    assert "the checkout does not have it" in rebuilding.rebuild(index, [checkout], "a" * 40).faults[0]


def test_two_checkouts_of_one_kind_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="not a second checkout"):
        rebuilding.rebuild(tmp_path, [write_tree(tmp_path / "a"), write_tree(tmp_path / "b")], "a" * 40)
