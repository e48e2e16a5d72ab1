"""Copies in clients' folders: whole or not at all, nobody's work lost, nothing followed out of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cutesmith.errors import UnavailableError, UsageError
from cutesmith.skill.content import RECORD, digest, read_record
from cutesmith.skill.installation import examine, install, uninstall


def texts(root: Path) -> dict[str, str]:
    """Path → text of every file of a copy but its record."""
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_text() for name, path in found.items() if name != RECORD}


def test_a_copy_holds_the_files_and_a_record_of_their_hashes(make_files, root):
    files = make_files()
    copy = install(root, files, clients=("codex",))
    assert (copy.action, copy.state, copy.clients) == ("installed", "current", ("codex",))
    assert texts(root) == {name: path.read_text() for name, path in files.items()}
    fields = json.loads((root / RECORD).read_text())
    assert fields["files"] == {name: digest(path) for name, path in files.items()}
    assert fields["version"] == copy.version != ""
    assert fields["dsl_version"] == copy.dsl_version != ""


def test_scripts_can_be_run_and_all_can_be_read(make_files, root):
    install(root, make_files())
    modes = {path.name: path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")]}
    assert modes["doctor.py"] == 0o755
    assert modes["faq.md"] == 0o644
    assert modes[root.name] == 0o755


def test_installing_again_touches_nothing(make_files, root):
    files = make_files()
    install(root, files)
    before = root.stat().st_ino, (root / RECORD).stat().st_mtime_ns
    assert install(root, files).action == "unchanged"
    assert (root.stat().st_ino, (root / RECORD).stat().st_mtime_ns) == before
    assert [path.name for path in root.parent.iterdir()] == [root.name]


def test_an_upgrade_brings_new_files_and_drops_old_ones(make_files, root):
    install(root, make_files())
    newer = make_files({"SKILL.md": "new\n", "references/faq.md": "# FAQ\n", "references/blackwell.md": "# TMEM\n"})
    assert examine(root, newer).state == "stale"
    copy = install(root, newer)
    assert (copy.action, copy.kept, copy.state) == ("upgraded", (), "current")
    assert texts(root) == {name: path.read_text() for name, path in newer.items()}
    assert not (root / "scripts").exists()


def test_an_upgrade_keeps_what_the_user_changed_and_added_and_says_so(make_files, root):
    install(root, make_files())
    (root / "references/faq.md").write_text("# mine\n")
    (root / "references/notes.md").write_text("# notes\n")
    (root / "scripts/doctor.py").write_text("print('mine')\n")
    copy = install(root, make_files({"SKILL.md": "new\n", "references/faq.md": "# newer\n"}))
    assert copy.kept == ("references/notes.md", "references/faq.md.yours", "scripts/doctor.py.yours")
    assert texts(root) == {
        "SKILL.md": "new\n",
        "references/faq.md": "# newer\n",
        "references/faq.md.yours": "# mine\n",
        "references/notes.md": "# notes\n",
        "scripts/doctor.py.yours": "print('mine')\n",
    }
    assert install(root, make_files({"SKILL.md": "newest\n"})).state == "current"
    assert (root / "references/faq.md.yours").read_text() == "# mine\n"


def test_a_second_change_does_not_overwrite_the_first_that_was_kept(make_files, root):
    files = make_files()
    for text in ("# one\n", "# two\n"):
        install(root, files)
        (root / "references/faq.md").write_text(text)
    assert install(root, files).kept == ("references/faq.md.yours", "references/faq.md.yours-2")
    kept = texts(root)
    assert (kept["references/faq.md.yours"], kept["references/faq.md.yours-2"]) == ("# one\n", "# two\n")


def test_the_users_file_is_no_change_once_the_new_version_says_the_same(make_files, root):
    install(root, make_files())
    (root / "references/faq.md").write_text("# better\n")
    copy = install(root, make_files(**{"references/faq.md": "# better\n"}))
    assert (copy.state, copy.kept) == ("current", ())


@pytest.mark.parametrize(
    ("damage", "state", "field", "names"),
    [
        (lambda root: (root / "references/faq.md").unlink(), "broken", "missing", ("references/faq.md",)),
        (lambda root: (root / "SKILL.md").write_text("x"), "changed", "changed", ("SKILL.md",)),
        (lambda root: (root / "own.md").write_text("x"), "current", "added", ("own.md",)),
        (lambda root: (root / RECORD).unlink(), "foreign", "missing", ()),
        (lambda root: (root / RECORD).write_text("{"), "foreign", "missing", ()),
    ],
)
def test_what_became_of_a_copy_is_told(make_files, root, damage, state, field, names):
    files = make_files()
    install(root, files)
    damage(root)
    copy = examine(root, files)
    assert (copy.state, getattr(copy, field)) == (state, names)
    if state in ("broken", "changed"):
        assert install(root, files).state == "current"


def test_another_version_or_dsl_is_stale_and_says_why(make_files, root):
    files = make_files()
    install(root, files)
    fields = json.loads((root / RECORD).read_text()) | {"version": "0.0.1", "dsl_version": "4.0.0"}
    (root / RECORD).write_text(json.dumps(fields))
    copy = examine(root, files)
    assert copy.state == "stale"
    assert "of cutesmith 0.0.1" in copy.reasons[0]
    assert "installed for DSL 4.0.0; the installed DSL is " in copy.reasons[1]
    assert install(root, files).action == "upgraded"


def test_a_copy_is_never_stale_against_itself(make_files, root):
    install(root, make_files())
    own = {name: root / name for name in texts(root)}
    (root / "references/faq.md").write_text("# mine\n")
    copy = examine(root, own)
    assert (copy.state, copy.changed, copy.reasons) == ("changed", ("references/faq.md",), ())


def test_what_cannot_be_read_is_a_sentence(make_files, root):
    files = make_files()
    install(root, files)
    with pytest.raises(UnavailableError, match="gone.md could not be read: No such file"):
        examine(root, {**files, "references/gone.md": root.parent / "gone.md"})


def test_nothing_there_is_absent(root):
    assert examine(root).state == "absent"
    assert uninstall(root).action == "nothing to do"


def test_a_folder_of_somebody_else_is_refused_and_its_files_survive_force(make_files, root):
    root.mkdir(parents=True)
    (root / "SKILL.md").write_text("theirs\n")
    with pytest.raises(UsageError, match="was not installed by cutesmith"):
        install(root, make_files())
    with pytest.raises(UsageError, match="was not installed by cutesmith"):
        uninstall(root, force=True)
    assert texts(root) == {"SKILL.md": "theirs\n"}
    assert install(root, make_files(), force=True).kept == ("SKILL.md.yours",)
    assert (root / "SKILL.md.yours").read_text() == "theirs\n"


@pytest.mark.parametrize("force", [False, True])
def test_a_link_or_a_file_in_the_place_of_the_folder_is_refused(make_files, root, tmp_path, force):
    (tmp_path / "elsewhere").mkdir()
    root.parent.mkdir(parents=True)
    root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        install(root, make_files(), force=force)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    root.unlink()
    root.write_text("a file")
    with pytest.raises(UsageError):
        install(root, make_files(), force=force)
    assert root.read_text() == "a file"


def test_links_inside_a_copy_are_never_followed(make_files, root, tmp_path):
    install(root, make_files())
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("faq.md", "glossary.md"):
        (root / "references" / name).rename(outside / name)
    (root / "references").rmdir()
    (root / "references").symlink_to(outside)
    with pytest.raises(UsageError, match="references is a link"):
        install(root, make_files(SKILL="x"))
    assert uninstall(root).kept == ("references",)
    assert {path.name for path in outside.iterdir()} == {"faq.md", "glossary.md"}


def test_a_record_that_names_files_outside_is_not_believed(make_files, root, tmp_path):
    install(root, make_files())
    (tmp_path / "precious").write_text("x")
    for name in ("../../../../precious", "/etc/passwd", "a//b", "c:x", "..\\x"):
        (root / RECORD).write_text(json.dumps(json.loads((root / RECORD).read_text()) | {"files": {name: "0"}}))
        assert read_record(root) is None, name


def test_uninstalling_leaves_nothing_behind_that_it_made(make_files, root, tmp_path):
    install(root, make_files())
    (root / "scripts/__pycache__").mkdir()
    (root / "scripts/__pycache__/doctor.pyc").write_bytes(b"x")
    copy = uninstall(root)
    assert (copy.action, copy.state, copy.kept) == ("uninstalled", "absent", ())
    assert list((tmp_path / "project").iterdir()) == []


def test_uninstalling_leaves_other_skills(make_files, root):
    install(root, make_files())
    (root.parent / "another").mkdir()
    uninstall(root)
    assert [path.name for path in root.parent.iterdir()] == ["another"]


def test_uninstalling_leaves_what_the_user_changed_unless_forced(make_files, root):
    files = make_files()
    install(root, files)
    (root / "references/faq.md").write_text("# mine\n")
    assert uninstall(root).kept == ("references/faq.md",)
    assert texts(root) == {"references/faq.md": "# mine\n"}
    assert not (root / "scripts").exists()
    install(root, files, force=True)
    (root / "references/glossary.md").write_text("# mine\n")
    assert uninstall(root, force=True).kept == ()
    assert not root.exists()


def test_what_the_system_refuses_to_write_is_a_sentence_and_changes_nothing(make_files, root):
    files = make_files()
    install(root, files)
    before = texts(root)
    newer = make_files(**{"SKILL.md": "new\n"})
    newer["references/" + "x" * 300] = newer["SKILL.md"]  # longer than any file system takes
    with pytest.raises(UnavailableError, match="could not be written"):
        install(root, newer)
    assert texts(root) == before
    assert os.listdir(root.parent) == [root.name]
