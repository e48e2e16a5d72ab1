"""The skill's files: the same in the repository, the wheel and the archive, byte for byte; and its plugin manifests."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cutesmith import __version__, resources
from cutesmith.errors import UnavailableError
from cutesmith.skill.content import RECORD, digest, read_record, skill_files, tree
from cutesmith.skill.installation import install
from cutesmith.skill.release import plugin_manifests, repository_manifests, write_archive

ROOT = Path(__file__).resolve().parents[2]
TOP = "cute-dsl-kernels/"
PLUGIN = {"name", "version", "description", "author", "license", "keywords"}
KEYS = {
    ".claude-plugin/plugin.json": PLUGIN | {"skills"},
    ".codex-plugin/plugin.json": PLUGIN | {"skills"},
    ".cursor-plugin/plugin.json": PLUGIN | {"skills"},
    ".claude-plugin/marketplace.json": {"name", "owner", "plugins", "metadata"},
    "gemini-extension.json": {"name", "version", "description", "contextFileName"},
}


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    return skill_files()


@pytest.fixture(scope="module")
def copied(installed: Path) -> dict[str, Path]:
    """The same, as they were installed."""
    return {name: installed / name for name in read_record(installed).files}


@pytest.fixture(scope="module")
def unpacked_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository as a wheel, unpacked; hatchling is fetched where the environment lacks it."""
    folder = tmp_path_factory.mktemp("wheel")
    isolation = ["--no-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "build", "--wheel", *isolation, "--outdir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def test_a_copy_has_every_part(files):
    parts = {name.partition("/")[0] for name in files}
    assert parts == {"SKILL.md", "LICENSE", "references", "examples_index", "scripts", "cutesmith"}
    template = "cutesmith/patterns/writing/templates/rows.py.j2"
    assert {"scripts/lint_kernel.py", template, "references/api-core.md"} <= set(files)
    assert not [name for name in files if "__pycache__" in name or name.endswith(".pyc")]
    assert len(files) == len({path.resolve() for path in files.values()})


def test_every_name_is_one_that_every_system_takes(files):
    parts = {part for name in files for part in name.split("/")}
    assert [part for part in parts if not re.fullmatch(r"\w[\w.-]*\w", part, re.ASCII)] == []
    assert not {part.split(".")[0].lower() for part in parts} & {"con", "prn", "aux", "nul", "com1", "lpt1"}  # Windows
    assert max(map(len, files)) <= 160  # Windows takes 260 for the whole path
    assert len({name.lower() for name in files}) == len(files)


def test_a_link_among_the_files_is_refused(tmp_path):
    (tmp_path / "a.md").write_text("x")
    assert list(tree(tmp_path)) == ["a.md"]
    (tmp_path / "b.md").symlink_to("a.md")
    with pytest.raises(UnavailableError, match="b.md is a link"):
        list(tree(tmp_path))


@pytest.mark.slow
def test_the_wheel_carries_the_same_bytes(files, unpacked_wheel):
    package = {p.relative_to(unpacked_wheel).as_posix() for p in unpacked_wheel.rglob("*") if p.is_file()}
    package = {name for name in package if "__pycache__" not in name}  # other tests run it
    metadata = f"cutesmith-{__version__}.dist-info/"
    places = {name: name if name.startswith("cutesmith/") else f"cutesmith/_content/{name}" for name in files}
    places["LICENSE"] = metadata + "licenses/LICENSE"
    found = (path for name in ("libraries", "tasks") for path in (ROOT / "evals" / name).rglob("*") if path.is_file())
    judged = {f"cutesmith/_content/{p.relative_to(ROOT / 'evals')}" for p in found if "__pycache__" not in p.parts}
    held = {name for name in package if not name.startswith(metadata)}
    assert held == set(places.values()) - {places["LICENSE"]} | judged
    for name, place in places.items():
        assert (unpacked_wheel / place).read_bytes() == files[name].read_bytes(), name


def run(package: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python in `folder`, where `cutesmith` is imported from `package`."""
    command, environment = [sys.executable, *arguments], {**os.environ, "PYTHONPATH": str(package)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


INSTALL = ("-m", "cutesmith", "skill", "install", "--project", ".", "--client")


@pytest.mark.slow
def test_the_package_of_the_wheel_has_the_tasks(unpacked_wheel, tmp_path):
    code = "from cutesmith.evals.suites import load_suite; print(load_suite('core').tasks[0].path)"
    found = run(unpacked_wheel, tmp_path, "-c", code).stdout
    assert Path(found.strip()).is_relative_to(unpacked_wheel / "cutesmith/_content/tasks/level1")


@pytest.mark.slow
def test_the_package_of_the_wheel_finds_them_and_installs_them(files, unpacked_wheel, tmp_path):
    run(unpacked_wheel, tmp_path, *INSTALL, "claude").check_returncode()
    copy = tmp_path / ".claude/skills/cute-dsl-kernels"
    assert read_record(copy).files == {name: digest(path) for name, path in files.items()}
    assert (copy / "cutesmith/resources.py").is_file()
    assert not (copy / "cutesmith/_content").exists()


@pytest.mark.slow
def test_an_installed_copy_gives_what_was_installed(installed, tmp_path):
    """Its own package finds its files, and a copy of the copy is the same copy."""
    run(installed, tmp_path, *INSTALL, "codex").check_returncode()
    copy = tmp_path / ".agents/skills/cute-dsl-kernels"
    assert (copy / RECORD).read_bytes() == (installed / RECORD).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["tar.gz", "zip"])
def test_an_archive_has_the_same_bytes_each_time_and_holds_the_copy(copied, installed, tmp_path, ending):
    first = write_archive(tmp_path / f"one.{ending}", copied)
    second = write_archive(tmp_path / f"two.{ending}", dict(reversed(copied.items())))
    assert (first.sha256, first.size) == (second.sha256, second.size)
    assert hashlib.sha256(Path(first.path).read_bytes()).hexdigest() == first.sha256
    shutil.unpack_archive(first.path, tmp_path / "unpacked", **({} if ending == "zip" else {"filter": "data"}))
    copy = tmp_path / "unpacked" / TOP
    assert {p.relative_to(copy).as_posix() for p in copy.rglob("*") if p.is_file()} == {*copied, RECORD}
    assert (copy / RECORD).read_bytes() == (installed / RECORD).read_bytes()
    assert install(copy, copied).action == "unchanged"


def test_an_archive_names_no_owner_and_no_time(copied, tmp_path):
    archive = write_archive(tmp_path / "one.tgz", copied)
    with tarfile.open(archive.path) as tarred:
        members = tarred.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime, m.type) for m in members} == {(0, 0, "", "", 0, tarfile.REGTYPE)}
    modes = {m.name: m.mode for m in members}
    assert (modes[TOP + "scripts/doctor.py"], modes[TOP + "SKILL.md"]) == (0o755, 0o644)
    assert list(modes) == sorted(modes)


def test_a_plugin_archive_holds_the_skill_and_the_manifests_of_the_clients(copied, tmp_path):
    archive = write_archive(tmp_path / "plugin.zip", copied, as_plugin=True)
    names = set(zipfile.ZipFile(archive.path).namelist())
    skill = f"cutesmith/skills/{TOP}"
    assert names == {
        *(f"cutesmith/{name}" for name in plugin_manifests()),
        *(skill + name for name in (*copied, RECORD)),
    }


def test_a_package_that_is_not_whole_says_so(unpacked_wheel, tmp_path):
    code = "from cutesmith.skill.content import skill_files; skill_files()"
    assert run(unpacked_wheel, tmp_path, "-c", code).returncode == 0
    content = unpacked_wheel / "cutesmith/_content"
    (content / "SKILL.md").rename(content / "kept")
    broken = run(unpacked_wheel, tmp_path, "-c", code)
    (content / "kept").rename(content / "SKILL.md")
    assert "UnavailableError: no SKILL.md in" in broken.stderr
    assert resources.REINSTALL in broken.stderr


@pytest.mark.parametrize("name", KEYS)
def test_the_repository_has_the_manifests_of_this_version(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == repository_manifests()[name], "run: cutesmith skill manifests"
    fields = json.loads(text)
    assert (set(fields), fields["name"]) == (KEYS[name], "cutesmith")
    assert fields.get("version", __version__) == __version__
    if skills := fields.get("skills"):
        assert skills.startswith("./")
        assert [path.parent.name for path in (ROOT / skills).glob("*/SKILL.md")] == [resources.SKILL_NAME]
    for entry in fields.get("plugins", ()):
        assert (entry["source"], set(entry)) == ("./", {"name", "source", "description"}), "plugin.json says the rest"
    if context := fields.get("contextFileName"):
        text = (ROOT / context).read_text()
        assert f"`skill/{resources.SKILL_NAME}/SKILL.md`" in text
        assert len(text) < 600, "it is in the context of every conversation"


def test_a_plugin_archive_holds_a_manifest_for_every_client_without_paths():
    fields = {name: json.loads(text) for name, text in plugin_manifests().items()}
    assert set(fields) == {*KEYS, "plugin.json"}
    assert set(fields["plugin.json"]) == PLUGIN | {"$schema"}
    assert not [name for name in fields if {"skills", "contextFileName"} & set(fields[name])], "skills/ is the default"
