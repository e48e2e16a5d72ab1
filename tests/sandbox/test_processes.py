"""The watchdog reads the state of a stranger's process once, and that of a pid again once it is another process."""

import os
import subprocess
import sys

import pytest

from cutesmith.sandbox import processes
from cutesmith.sandbox.processes import ProcessTree


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def test_strangers_are_read_once_and_members_each_time(child, monkeypatch):
    read, stat = [], processes._stat
    monkeypatch.setattr(processes, "_stat", lambda pid: read.append(pid) or stat(pid))
    tree = ProcessTree(os.getpid(), "token")
    assert child in tree.members() and os.getppid() in read
    read.clear()
    assert child in tree.members()
    assert child in read and os.getppid() not in read


def test_a_child_that_comes_later_is_found():
    tree = ProcessTree(os.getpid(), "token")
    before = tree.members()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert set(tree.members()) - set(before) == {process.pid}
    finally:
        process.communicate(b"\n")
    assert process.pid not in tree.members()


def test_a_pid_is_read_again_once_it_is_another_process(child):
    tree = ProcessTree(os.getpid(), "token")
    inode = os.stat(f"/proc/{child}").st_ino
    tree._strangers = {child: inode}  # of a stranger that is this process: it is not read
    assert child not in tree.members()
    tree._strangers = {child: inode + 1}  # of one that had the pid before
    assert child in tree.members()
