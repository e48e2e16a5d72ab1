"""Fetching without a network: own kernels, installed packages, a checkout; what is written, and what never is."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cutesmith import resources
from cutesmith.examples.fetch import sources
from cutesmith.examples.fetch.fetching import FetchOptions, fetch_examples
from cutesmith.examples.fetch.sources import FetchError, keep_file, sha256_of
from cutesmith.examples.index.records import write_index
from cutesmith.verdicts import ExitCode
from tests.examples.fetch_samples import ROOT, TEXT, cutlass

PROJECT = Path(__file__).resolve().parents[2]
OWN = sorted((resources.folder("examples_index") / "kernels").glob("*.py"))[0]


def own(**changes):
    path = OWN.relative_to(resources.folder("examples_index")).as_posix()
    fields = {"id": "cutesmith/own", "source": "cutesmith", "repository": "", "version": "", "path": path}
    return cutlass(data=OWN.read_bytes(), **{**fields, "meets_contract": True, **changes})


def package(**changes):
    """A record of a package that every test machine has: pytest's own."""
    data = Path(pytest.__file__).read_bytes()
    version = importlib.metadata.version("pytest")
    fields = {"id": "pytest/init", "source": "package", "repository": "pytest", "version": version}
    return cutlass(data=data, **{**fields, "path": "pytest/__init__.py", **changes})


@pytest.fixture
def checkout(tmp_path):
    """A folder as a checkout of CUTLASS: a function that puts files there."""
    folder = tmp_path / "checkout"
    folder.mkdir()

    def put(path: str, data: bytes = TEXT) -> Path:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return folder

    return put


@pytest.fixture
def fetch(tmp_path):
    def run(*examples, ids=(), **options):
        options = {"out": tmp_path / "out", "cache": tmp_path / "cache", **options}
        return fetch_examples(ids or [examples[0].id], examples, FetchOptions(**options))

    return run


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(("record", "place"), [(own, f"cutesmith/kernels/{OWN.name}"), (package, "pytest/__init__.py")])
def test_own_kernels_and_packages_are_copied_from_where_they_are(fetch, tmp_path, record, place):
    example = record()
    (done,) = fetch(example, offline=True).examples
    assert (done.state, done.meets_contract) == ("copied", example.meets_contract)
    assert Path(done.path) == tmp_path / "out" / place
    assert sha256_of(Path(done.path).read_bytes()) == example.sha256


def test_another_version_of_a_package_says_both_and_is_taken_only_when_allowed(fetch, tmp_path):
    other = package(sha256="0" * 64, version="1.2.3")
    (done,) = fetch(other).examples
    installed = importlib.metadata.version("pytest")
    assert (done.kind, done.exit_code) == ("hash_mismatch", ExitCode.WRONG_RESULT)
    assert f"pytest {installed} is installed, the index knows 1.2.3" in done.error
    assert done.hint.startswith("pip install pytest==1.2.3")
    assert files(tmp_path) == []
    (done,) = fetch(other, any_version=True).examples
    assert (done.state, done.sha256) == ("copied", package().sha256)
    assert done.note == f"other than in the index: pytest {installed} is installed, the index knows 1.2.3"


@pytest.mark.parametrize(
    ("changes", "kind", "hint"),
    [
        ({"repository": "no-such-package", "version": "1.0"}, "not_installed", "pip install no-such-package==1.0"),
        ({"path": "pytest/gone.py"}, "not_found", "pip install pytest=="),
    ],
)
def test_a_package_that_is_missing_or_has_no_such_file_names_the_install_line(fetch, changes, kind, hint):
    (done,) = fetch(package(**changes)).examples
    assert (done.kind, done.exit_code, done.hint.startswith(hint)) == (kind, ExitCode.UNAVAILABLE, True)


def test_a_checkout_serves_without_network_and_without_cache(fetch, checkout, tmp_path):
    example = cutlass()
    (done,) = fetch(example, mirror=str(checkout(example.path))).examples
    assert (done.state, Path(done.path).read_bytes()) == ("copied", TEXT)
    assert not (tmp_path / "cache").exists()


