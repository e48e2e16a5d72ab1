"""The verb on a small checkout that changes: new, moved, edited and gone examples, a broken file, a notebook."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cutesmith import resources
from cutesmith.commands import update_examples_index
from cutesmith.examples.index.records import FILE, read_index
from tests.examples.cutlass_tree import COMMIT, ELEMENTWISE, FILES, FOLDER, HOPPER, entry, write_tree

Run = Callable[..., tuple[int, dict]]
EXAMPLES = [path for path in FILES if path.endswith((".py", ".ipynb")) and not path.startswith("utils")]
NEXT_COMMIT = COMMIT[::-1]


@pytest.fixture
def run(capsys) -> Run:
    def call(*arguments: str | Path) -> tuple[int, dict]:
        code = update_examples_index.main([*map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def index(tmp_path: Path, run: Run) -> Path:
    """An index of the small checkout, written by the verb, everything described."""
    root = tmp_path / "index"
    (root / "curation").mkdir(parents=True)
    lines = [entry(path, features=["persistent", "-predication"]) for path in sorted(EXAMPLES)]
    (root / "curation" / "cutlass.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, verdict = run("--index", root, "--checkout", write_tree(tmp_path / "one"), "--commit", COMMIT, "--write")
    assert (code, verdict["written"], verdict["records"], verdict["faults"]) == (0, True, {"cutlass": 4}, [])
    return root


def kinds(verdict: dict) -> dict[str, str]:
    return {change["path"].removeprefix(f"{FOLDER}/"): change["kind"] for change in verdict["changes"]}


def edited(**files: str | None) -> dict[str, str]:
    """FILES with some replaced; None takes one away."""
    return {path: text for path, text in {**FILES, **files}.items() if text is not None}


def test_a_fresh_index_passes_its_check(index: Path, run: Run):
    code, verdict = run("--index", index, "--check")
    assert (code, verdict["summary"], verdict["changes"]) == (0, "nothing differs", [])
    assert run("--index", index, "--check", "--checkout", index.parent / "one", "--commit", COMMIT)[0] == 0


def test_the_written_records(index: Path):
    records = {record.id: record for record in read_index(index / FILE)}
    names = ("ampere/add", "blackwell/moe_utils", "hopper/gemm", "notebooks/show")
    assert sorted(records) == [f"cutlass/{name}" for name in names]
    add = records["cutlass/ampere/add"]
    assert (add.version, add.repository, add.source) == (COMMIT, "NVIDIA/cutlass", "cutlass")
    assert add.features == ("vectorized_copy", "persistent")  # one added by hand, one taken away
    assert add.summary == "What cute/ampere/kernel/elementwise/add.py is."
    assert add.symbols == ("add_kernel", "add")
    assert "`cutlass/ampere/add`" in (index / "table.md").read_text(encoding="utf-8")


def test_what_changes_between_two_checkouts(index: Path, run: Run, tmp_path: Path):
    files = {
        "cute/ampere/kernel/elementwise/add.py": None,
        "cute/ampere/kernel/pointwise/add.py": ELEMENTWISE,  # moved as it was
        "cute/hopper/kernel/dense_gemm/gemm.py": None,
        "cute/hopper/kernel/gemm/dense_gemm.py": HOPPER + "\n\nX = 1\n",  # moved and edited
        "cute/blackwell/kernel/moe/moe_utils.py": "def other(a):\n    return a\n",
        "cute/notebooks/show.ipynb": None,
        "cute/blackwell/kernel/reduce/reduce.py": "def row_reduce(x):\n    return x\n",
    }
    two = write_tree(tmp_path / "two", edited(**files))
    arguments = ("--index", index, "--checkout", two, "--commit", NEXT_COMMIT)
    code, verdict = run(*arguments, "--check")
    assert code == 1
    assert kinds(verdict) == {
        "cute/ampere/kernel/pointwise/add.py": "moved",
        "cute/hopper/kernel/gemm/dense_gemm.py": "moved",
        "cute/blackwell/kernel/moe/moe_utils.py": "changed",
        "cute/blackwell/kernel/reduce/reduce.py": "new",
        "cute/notebooks/show.ipynb": "gone",
    }
    moves = {change["was"]: change["likeness"] for change in verdict["changes"] if change["kind"] == "moved"}
    assert moves[f"{FOLDER}/cute/ampere/kernel/elementwise/add.py"] == 1.0
    assert 0.7 <= moves[f"{FOLDER}/cute/hopper/kernel/dense_gemm/gemm.py"] < 1.0
    assert read_index(index / FILE)[0].version == COMMIT  # a check writes nothing

    code, verdict = run(*arguments, "--write")
    assert verdict["uncurated"] == ["cutlass/blackwell/reduce"]
    records = {record.path.removeprefix(f"{FOLDER}/"): record for record in read_index(index / FILE)}
    assert records["cute/ampere/kernel/pointwise/add.py"].summary == "What cute/ampere/kernel/elementwise/add.py is."
    assert records["cute/hopper/kernel/gemm/dense_gemm.py"].lesson.startswith("What cute/hopper")
    assert {record.version for record in records.values()} == {NEXT_COMMIT}
    assert code == 1  # the curation still describes the notebook that is gone
    assert verdict["faults"] == [
        f"curation describes {FOLDER}/cute/notebooks/show.ipynb, which the index does not have"
    ]
    assert run("--index", index, "--check")[0] == 1  # and the new one has no description


def test_the_same_files_at_another_commit_are_restamped(index: Path, run: Run):
    arguments = ("--index", index, "--checkout", index.parent / "one", "--commit", NEXT_COMMIT)
    code, verdict = run(*arguments)
    assert (code, set(kinds(verdict).values()), verdict["summary"]) == (0, {"restamped"}, "4 restamped")
    assert run(*arguments, "--check")[0] == 1


def test_a_file_that_does_not_parse_keeps_its_record(index: Path, run: Run, tmp_path: Path):
    broken = write_tree(tmp_path / "two", edited(**{"cute/hopper/kernel/dense_gemm/gemm.py": "def f(:\n"}))
    code, verdict = run("--index", index, "--checkout", broken, "--commit", COMMIT, "--write")
    assert code == 1
    assert "dense_gemm/gemm.py:1: does not parse" in verdict["faults"][0]
    assert verdict["changes"] == [] and verdict["records"] == {"cutlass": 4}


def test_words_are_taken_from_the_curation_without_a_checkout(index: Path, run: Run):
    file = index / "curation" / "cutlass.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace("gemm.py teaches", "gemm.py shows"), encoding="utf-8")
    code, verdict = run("--index", index, "--check")
    assert (code, kinds(verdict)) == (1, {"cute/hopper/kernel/dense_gemm/gemm.py": "described"})
    assert run("--index", index, "--write")[0] == 0
    assert any(record.lesson.endswith("gemm.py shows.") for record in read_index(index / FILE))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"path": "a.py"}', "no curation entry"),
        ("[1]", "no curation entry"),
        (entry("cute/hopper/kernel/dense_gemm/gemm.py"), "a second entry"),
        (entry("cute/new.py", features=["quantum"]), "which the index does not have"),
    ],
)
def test_broken_curation_says_where(index: Path, run: Run, line: str, said: str):
    with (index / "curation" / "cutlass.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    code, verdict = run("--index", index, "--check")
    assert code in (1, 2)
    assert said in json.dumps(verdict)


def test_a_stale_table_fails_the_check(index: Path, run: Run):
    (index / "table.md").write_text("# edited\n", encoding="utf-8")
    code, verdict = run("--index", index, "--check")
    assert (code, verdict["fresh_table"], verdict["summary"]) == (1, False, "nothing differs, the table is stale")


@pytest.mark.slow
def test_the_shipped_index_passes_its_check(run: Run):
    code, verdict = run("--check")
    assert (code, verdict["summary"]) == (0, "nothing differs")


@pytest.mark.slow
def test_an_edited_kernel_fails_the_check(run: Run, tmp_path: Path):
    shutil.copytree(resources.folder("examples_index") / "kernels", tmp_path / "kernels")
    assert run("--index", tmp_path, "--write")[0] == 0
    assert run("--index", tmp_path, "--check")[0] == 0
    kernel = tmp_path / "kernels" / "relu_minimal.py"
    kernel.write_text(kernel.read_text(encoding="utf-8") + "\nEDITED = True\n", encoding="utf-8")
    code, verdict = run("--index", tmp_path, "--check")
    assert (code, kinds(verdict)) == (1, {"kernels/relu_minimal.py": "changed"})


def test_people_get_a_table(index: Path, capsys, tmp_path: Path):
    two = write_tree(tmp_path / "two", edited(**{"cute/notebooks/show.ipynb": None}))
    code = update_examples_index.main(["--index", str(index), "--checkout", str(two), "--commit", COMMIT])
    first, *lines = capsys.readouterr().out.splitlines()
    assert code == 0  # shown, not checked
    assert first.startswith("3 examples (3 cutlass): 1 gone")
    assert lines[0] == f"  gone      {FOLDER}/cute/notebooks/show.ipynb"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--commit", COMMIT], "--commit says which commit one --checkout is"),
        (["--checkout", "/nonexistent"], "is not a git work tree"),
        (["--checkout", "/nonexistent", "--commit", COMMIT], "has no examples/python/CuTeDSL"),
        (["--checkout", "/nonexistent", "--commit", "main"], "is not a commit of 40 digits"),
        (["--check", "--write"], "not allowed with"),
    ],
)
def test_usage_errors(arguments: list[str], said: str, run: Run):
    code, error = run(*arguments)
    assert code == 2
    assert said in error["summary"]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_asked_of_git(index: Path, run: Run, tmp_path: Path):
    tree = write_tree(tmp_path / "tree")
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-q", "-m", "all")):
        subprocess.run(["git", "-C", tree, *command], check=True, capture_output=True)
    head = subprocess.run(["git", "-C", tree, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert run("--index", index, "--checkout", tree, "--write")[0] == 0
    assert {record.version for record in read_index(index / FILE)} == {head.stdout.strip()}
