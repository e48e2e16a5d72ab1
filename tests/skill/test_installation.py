"""Copies in clients' folders: whole or not at all, no user's work lost, no link followed out of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from cutesmith import __version__
from cutesmith.errors import UsageError
from cutesmith.resources import SKILL_NAME
from cutesmith.skill.content import RECORD, Record, digest, dsl_version, read_record
from cutesmith.skill.installation import SKILLS_FOLDERS, examine, install, targets, uninstall

FAQ = "references/faq.md"
FILES = {"SKILL.md": "skill\n", FAQ: "# FAQ\n", "scripts/doctor.py": "pass\n"}


def write(folder: Path, texts: dict[str, str]) -> dict[str, Path]:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {name: folder / name for name in sorted(texts)}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return write(tmp_path / "source", FILES)


@pytest.fixture
def newer(tmp_path: Path) -> dict[str, Path]:
    return write(tmp_path / "newer", {"SKILL.md": "new\n", FAQ: "newer\n"})


@pytest.fixture
def root(tmp_path: Path, files: dict[str, Path]) -> Path:
    """A copy of `files`, as it was installed."""
    root = tmp_path / "project/.agents/skills/cute-dsl-kernels"
    assert install(root, files).action == "installed"
    return root


def texts(root: Path) -> dict[str, str]:
    """Path → text of every file of a copy but its record."""
    files = (path for path in root.rglob("*") if path.is_file() and path != root / RECORD)
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def test_a_link_inside_the_project_is_followed_and_one_that_leads_out_is_refused(tmp_path):
    (tmp_path / ".agents").mkdir()
    (tmp_path / ".claude").symlink_to(".agents")
    assert targets(["all"], tmp_path) == {tmp_path.resolve() / ".agents/skills" / SKILL_NAME: tuple(SKILLS_FOLDERS)}
    (tmp_path / ".agents/skills").symlink_to("/")
    with pytest.raises(UsageError, match="leads out of"):
        targets(["codex"], tmp_path)


def test_a_copy_holds_the_files_and_a_record_of_their_hashes_and_is_not_written_twice(root, files):
    assert texts(root) == FILES
    modes = {path.name: path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")]}
    assert (modes["doctor.py"], modes["faq.md"], modes[root.name]) == (0o755, 0o644, 0o755)
    before, copy = root.stat().st_ino, install(root, files)
    assert (copy.action, copy.state, root.stat().st_ino) == ("unchanged", "current", before)
    assert read_record(root) == Record(copy.version, copy.dsl_version, {n: digest(path) for n, path in files.items()})


def test_an_upgrade_keeps_what_the_user_changed_and_added_and_drops_old_files(root, newer):
    write(root, {FAQ: "mine\n", "notes.md": "notes\n", "scripts/doctor.py": "mine\n", "SKILL.md": "new\n"})
    assert examine(root, newer).state == "stale"
    copy = install(root, newer)
    kept = {"notes.md": "notes\n", f"{FAQ}.yours": "mine\n", "scripts/doctor.py.yours": "mine\n"}
    assert (copy.action, copy.state, copy.kept) == ("upgraded", "current", tuple(kept))
    assert texts(root) == {"SKILL.md": "new\n", FAQ: "newer\n", **kept}
    write(root, {FAQ: "again\n"})
    assert install(root, newer).kept[-1] == f"{FAQ}.yours-2"
    assert texts(root) == {"SKILL.md": "new\n", FAQ: "newer\n", **kept, f"{FAQ}.yours-2": "again\n"}


def change_record(root: Path, **fields: object) -> None:
    write(root, {RECORD: json.dumps(json.loads((root / RECORD).read_text()) | fields)})


OLD = (f"of cutesmith 0; this package is {__version__}", f"installed for DSL 4; the installed DSL is {dsl_version()}")
OUTSIDE = ("../../../../precious", "/etc/passwd", "a//b", "c:x", "..\\x")


@pytest.mark.parametrize(
    ("damage", "state", "field", "names"),
    [
        (lambda root: (root / FAQ).unlink(), "broken", "missing", (FAQ,)),
        (lambda root: write(root, {"SKILL.md": "x"}), "changed", "changed", ("SKILL.md",)),
        (lambda root: write(root, {"own.md": "x"}), "current", "added", ("own.md",)),
        (lambda root: write(root, {RECORD: "{"}), "foreign", "missing", ()),
        *((partial(change_record, files={name: "0"}), "foreign", "missing", ()) for name in OUTSIDE),
        (partial(change_record, version="0", dsl_version="4"), "stale", "reasons", OLD),
    ],
)
def test_what_became_of_a_copy_is_told(root, files, damage, state, field, names):
    damage(root)
    copy, itself = examine(root, files), {name: root / name for name in FILES}
    assert (copy.state, getattr(copy, field)) == (state, names)
    assert examine(root, itself).state == ("current" if state == "stale" else state)
    assert install(root, files, force=state == "foreign").state == "current"


def test_a_folder_of_another_is_refused_and_all_of_it_survives_force(tmp_path, files):
    root = tmp_path / "cute-dsl-kernels"
    write(root, {"SKILL.md": "theirs\n"})
    for refused in (install, lambda path, _: uninstall(path, force=True)):
        with pytest.raises(UsageError, match="was not installed by cutesmith"):
            refused(root, files)
    assert install(root, files, force=True).kept == ("SKILL.md.yours",)
    assert texts(root) == {**FILES, "SKILL.md.yours": "theirs\n"}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("put", [lambda path: path.symlink_to(path.parent), lambda path: path.touch()])
def test_a_link_or_a_file_in_the_place_of_the_folder_is_refused(tmp_path, files, put, force):
    put(tmp_path / "copy")
    with pytest.raises(UsageError, match="is a link or a file"):
        install(tmp_path / "copy", files, force=force)


def test_links_inside_a_copy_are_never_followed(root, newer, tmp_path):
    (root / "references").rename(tmp_path / "outside")
    (root / "references").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="references is a link"):
        install(root, newer)
    assert uninstall(root).kept == ("references",)
    assert os.listdir(tmp_path / "outside") == ["faq.md"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("changes", [{}, {FAQ: "mine\n"}])
@pytest.mark.parametrize("others", [[], ["another"]])
def test_uninstalling_leaves_what_the_user_changed_unless_forced_and_other_skills(root, force, changes, others):
    write(root.parent, {f"{name}/SKILL.md": "other" for name in others})
    write(root, {"scripts/__pycache__/doctor.pyc": "x", **changes})
    copy, kept = uninstall(root, force=force), () if force else tuple(changes)
    assert (copy.action, copy.state, copy.kept) == ("uninstalled", "foreign" if kept else "absent", kept)
    left = {*others, *([root.name] if kept else [])}
    assert {path.name for path in root.parent.glob("*")} == left
    assert root.parents[1].exists() == bool(left)
    assert texts(root) == (changes if kept else {}) and not (root / "scripts").exists()
    assert kept or uninstall(root).action == "nothing to do"


INSTALL = """
import itertools, sys
from pathlib import Path
from cutesmith.skill.installation import install
root, *sources = map(Path, sys.argv[1:])
trees = [{p.relative_to(s).as_posix(): p for p in sorted(s.rglob("*")) if not p.is_dir()} for s in sources]
print("ready", flush=True)
for tree in itertools.cycle(trees):
    install(root, tree)
