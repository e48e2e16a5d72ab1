"""A kill at any moment leaves the old copy or the new one: real processes, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cutesmith.skill import swap
from cutesmith.skill.installation import examine, install

INSTALL = """
import sys
from pathlib import Path
from cutesmith.skill.installation import install
root = Path(sys.argv[1])
sources = [Path(source) for source in sys.argv[2:]]
trees = [{p.relative_to(s).as_posix(): p for p in sorted(s.rglob("*")) if not p.is_dir()} for s in sources]
print("ready", flush=True)
while True:
    for tree in trees:
        install(root, tree)
"""


@pytest.fixture
def installer(root):
    """A function that starts a process which installs one source after the other at `root`, for ever."""
    started = []

    def start(*sources: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", INSTALL, str(root), *map(str, sources)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "ready\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def folder_of(files: dict[str, Path]) -> Path:
    return files["SKILL.md"].parent


def version_of(root: Path, *versions: dict[str, Path]) -> int:
    """Which of the versions is at `root`, whole: 0, 1, …"""
    return [examine(root, files).state for files in versions].index("current")


def test_a_kill_in_the_middle_of_copying_leaves_the_old_copy(make_files, root, installer):
    old, new = make_files(), make_files(**{"SKILL.md": "new\n"})
    install(root, old)
    pipe = folder_of(new) / "references/zebra.md"
    os.mkfifo(pipe)  # whoever reads it waits until somebody writes
    process = installer(folder_of(new))
    pipe.write_text("x")  # read once, when the copy is compared with the files
    until(lambda: list(root.parent.glob(".*.new-*/references/faq.md")))  # …and now the copying waits
    kill(process)
    assert version_of(root, old) == 0
    assert [path.name for path in root.parent.glob(".*/SKILL.md")] == []  # no client takes the half for a skill
    pipe.unlink()
    assert install(root, new).action == "upgraded"
    assert os.listdir(root.parent) == [root.name]


def test_a_kill_at_any_moment_leaves_one_of_the_two(make_files, root, installer):
    many = {f"references/page{number}.md": "x\n" * number for number in range(60)}
    versions = [make_files({"SKILL.md": f"{name}\n", **many}) for name in ("one", "two")]
    install(root, versions[0])
    for number in range(6):
        process = installer(*map(folder_of, versions))
        time.sleep(0.02 + 0.013 * number)
        kill(process)
        assert version_of(root, *versions) in (0, 1)
    install(root, versions[1])
    assert version_of(root, *versions) == 1
    assert os.listdir(root.parent) == [root.name]


def test_two_writers_at_once_leave_one_of_the_two(make_files, root, installer):
    versions = [make_files(**{"SKILL.md": f"{name}\n"}) for name in ("one", "two")]
    writers = [installer(folder_of(files), folder_of(files)) for files in versions]
    time.sleep(0.2)
    assert [writer.poll() for writer in writers] == [None, None]
    for writer in writers:
        kill(writer)
    assert version_of(root, *versions) in (0, 1)


@pytest.fixture
def two_folders(tmp_path):
    for name in ("target", ".target.new-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(name)
    return tmp_path / ".target.new-1", tmp_path / "target"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges folders in one step")
def test_two_folders_are_exchanged_in_one_step(two_folders):
    staged, target = two_folders
    assert swap.exchange(staged, target)
    assert ((target / "SKILL.md").read_text(), (staged / "SKILL.md").read_text()) == (".target.new-1", "target")


def test_an_exchange_with_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        swap.exchange(tmp_path / "none", tmp_path / "neither")


def test_where_there_is_no_exchange_the_old_folder_is_renamed_away(two_folders):
    staged, target = two_folders
    old = swap.exchange_in_two_steps(staged, target)
    assert ((target / "SKILL.md").read_text(), (old / "SKILL.md").read_text()) == (".target.new-1", "target")
    swap.recover(target)
    assert os.listdir(target.parent) == ["target"]


def test_a_kill_between_the_two_steps_is_mended(two_folders):
    staged, target = two_folders
    os.rename(target, target.parent / ".target.old-1")
    with swap.writing(target):
        assert (target / "SKILL.md").read_text() == "target"
        assert os.listdir(target.parent) == ["target"]


def test_when_the_second_step_fails_the_first_is_undone(two_folders):
    staged, target = two_folders
    with pytest.raises(FileNotFoundError):
        swap.exchange_in_two_steps(staged.with_name(".target.new-2"), target)
    assert (target / "SKILL.md").read_text() == "target"
