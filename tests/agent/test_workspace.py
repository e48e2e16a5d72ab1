"""The work folder holds: nothing outside it is read or written, whatever it holds and whatever changes it."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cutesmith.agent.outcome import KeepVersion, WriteFile
from cutesmith.agent.tools.confined_folder import MAX_BYTES, MAX_FILES, ConfinedFolder, PathError
from cutesmith.agent.tools.workspace import Workspace, store_of
from cutesmith.checkpoints import CheckpointError, CheckpointStore


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "secret.py"
    path.parent.mkdir()
    path.write_text("secret = 1\n")
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def files(work: Path) -> ConfinedFolder:
    return ConfinedFolder(work)


@pytest.fixture
def workspace(work: Path, tmp_path: Path) -> Workspace:
    return Workspace(work, CheckpointStore(work / "kernel.py", folder=tmp_path / "checkpoints"))


OUTSIDE = [
    "../outside/secret.py",
    "a/../../outside/secret.py",
    "/etc/passwd",
    "~/.bashrc",
    "/proc/self/environ",
    ".hidden",
    "a/.git/config",
    "",
    ".",
    "/",
    "a//b",
    "a\nb.py",
    "a\x1b[31m.py",
    "a\\b.py",
    "\ud800.py",
    "x" * 200,
    "/".join(["a"] * 20),
    "..",
    "kernel.py/",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_is_none_of_the_folders_is_refused(files, secret, path):
    for action in (files.read, lambda p: files.write(p, "x"), lambda p: files.require_writable(p, "x")):
        with pytest.raises(PathError):
            action(path)
    assert list(files.root.iterdir()) == [] and secret.read_text() == "secret = 1\n"


def test_a_link_is_never_followed(files, work, secret):
    (work / "link.py").symlink_to(secret)
    (work / "inside.py").write_text("x")
    (work / "loop.py").symlink_to("loop.py")
    (work / "near.py").symlink_to("inside.py")  # also where it leads nowhere bad
    for name in ("link.py", "loop.py", "near.py"):
        with pytest.raises(PathError, match="link"):
            files.read(name)
        with pytest.raises(PathError, match="link"):
            files.require_writable(name, "x")
    assert [entry.name for entry in files.entries()] == ["inside.py"]


def test_a_link_in_the_middle_is_never_followed(files, work, secret):
    (work / "a").mkdir()
    (work / "a" / "out").symlink_to(secret.parent, target_is_directory=True)
    for action in (files.read, files.entries, lambda p: files.write(p, "x"), lambda p: files.require_writable(p, "x")):
        with pytest.raises(PathError, match="link"):
            action("a/out/secret.py")
    assert not files.is_folder("a/out") and secret.read_text() == "secret = 1\n"


def test_a_write_replaces_a_link_and_leaves_its_target(files, work, secret):
    (work / "kernel.py").symlink_to(secret)
    files.write("kernel.py", "mine")
    assert secret.read_text() == "secret = 1\n"
    assert (work / "kernel.py").read_text() == "mine" and not (work / "kernel.py").is_symlink()


def test_a_hard_link_is_refused_and_a_write_does_not_go_through_it(files, work, secret):
    os.link(secret, work / "hard.py")
    with pytest.raises(PathError, match="hard link"):
        files.read("hard.py")
    files.write("hard.py", "mine")
    assert secret.read_text() == "secret = 1\n" and files.read("hard.py") == "mine"


def test_what_is_no_regular_file_is_refused_at_once(files, work):
    os.mkfifo(work / "fifo")
    (work / "folder").mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(work / "socket"))
    begin = time.monotonic()
    for name, reason in (("fifo", "regular"), ("socket", "regular"), ("folder", "is a folder")):
        with pytest.raises(PathError, match=reason):
            files.read(name)
    assert time.monotonic() - begin < 20  # a busy machine: it would wait for ever
    server.close()
    assert files.entries() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_a_device_is_refused(files, work):
    try:
        os.mknod(work / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this system does not let us make device files")
    with pytest.raises(PathError, match="regular|cannot be read"):
        files.read("zero")


def test_a_missing_file_says_so(files, work):
    (work / "kernel.py").write_text("x")
    assert files.read("kernel.py") == "x"
    with pytest.raises(PathError, match=r"does not exist"):
        files.read("missing.py")
    with pytest.raises(PathError, match=r"does not exist"):
        files.read("no/such/folder.py")


@pytest.mark.parametrize(
    ("data", "reason"), [(b"\xff\xfe", "UTF-8"), (b"ELF\0\0", "binary"), (b"x" * (MAX_BYTES + 1), str(MAX_BYTES))]
)
def test_what_is_no_small_text_is_refused(files, work, data, reason):
    (work / "file.py").write_bytes(data)
    with pytest.raises(PathError, match=reason):
        files.read("file.py")


def test_a_sparse_giant_is_refused_without_reading_it(files, work):
    with open(work / "giant.py", "wb") as file:
        file.truncate(1 << 40)
    begin = time.monotonic()
    with pytest.raises(PathError, match=str(MAX_BYTES)):
        files.read("giant.py")
    assert time.monotonic() - begin < 20  # a busy machine: to read it takes minutes


@pytest.mark.parametrize("text", ["x" * (MAX_BYTES + 1), "nul\0", "half \ud800"])
def test_a_text_that_could_not_be_read_back_is_not_written(files, text):
    with pytest.raises(PathError):
        files.require_writable("kernel.py", text)
    with pytest.raises(PathError):
        files.write("kernel.py", text)
    assert list(files.root.iterdir()) == []


def test_text_comes_back_to_the_letter(files):
    text = "αβ\r\nline\n\tlast without newline"
    files.write("a/b/c.py", text)
    assert files.read("./a/b/c.py") == text
    assert [(entry.name, entry.size) for entry in files.entries("a/")] == [("a/b/c.py", len(text.encode()))]


def test_ten_thousand_files_are_listed_in_part_and_take_no_more():
    memory = Path("/dev/shm")  # many files on a busy disk take seconds
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        files = ConfinedFolder(Path(folder))
        for number in range(10_000):
            os.close(os.open(f"{folder}/f{number}.py", os.O_CREAT | os.O_WRONLY))
        begin = time.process_time()
        assert len(files.entries()) == MAX_FILES
        with pytest.raises(PathError, match=f"holds {MAX_FILES} files"):
            files.require_writable("one_more.py", "x")
        files.require_writable("f1.py", "x")  # what is there may still be changed
        assert time.process_time() - begin < 5


def test_a_very_deep_tree_ends(files, work):
    deep = work
    for _ in range(200):
        deep = deep / "d"
        deep.mkdir()
    (deep / "x.py").write_text("x")
    assert files.entries() == []


def exchange(one: Path, other: Path) -> None:
    """Swap two names in one step (renameat2 with RENAME_EXCHANGE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2") or libc.renameat2(-100, bytes(one), -100, bytes(other), 2):
        pytest.skip("this file system cannot exchange names")


def test_a_folder_swapped_for_a_link_again_and_again_lets_nothing_out(files, work, secret):
    """A race that string checks lose: `sub` is a folder when it is looked at and a link when it is opened."""
    (work / "link").symlink_to(secret.parent, target_is_directory=True)
    (work / "sub").mkdir()
    (work / "sub" / "secret.py").write_text("inside")
    exchange(work / "link", work / "sub")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(work / "link", work / "sub")

    thread = threading.Thread(target=swap)
    thread.start()
    seen: Counter[str] = Counter()
    try:
        end = time.monotonic() + 20
        while min(seen["read"], seen["written"], seen["refused"]) < 5 and time.monotonic() < end:
            seen[attempt(lambda: files.read("sub/secret.py"))] += 1
            seen[attempt(lambda: files.write("sub/new.py", "x"))] += 1
    finally:
        stop.set()
        thread.join()
    assert secret.read_text() == "secret = 1\n" and [p.name for p in secret.parent.iterdir()] == ["secret.py"]
    assert min(seen["read"], seen["written"], seen["refused"]) >= 5, seen  # the race did happen


def attempt(action: Callable[[], str | None]) -> str:
    """What became of a read or a write: an OSError would be a bug, a secret read worse."""
    try:
        text = action()
    except PathError:
        return "refused"
    assert text in (None, "inside")
    return "written" if text is None else "read"


def test_a_write_applied_twice_is_one(workspace, work):
    effect = WriteFile("a/kernel.py", "text\n")
    workspace.apply(effect, 3)
    workspace.apply(effect, 3)
    assert (work / "a" / "kernel.py").read_text() == "text\n"
    assert [p.name for p in (work / "a").iterdir()] == ["kernel.py"]


def test_a_checkpoint_applied_twice_is_one(workspace):
    effect = KeepVersion("kernel.py", "v1\n", "first", {"status": "verified", "median_us": 2.5})
    workspace.apply(effect, 7)
    workspace.apply(effect, 7)
    workspace.apply(effect, 9)  # the same text kept again by another event is another entry
    kept = workspace.checkpoints.checkpoints()
    assert [(c.number, c.note, c.key) for c in kept] == [(1, "first", "event 7"), (2, "first", "event 9")]
    assert kept[0].verdict == {"status": "verified", "median_us": 2.5}


def test_a_checkpoint_lost_to_a_kill_is_made_by_the_second_time(workspace):
    """Killed between the transcript and the index: the line was cut off."""
    effect = KeepVersion("kernel.py", "v1\n", "first", {})
    workspace.apply(effect, 7)
    index = workspace.checkpoints.index
    index.write_bytes(index.read_bytes()[:-9])
    workspace.apply(effect, 7)
    (kept,) = workspace.checkpoints.checkpoints()
    assert workspace.checkpoints.read(kept) == b"v1\n"


APPLY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.agent.test_workspace import apply_all
print("ready", flush=True)
apply_all(Path(sys.argv[2]))
"""
EFFECTS = [
    (seq, effect)
    for seq in range(40)
    for effect in (WriteFile("kernel.py", f"v{seq}\n" * 500), KeepVersion("kernel.py", f"v{seq // 2}\n", f"n{seq}", {}))
]


def apply_all(folder: Path) -> Workspace:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    workspace = Workspace(work, CheckpointStore(work / "kernel.py", folder=folder / "checkpoints"))
    for seq, effect in EFFECTS:
        workspace.apply(effect, seq)
    return workspace


@pytest.mark.slow
def test_killed_anywhere_and_applied_again_is_as_if_never_killed(tmp_path):
    random.seed(5)
    killed = 0
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = [sys.executable, "-c", APPLY, str(Path(__file__).parents[2]), str(folder)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        time.sleep(random.uniform(0.002, 0.05))
        child.kill()
        killed += child.wait() == -9
        child.stdout.close()
        kept = apply_all(folder).checkpoints.checkpoints()
        assert [(c.key, c.note) for c in kept] == [(f"event {seq}", f"n{seq}") for seq in range(40)]
        assert (folder / "work" / "kernel.py").read_text() == "v39\n" * 500
    assert killed


def test_checkpoints_of_files_of_one_name_do_not_meet(workspace, tmp_path):
    workspace.apply(KeepVersion("a/kernel.py", "a", "", {}), 1)
    workspace.apply(KeepVersion("kernel.py", "b", "", {}), 2)
    assert [c.key for c in workspace.checkpoints.checkpoints()] == ["event 2"]
    assert (tmp_path / "checkpoints" / "a.below" / "kernel.py.jsonl").is_file()


@pytest.mark.parametrize("folder", ["kernel.py.lock", "kernel.py.jsonl", "objects", "kernel.py.lock.below"])
def test_no_folder_of_the_model_takes_the_place_of_the_stores_own_files(workspace, folder):
    for seq, path in enumerate((f"{folder}/x.py", f"{folder}.below/x.py", "kernel.py", f"{folder}/x.py")):
        workspace.apply(KeepVersion(path, "a", "", {}), seq)
    assert [c.key for c in workspace.checkpoints.checkpoints()] == ["event 2"]
    assert len(store_of(f"{folder}/x.py", workspace.folder, workspace.checkpoints).checkpoints()) == 2


def test_effects_reach_nothing_outside(workspace, secret):
    for effect in (WriteFile("../outside/secret.py", "x"), KeepVersion("../outside/x.py", "x", "", {})):
        with pytest.raises(PathError):
            workspace.apply(effect, 1)
    assert [p.name for p in secret.parent.iterdir()] == ["secret.py"]


def test_a_store_that_cannot_be_written_is_our_error(work, tmp_path):
    (tmp_path / "file").write_text("")
    blocked = Workspace(work, CheckpointStore(work / "kernel.py", folder=tmp_path / "file" / "below"))
    with pytest.raises(CheckpointError):
        blocked.apply(KeepVersion("kernel.py", "x", "", {}), 1)
