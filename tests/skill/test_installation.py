"""Copies in clients' folders: whole or not at all, no user's work lost, no link followed out of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutesmith.errors import UsageError
from cutesmith.skill.content import RECORD, digest, read_record
from cutesmith.skill.installation import examine, install, uninstall

FAQ = "references/faq.md"
FILES = {"SKILL.md": "skill\n", FAQ: "# FAQ\n", "scripts/doctor.py": "pass\n"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a copy goes; nothing is there yet."""
    return tmp_path / "project/.agents/skills/cute-dsl-kernels"


@pytest.fixture
def make(tmp_path: Path):
    """A function that writes `FILES` with changes, but for those without text, and gives path → file."""

    def make(**changes: str) -> dict[str, Path]:
        texts = {name: text for name, text in {**FILES, **changes}.items() if text}
        return write(tmp_path / f"source-{len(os.listdir(tmp_path))}", texts)

    return make


def write(folder: Path, texts: dict[str, str]) -> dict[str, Path]:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {name: folder / name for name in sorted(texts)}


def texts(root: Path) -> dict[str, str]:
    """Path → text of every file of a copy but its record."""
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_text() for name, path in found.items() if name != RECORD}


def test_a_copy_holds_the_files_and_a_record_of_their_hashes(make, root):
    files = make()
    copy = install(root, files, clients=("codex",))
    assert (copy.action, copy.state, copy.clients) == ("installed", "current", ("codex",))
    assert texts(root) == FILES
    fields = json.loads((root / RECORD).read_text())
    assert fields["files"] == {name: digest(path) for name, path in files.items()}
    assert (fields["version"], fields["dsl_version"]) == (copy.version, copy.dsl_version)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")]}
    assert (modes["doctor.py"], modes["faq.md"], modes[root.name]) == (0o755, 0o644, 0o755)


def test_installing_again_touches_nothing(make, root):
    install(root, make())
    before = root.stat().st_ino
    assert install(root, make()).action == "unchanged"
    assert (os.listdir(root.parent), root.stat().st_ino) == ([root.name], before)


def test_an_upgrade_keeps_what_the_user_changed_and_added_and_drops_old_files(make, root):
    install(root, make())
    write(root, {FAQ: "mine\n", "notes.md": "notes\n", "scripts/doctor.py": "mine\n", "SKILL.md": "new\n"})
    files = make(**{"SKILL.md": "new\n", FAQ: "newer\n", "scripts/doctor.py": ""})
    assert examine(root, files).state == "stale"
    copy = install(root, files)
    kept = {"notes.md": "notes\n", f"{FAQ}.yours": "mine\n", "scripts/doctor.py.yours": "mine\n"}
    assert (copy.action, copy.state, copy.kept) == ("upgraded", "current", tuple(kept))
    assert texts(root) == {"SKILL.md": "new\n", FAQ: "newer\n", **kept}
    write(root, {FAQ: "again\n"})
    assert install(root, files).kept[-1] == f"{FAQ}.yours-2"
    assert texts(root) == {"SKILL.md": "new\n", FAQ: "newer\n", **kept, f"{FAQ}.yours-2": "again\n"}


@pytest.mark.parametrize(
    ("damage", "state", "field", "names"),
    [
        (lambda root: (root / FAQ).unlink(), "broken", "missing", (FAQ,)),
        (lambda root: write(root, {"SKILL.md": "x"}), "changed", "changed", ("SKILL.md",)),
        (lambda root: write(root, {"own.md": "x"}), "current", "added", ("own.md",)),
        (lambda root: write(root, {RECORD: "{"}), "foreign", "missing", ()),
    ],
)
def test_what_became_of_a_copy_is_told(make, root, damage, state, field, names):
    files = make()
    install(root, files)
    damage(root)
    copy = examine(root, files)
    assert (copy.state, getattr(copy, field)) == (state, names)
    if state in ("broken", "changed"):
        assert install(root, files).state == "current"


def test_another_version_or_dsl_is_stale_and_says_why_but_not_against_itself(make, root):
    install(root, make())
    fields = json.loads((root / RECORD).read_text()) | {"version": "0.0.1", "dsl_version": "4.0.0"}
    write(root, {RECORD: json.dumps(fields)})
    copy = examine(root, make())
    assert (copy.state, copy.reasons[0].partition(";")[0]) == ("stale", "of cutesmith 0.0.1")
    assert copy.reasons[1].startswith("installed for DSL 4.0.0; the installed DSL is ")
    assert examine(root, {name: root / name for name in FILES}).state == "current"
    assert install(root, make()).action == "upgraded"


