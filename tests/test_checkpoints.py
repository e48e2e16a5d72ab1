"""Checkpoints survive: kills at any moment, full disks, torn index lines, several writers at once."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cutesmith.checkpoints import CheckpointError, CheckpointStore
from cutesmith.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text("one\n")
    return path


@pytest.fixture
def store(kernel: Path) -> CheckpointStore:
    return CheckpointStore(kernel)


def start(code: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-S", "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def assert_whole(store: CheckpointStore) -> None:
    """Every listed checkpoint can be read, and its bytes are those that its hash names."""
    for checkpoint in store.checkpoints():
        assert hashlib.sha256(store.read(checkpoint)).hexdigest() == checkpoint.hash


def test_backup_and_revert_give_the_bytes_back(kernel, store):
    first = store.backup(note="first")
    kernel.write_bytes(b"two \xff\r\n")
    store.backup()
    store.revert("1")
    assert kernel.read_bytes() == b"one\n"
    store.revert("2")
    assert kernel.read_bytes() == b"two \xff\r\n"
    assert (first.number, first.note) == (1, "first")
    assert first.hash == hashlib.sha256(b"one\n").hexdigest()


def test_the_verdict_that_held_is_kept(store):
    verdict = {"stage": "benchmark", "status": "passed", "exit_code": 0, "summary": "fast", "median_us": 3.5, "x": [1]}
    store.backup(verdict=verdict)
    (kept,) = store.checkpoints()
    assert kept.verdict == {key: verdict[key] for key in ("stage", "status", "exit_code", "summary", "median_us")}


def test_bytes_are_kept_whatever_the_file_holds(kernel, store):
    kept = store.keep(b"elsewhere\n", note="by hand")
    assert (store.read(kept), kept.note, kept.key) == (b"elsewhere\n", "by hand", "")
    assert kernel.read_bytes() == b"one\n"


def test_the_same_bytes_are_kept_once_for_a_key(kernel, store):
    first = store.keep(b"a", key="event 7", note="first")
    again = CheckpointStore(kernel).keep(b"a", key="event 7", note="after the kill")
    assert (again.number, again.note) == (first.number, "first")
    assert [store.keep(b"b", key="event 7").number, store.keep(b"a", key="event 8").number] == [2, 3]
    assert [store.keep(b"a").number, store.keep(b"a").number] == [4, 5]
    assert [c.key for c in store.checkpoints()] == ["event 7", "event 7", "event 8", "", ""]


def test_a_store_may_lie_in_another_folder(kernel, tmp_path):
    store = CheckpointStore(kernel, folder=tmp_path / "elsewhere" / "1")
    store.backup()
    kernel.write_text("two\n")
    store.revert("1")
    assert kernel.read_bytes() == b"one\n"
    assert sorted(path.name for path in kernel.parent.iterdir()) == ["elsewhere", "kernel.py"]
    assert len(store.checkpoints()) == 2 and CheckpointStore(kernel).checkpoints() == []
    assert_whole(store)


def test_a_revert_keeps_what_the_file_held(kernel, store):
    store.backup()
    kernel.write_text("not kept by anyone\n")
    store.revert("1")
    kept = store.checkpoints()[-1]
    assert store.read(kept) == b"not kept by anyone\n"
    assert kept.note == "before the return to 1"


def test_a_revert_to_what_the_file_is_adds_nothing(store):
    store.backup()
    store.revert("1")
    assert len(store.checkpoints()) == 1


def test_a_revert_without_a_name_takes_the_newest_that_differs(kernel, store):
    for text in ("one\n", "two\n", "three\n"):
        kernel.write_text(text)
        store.backup()
    assert store.revert().number == 2
    assert kernel.read_text() == "two\n"


def test_a_deleted_file_comes_back(kernel, store):
    store.backup()
    kernel.unlink()
    store.revert("1")
    assert kernel.read_text() == "one\n"


def test_the_mode_of_the_file_stays(kernel, store):
    kernel.chmod(0o750)
    store.backup()
    kernel.write_text("two\n")
    store.revert("1")
    assert kernel.stat().st_mode & 0o777 == 0o750


def test_a_link_stays_a_link(kernel, tmp_path):
    link = tmp_path / "link.py"
    link.symlink_to(kernel)
    store = CheckpointStore(link)
    store.backup()
    kernel.write_text("two\n")
    store.revert("1")
    assert link.is_symlink()
    assert kernel.read_text() == "one\n"


def test_files_of_one_folder_have_their_own_checkpoints(kernel, store, tmp_path):
    other = tmp_path / "other.py"
    other.write_text("other\n")
    store.backup()
    CheckpointStore(other).backup()
    assert len(store.checkpoints()) == 1
    assert len(CheckpointStore(other).checkpoints()) == 1


def test_a_checkpoint_is_found_by_number_or_by_the_start_of_its_hash(kernel, store):
    first = store.backup()
    kernel.write_text("two\n")
    store.backup()
    assert store.find("1") == first
    assert store.find(first.hash[:6]) == first
    for name in ("0", "3", first.hash[:3], "zzzz"):
        with pytest.raises(UsageError, match="has no checkpoint"):
            store.find(name)


def test_the_diff_names_both_sides(kernel, store):
    store.backup()
    kernel.write_text("two\n")
    assert store.diff() == "--- kernel.py @ 1\n+++ kernel.py\n@@ -1 +1 @@\n-one\n+two\n"
    store.backup()
    kernel.write_text("three\n")
    assert "-one\n+two\n" in store.diff("1", "2")
    assert "-two\n+three\n" in store.diff("2")


def test_without_a_file_or_checkpoint_it_says_so(store, tmp_path):
    with pytest.raises(UsageError, match="no checkpoint that differs"):
        store.revert()
    with pytest.raises(UsageError, match="cannot be read"):
        CheckpointStore(tmp_path / "none.py").backup()
    assert CheckpointStore(tmp_path / "none.py").checkpoints() == []


def test_bytes_that_were_changed_on_disk_are_not_given_back(kernel, store):
    kept = store.backup()
    (store.objects / kept.hash).write_text("tampered\n")
    kernel.write_text("two\n")
    with pytest.raises(CheckpointError, match="was changed on disk"):
        store.revert("1")
    assert kernel.read_text() == "two\n"
    kernel.write_text("one\n")
    store.backup()  # heals the object: the right bytes are at hand again
    assert_whole(store)


@pytest.mark.parametrize("torn", [b'{"time": "2026', b"\xff\xfe", b'{"hash": 3}\n', b"[]\n"])
def test_a_torn_or_foreign_index_line_is_passed_over(kernel, store, torn):
    store.backup()
    with open(store.index, "ab") as index:
        index.write(torn)
    assert len(store.checkpoints()) == 1
    kernel.write_text("two\n")
    assert store.backup().number == 2
    assert [store.read(c) for c in store.checkpoints()] == [b"one\n", b"two\n"]


def test_writers_at_once_lose_nothing(kernel):
    code = """
        import sys
        from cutesmith.checkpoints import CheckpointStore
        for number in range(15):
            CheckpointStore(sys.argv[1]).backup(note=f"{sys.argv[2]}.{number}")
    """
    writers = [start(code, kernel, name) for name in range(4)]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    notes = [checkpoint.note for checkpoint in CheckpointStore(kernel).checkpoints()]
    assert sorted(notes) == sorted(f"{name}.{number}" for name in range(4) for number in range(15))


VERSIONS = 5
FORK_WORKERS = """
    import itertools, os, sys
    from cutesmith.checkpoints import CheckpointStore
    def work(turn):
        store = CheckpointStore(sys.argv[1])
        print(os.getpid(), flush=True)
        for turn in itertools.count(turn):
            store.revert(str(turn % 5 + 1))
            number = store.backup(note=f"turn {turn}").number
            os.write(1, f"{number}\\n".encode())  # one write, that a kill does not divide
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            work(int(line))
        print(f"ended {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}", flush=True)