"""


@pytest.mark.slow
@pytest.mark.parametrize("writers", [1, 2])
def test_a_kill_at_any_moment_leaves_one_of_the_two_versions(root, files, newer, writers):
    command = [sys.executable, "-c", INSTALL, root, files["SKILL.md"].parent, newer["SKILL.md"].parent]
    for number in range(4):
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(writers)]
        assert [process.stdout.readline() for process in started] == ["ready\n"] * writers
        time.sleep(0.1 + 0.013 * number)
        assert [process.poll() for process in started] == [None] * writers
        for process in started:
            process.kill()
            process.communicate()
        found = root if root.exists() else root.with_name(f".{root.name}.old")
        assert "current" in [examine(found, version).state for version in (files, newer)]
    assert install(root, files).state == "current"
    assert os.listdir(root.parent) == [root.name]


def test_what_a_failure_or_a_kill_between_the_renames_leaves_is_the_old_copy(root, newer):
    write(root, {FAQ: "mine\n"})
    with pytest.raises(OSError, match="x"):
        install(root, newer | {"references/" + "x" * 300: Path(__file__)})  # longer than any file system takes
    assert (texts(root), os.listdir(root.parent)) == ({**FILES, FAQ: "mine\n"}, [root.name])
    root.rename(root.with_name(f".{root.name}.old"))
    assert install(root, newer).kept == (f"{FAQ}.yours",)
    assert os.listdir(root.parent) == [root.name]