def test_a_folder_of_somebody_else_is_refused_and_its_files_survive_force(make, root):
    write(root, {"SKILL.md": "theirs\n"})
    for refused in (lambda: install(root, make()), lambda: uninstall(root, force=True)):
        with pytest.raises(UsageError, match="was not installed by cutesmith"):
            refused()
    assert texts(root) == {"SKILL.md": "theirs\n"}
    assert install(root, make(), force=True).kept == ("SKILL.md.yours",)
    assert (root / "SKILL.md.yours").read_text() == "theirs\n"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("put", [lambda path: path.symlink_to(path.parent), lambda path: path.write_text("a file")])
def test_a_link_or_a_file_in_the_place_of_the_folder_is_refused(make, root, put, force):
    root.parent.mkdir(parents=True)
    put(root)
    with pytest.raises(UsageError, match="is a link or a file"):
        install(root, make(), force=force)
    assert os.listdir(root.parent) == [root.name]


def test_links_inside_a_copy_are_never_followed(make, root, tmp_path):
    install(root, make())
    (root / "references").rename(tmp_path / "outside")
    (root / "references").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="references is a link"):
        install(root, make(**{"SKILL.md": "new\n"}))
    assert uninstall(root).kept == ("references",)
    assert os.listdir(tmp_path / "outside") == ["faq.md"]


def test_a_record_that_names_files_outside_is_not_believed(make, root):
    install(root, make())
    for name in ("../../../../precious", "/etc/passwd", "a//b", "c:x", "..\\x"):
        write(root, {RECORD: json.dumps(json.loads((root / RECORD).read_text()) | {"files": {name: "0"}})})
        assert read_record(root) is None, name


@pytest.mark.parametrize("others", [[], ["another"]])
def test_uninstalling_leaves_other_skills_and_no_folder_that_is_empty(make, root, others):
    assert uninstall(root).action == "nothing to do"
    write(root.parent, {f"{name}/SKILL.md": "other" for name in others})
    install(root, make())
    write(root, {"scripts/__pycache__/doctor.pyc": "x"})
    copy = uninstall(root)
    assert (copy.action, copy.state, copy.kept) == ("uninstalled", "absent", ())
    project = root.parents[2]
    assert [path.name for path in project.iterdir()] == [".agents"] * len(others)
    assert [path.name for path in root.parent.glob("*")] == others


def test_uninstalling_leaves_what_the_user_changed_unless_forced(make, root):
    install(root, make())
    write(root, {FAQ: "# mine\n"})
    assert uninstall(root).kept == (FAQ,)
    assert [path.name for path in root.rglob("*")] == ["references", "faq.md"]
    install(root, make(), force=True)
    write(root, {FAQ: "# mine\n"})
    assert uninstall(root, force=True).kept == ()
    assert not root.exists()


def test_what_the_system_refuses_to_write_changes_nothing(make, root):
    install(root, make())
    with pytest.raises(OSError, match="x"):
        install(root, make(**{"SKILL.md": "new\n"}) | {"references/" + "x" * 300: Path(__file__)})
    assert texts(root) == FILES
    assert os.listdir(root.parent) == [root.name]


INSTALL = """
import sys
from pathlib import Path
from cutesmith.skill.installation import install
root, *sources = map(Path, sys.argv[1:])
trees = [{p.relative_to(s).as_posix(): p for p in sorted(s.rglob("*")) if not p.is_dir()} for s in sources]
print("ready", flush=True)
while True:
    for tree in trees:
        install(root, tree)
"""


@pytest.mark.parametrize("writers", [1, 2])
def test_a_kill_at_any_moment_leaves_one_of_the_two_versions(make, root, writers):
    many = {f"references/page{number}.md": "x\n" * number for number in range(1, 60)}
    versions = [make(**{"SKILL.md": name, **many}) for name in ("one", "two")]
    command = [sys.executable, "-c", INSTALL, root, *(files["SKILL.md"].parent for files in versions)]
    install(root, versions[0])
    for number in range(4):
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(writers)]
        assert [process.stdout.readline() for process in started] == ["ready\n"] * writers
        time.sleep(0.1 + 0.013 * number)
        assert [process.poll() for process in started] == [None] * writers
        for process in started:
            process.kill()
            process.communicate()
        found = root if root.exists() else root.with_name(f".{root.name}.old")
        assert "current" in [examine(found, files).state for files in versions]
    assert install(root, versions[0]).state == "current"
    assert os.listdir(root.parent) == [root.name]


def test_a_copy_that_a_kill_between_the_two_renames_left_is_put_back(make, root):
    install(root, make())
    write(root, {FAQ: "# mine\n"})
    root.rename(root.with_name(f".{root.name}.old"))
    assert install(root, make(**{"SKILL.md": "new\n"})).kept == (f"{FAQ}.yours",)
    assert os.listdir(root.parent) == [root.name]