"""


def test_a_kill_at_any_moment_loses_neither_the_file_nor_a_checkpoint(kernel, store):
    """64 processes that revert and back up without pause are killed after a random time, one after the other."""
    contents = [f"version {version}\n".encode() * 5000 for version in range(VERSIONS)]
    for content in contents:
        kernel.write_bytes(content)
        store.backup()
    promised = VERSIONS
    delays = random.Random(7)
    with start(FORK_WORKERS, kernel, stdin=subprocess.PIPE) as forks:
        for turn in range(64):
            promised = max(promised, kill_after(delays.uniform(0, 0.03), forks, turn))
            assert kernel.read_bytes() in contents, f"kill {turn} tore the file"
            assert len(store.checkpoints()) >= promised, f"kill {turn} lost a checkpoint that had been reported"
        assert forks.communicate(timeout=30)[1] == ""
    assert promised > VERSIONS, "no process lived long enough to back anything up"
    assert_whole(store)
    kernel.write_bytes(b"last\n")
    store.backup()
    assert store.read(store.checkpoints()[-1]) == b"last\n"
    assert not list(store.folder.glob(".*.tmp")), "a later writer removes what killed ones left"


def kill_after(seconds: float, forks: subprocess.Popen[str], turn: int) -> int:
    """Kill a working process that long after it is ready; the number of the last checkpoint it reported."""
    assert forks.stdin is not None and forks.stdout is not None
    forks.stdin.write(f"{turn}\n")
    forks.stdin.flush()
    pid = int(forks.stdout.readline())
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    reported = []
    while not (line := forks.stdout.readline()).startswith("ended"):
        reported.append(int(line))
    assert line == f"ended {-signal.SIGKILL}\n"
    return max(reported, default=0)


@pytest.mark.parametrize("size", [0, 10, 100, 4000])
def test_a_full_disk_is_told_and_loses_nothing(kernel, store, size):
    """The kernel's own limit on file size refuses the write in the middle, as a full disk does."""
    store.backup()
    before = store.index.read_bytes()
    kernel.write_bytes(b"x" * 5000)
    code = """
        import resource, signal, sys
        from cutesmith.checkpoints import CheckpointStore
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
        try:
            CheckpointStore(sys.argv[1]).backup()
        except Exception as error:
            print(type(error).__name__, error)
    """
    output, errors = start(code, kernel, size).communicate(timeout=60)
    assert output.startswith("CheckpointError the checkpoint of kernel.py could not be written: File too large"), errors
    assert store.index.read_bytes() == before
    assert kernel.read_bytes() == b"x" * 5000
    assert not list(store.folder.glob(".*.tmp"))
    assert_whole(store)


def test_an_index_line_that_does_not_fit_leaves_no_half_line(kernel, store):
    store.backup(note="n" * 3000)
    before = store.index.read_bytes()
    code = """
        import resource, signal, sys
        from cutesmith.checkpoints import CheckpointStore
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
        try:
            CheckpointStore(sys.argv[1]).backup(note="second")
        except Exception as error:
            print(type(error).__name__)
    """
    output, errors = start(code, kernel, len(before) + 20).communicate(timeout=60)
    assert output == "CheckpointError\n", errors
    assert store.index.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_told(kernel, store):
    kernel.parent.chmod(0o500)
    try:
        with pytest.raises(CheckpointError, match="Permission denied"):
            store.backup()
    finally:
        kernel.parent.chmod(0o700)