def test_a_checkout_of_another_commit_names_the_commit_and_where_a_moved_file_is(fetch, checkout, tmp_path):
    example = cutlass()
    folder = checkout(example.path, b"newer")
    (done,) = fetch(example, mirror=str(folder)).examples
    assert (done.kind, files(tmp_path / "out")) == ("hash_mismatch", [])
    assert example.sha256 in done.error and sha256_of(b"newer") in done.error
    assert f"git -C {folder} checkout {example.version[:12]}" in done.hint
    (folder / example.path).unlink()
    (done,) = fetch(example, mirror=str(checkout("examples/new/place.py"))).examples
    assert (done.kind, done.hint) == ("not_found", "It is at examples/new/place.py there.")


def test_a_mirror_that_is_no_folder_is_usage(fetch, tmp_path):
    with pytest.raises(FetchError, match="is not a folder") as error:
        fetch(cutlass(), mirror=str(tmp_path / "none"))
    assert error.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        (b"from helpers import masks", "helpers/masks.py", True),
        (b"from helpers.masks import causal", "helpers/masks.py", True),
        (b"import helpers.masks as m", "helpers/masks.py", True),
        (b"from cute.hopper.attention.masks import x", "cute/hopper/attention/masks.py", True),
        (b"if True:\n    from masks import x", "cute/hopper/attention/masks.py", True),
        (b"from . import masks", "cute/hopper/attention/masks.py", True),
        (b"import helpers", "helpers/__init__.py", True),
        (b"import torch, masks_of_another", "helpers/masks.py", False),
        (b"text = 'import masks'", "cute/hopper/attention/masks.py", False),
        (b"from masks import x\nthis is not Python (", "cute/hopper/attention/masks.py", False),
        (b"(" * 5000, "helpers/masks.py", False),
        (b"\xff\xfe\x00", "helpers/masks.py", False),
        (b"x = '\\d'\nimport masks", "cute/hopper/attention/masks.py", True),
    ],
)
def test_the_examples_that_an_example_imports_are_read_from_its_text(fetch, checkout, text, path, found):
    example, other = cutlass("hopper/attention/fmha", text), cutlass("other", path=f"{ROOT}/{path}")
    (done,) = fetch(example, other, mirror=str(checkout(example.path, text))).examples
    assert done.siblings == ((other.id,) if found else ())


def test_siblings_are_brought_with_theirs_and_each_once(fetch, checkout, tmp_path):
    texts = {"fmha": b"from a import x\nfrom b import y", "a": b"import b", "b": b"import a"}
    index = [cutlass(f"hopper/{name}", text) for name, text in texts.items()]
    folder = [checkout(example.path, texts[example.title.removeprefix("hopper/")]) for example in index][0]
    verdict = fetch(*index, mirror=str(folder), with_siblings=True)
    assert [done.id for done in verdict.examples] == [f"cutlass/hopper/{name}" for name in texts]
    assert files(tmp_path / "out") == [f"cutlass/cute/hopper/{name}.py" for name in sorted(texts)]


@pytest.mark.parametrize(
    "path", ["../x.py", "/etc/x.py", "a/../../x.py", "a\\..\\x.py", "C:/x.py", "", "a\0b", "~/x.py"]
)
def test_a_path_of_the_index_that_leads_out_is_refused(fetch, checkout, tmp_path, path):
    folder = checkout("x.py")
    verdict = fetch(cutlass(path=path), mirror=str(folder), out=tmp_path / "deep/out")
    assert [(done.kind, done.exit_code) for done in verdict.examples] == [("unsafe_path", ExitCode.USAGE)]
    assert files(tmp_path) == ["checkout/x.py"]


