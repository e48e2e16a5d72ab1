"""Folders of a judging: gone whatever is in them, and after a judge that was killed; nothing else is touched."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith.errors import UnavailableError
from cutesmith.sandbox.scratch import Scratch, content_of, remove_abandoned, remove_folder, scratch_folder

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def nest(folder, depth):
    """A chain of folders whose path is longer than the system takes at once."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("nested", dir_fd=here)
        below = os.open("nested", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.mark.slow
def test_whatever_is_in_a_folder_it_can_be_removed(folder, tmp_path):
    nest(folder, 3000)
    (folder / "closed").mkdir()
    (folder / "closed" / "file").write_text("x")
    (folder / "closed").chmod(0)
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"\xff\xfe")).write_text("x")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    (folder / "link").symlink_to(tmp_path / "kept")
    folder.chmod(0)
    remove_folder(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").read_text() == "kept"


def test_a_link_in_a_folders_place_goes_and_what_it_leads_to_stays(folder, tmp_path):
    (folder / "file").write_text("kept")
    folder.chmod(0o755)
    (tmp_path / "link").symlink_to(folder)
    remove_folder(tmp_path / "link")
    remove_folder(tmp_path / "missing")
    assert not (tmp_path / "link").is_symlink() and (folder / "file").read_text() == "kept"
    assert folder.stat().st_mode & 0o777 == 0o755


def test_content_is_counted_once_and_as_far_as_it_can_be_seen(folder):
    (folder / "below").mkdir()
    (folder / "below" / "file").write_bytes(bytes(MIB))
    os.link(folder / "below" / "file", folder / "again")
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)
    (folder / "link").symlink_to("/usr")
    found = content_of(folder)
    assert MIB <= found.bytes < 2 * MIB and (found.entries, found.hidden) == (5, False)
    assert content_of(folder / "missing") == content_of(folder / "again") == type(found)(0, 0, False)
    nest(folder, 2000)
    assert content_of(folder).hidden
    assert content_of(folder, most_entries=100).entries == 101
    assert content_of(folder, most_entries=2).entries == 3
    remove_folder(folder)


def test_a_folder_lasts_as_long_as_its_block(tmp_path):
    with scratch_folder(where=tmp_path) as folder:
        (folder / "file").write_text("x")
        assert folder.is_dir() and folder.is_relative_to(tmp_path)
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        remove_abandoned(tmp_path)
        assert (folder / "file").exists(), "it is still held"
    assert not list(tmp_path.iterdir())


def test_what_a_killed_judge_leaves_is_removed_by_the_next_one(tmp_path):
    text = """
import os, signal, sys
from pathlib import Path
from cutesmith.sandbox.scratch import Scratch
folder = Scratch(where=Path(sys.argv[1])).path
(folder / "tensor").write_bytes(bytes(100))
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", text, str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert (left / "files" / "tensor").exists()
    (tmp_path / "kernel-of-others").mkdir()  # not ours: nothing in it says so
    (tmp_path / "kernel-link").symlink_to(tmp_path / "kernel-of-others")
    (tmp_path / "kernel.py").write_text("x")
    scratch = Scratch(where=tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"kernel-of-others", "kernel-link", "kernel.py", scratch.path.parent.name}
    scratch.close()
    scratch.close()
    assert {path.name for path in tmp_path.iterdir()} == names - {scratch.path.parent.name}


def test_where_no_folder_can_be_made_the_error_says_where_and_why(tmp_path):
    with pytest.raises(UnavailableError, match=rf"no folder .* in {tmp_path}/missing: No such file") as caught:
        Scratch(where=tmp_path / "missing")
    assert "TMPDIR" in caught.value.hint