def test_a_link_in_out_or_in_a_mirror_that_leads_out_of_it_is_refused(fetch, checkout, tmp_path):
    example, elsewhere = cutlass(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/cutlass").symlink_to(elsewhere)
    folder = checkout(example.path)
    (folder / "link.py").symlink_to(PROJECT / "pyproject.toml")
    for record in (example, cutlass(path="link.py")):
        (done,) = fetch(record, mirror=str(folder)).examples
        assert (done.kind, files(elsewhere)) == ("unsafe_path", [])


def test_a_file_that_was_edited_is_not_replaced_unless_asked(fetch, checkout):
    example = cutlass()
    folder = str(checkout(example.path))
    (done,) = fetch(example, mirror=folder).examples
    assert fetch(example, mirror=folder).examples[0].state == "unchanged"
    Path(done.path).write_bytes(b"my edits")
    (again,) = fetch(example, mirror=folder).examples
    assert (again.kind, again.exit_code, Path(done.path).read_bytes()) == ("exists", ExitCode.USAGE, b"my edits")
    (again,) = fetch(example, mirror=folder, overwrite=True).examples
    assert (again.state, Path(done.path).read_bytes()) == ("copied", TEXT)


def test_nothing_that_was_fetched_is_run_and_an_out_that_is_a_file_is_said(fetch, checkout, tmp_path):
    text = f"open({str(tmp_path / 'ran')!r}, 'w')\nimport os\n".encode()
    example = cutlass(data=text)
    folder = str(checkout(example.path, text))
    assert fetch(example, mirror=folder).exit_code == ExitCode.PASSED
    assert not (tmp_path / "ran").exists()
    (tmp_path / "file").write_text("")
    (done,) = fetch(example, mirror=folder, out=tmp_path / "file").examples
    assert (done.kind, done.exit_code) == ("not_writable", ExitCode.UNAVAILABLE)


FETCH = """
import sys, json
from pathlib import Path
from cutesmith.examples.fetch.fetching import FetchOptions, fetch_examples
from cutesmith.examples.index.records import read_index
{before}
folder = Path(sys.argv[1])
options = FetchOptions(out=folder / "out", cache=folder / "cache", mirror=sys.argv[2])
index = read_index(folder / "index.jsonl")
print(fetch_examples([index[0].id], index, options).to_json())
"""
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
NOBODY = "import os; os.chmod(sys.argv[1] + '/out', 0o555); os.geteuid() or os.seteuid(65534)"


@pytest.mark.parametrize(("before", "kind"), [(FULL, "disk_full"), (NOBODY, "not_writable")])
def test_a_full_disk_and_a_read_only_folder_leave_nothing_behind(before, kind):
    data = b"#" * 100_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        example = cutlass(data=data)
        write_index([example], folder / "index.jsonl")
        (folder / "checkout" / example.path).parent.mkdir(parents=True)
        (folder / "checkout" / example.path).write_bytes(data)
        (folder / "out").mkdir()
        command = [sys.executable, "-c", FETCH.format(before=before), folder, folder / "checkout"]
        verdict = json.loads(subprocess.check_output(command, cwd=PROJECT, timeout=30))
        assert (verdict["exit_code"], verdict["examples"][0]["kind"]) == (7, kind)
        assert files(folder / "out") == []
        (folder / "out").chmod(0o755)


def test_what_a_kill_left_is_removed_by_a_later_write(tmp_path):
    old, young = tmp_path / ".file.py-1.tmp", tmp_path / ".file.py-2.tmp"
    for left in (old, young):
        left.write_bytes(b"half")
    os.utime(old, (0, 0))
    keep_file(tmp_path / "file.py", b"whole")
    assert files(tmp_path) == [young.name, "file.py"]


@pytest.mark.skipif(sys.platform != "linux", reason="the rule of Linux")
def test_the_cache_is_where_the_system_and_the_user_want_it():
    assert resources.cache_folder({"CUTESMITH_CACHE": "/c"}) == Path("/c")
    assert resources.cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/cutesmith")
    assert resources.cache_folder({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/cutesmith"
    assert resources.cache_folder({}) == Path.home() / ".cache/cutesmith"


def test_the_address_is_that_of_the_pinned_commit():
    example = cutlass()
    github = "https://raw.githubusercontent.com/NVIDIA/cutlass"
    assert sources.address(example, "") == f"{github}/{example.version}/{example.path}"


def test_a_module_of_another_repository_keeps_its_folders_so_that_its_imports_hold(fetch, checkout, tmp_path):
    about = {"source": "repository", "repository": "Dao-AILab/flash-attention"}
    importing = b"from flash_attn.cute import mask\n"
    record = cutlass(data=importing, id="flash_attention/fwd", path="flash_attn/cute/fwd.py", **about)
    sibling = cutlass(id="flash_attention/mask", path="flash_attn/cute/mask.py", **about)
    checkout(sibling.path)
    folder = checkout(record.path, importing)
    verdict = fetch(record, sibling, mirror=str(folder), with_siblings=True)
    assert verdict.exit_code == ExitCode.PASSED
    assert (tmp_path / "out/flash_attn/cute/fwd.py").read_bytes() == importing
    assert (tmp_path / "out/flash_attn/cute/mask.py").is_file()
    assert sources.address(record, "").endswith(
        f"com/Dao-AILab/flash-attention/{record.version}/flash_attn/cute/fwd.py"
    )
    assert sources.origin(record) == f"Dao-AILab/flash-attention@{record.version[:12]} flash_attn/cute/fwd.py"
