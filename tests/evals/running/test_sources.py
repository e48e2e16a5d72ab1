"""Where kernels are looked for in somebody's folder, what cannot be one, and where a run keeps its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cutesmith.errors import UnavailableError, UsageError
from cutesmith.evals.engines.gpus import choose_gpus
from cutesmith.evals.running.folder import RunFolder
from cutesmith.evals.running.sources import NoKernelError, find_kernel, folder_name, parse_source
from cutesmith.problems.contract import MAX_BYTES

TASK = "level1/soft max"


@pytest.mark.parametrize(
    ("place", "sample"),
    [
        ("level1/soft max.py", 0),
        ("soft max.py", 0),
        ("soft max/kernel.py", 0),
        ("level1/soft max/0.py", 0),
        ("soft max/0/kernel.py", 0),
        ("level1/soft max/3.py", 3),
        ("soft max/3/kernel.py", 3),
        ("kernels/level1/soft max/3/kernel.py", 3),  # the folder of a run
    ],
)
def test_where_a_kernel_is_found(write_file, tmp_path, place, sample):
    write_file("the kernel", place)
    assert find_kernel(tmp_path, TASK, sample) == b"the kernel"


@pytest.mark.parametrize("place", ["soft max.py", "level1/soft max/kernel.py", "level2/soft max.py", "other.py"])
def test_another_sample_or_task_is_none(write_file, tmp_path, place):
    write_file("the kernel", place)
    with pytest.raises(NoKernelError) as refused:
        find_kernel(tmp_path, TASK, 1)
    assert refused.value.status == "missing"


def test_the_whole_id_comes_before_its_last_part(write_file, tmp_path):
    write_file("of level 2", "level2/soft max.py")
    write_file("of level 1", "level1/soft max.py")
    write_file("of any", "soft max.py")
    assert find_kernel(tmp_path, TASK, 0) == b"of level 1"


UNREADABLE = {
    "a link out": lambda path: path.symlink_to(path.parent.parent / "secret.py"),
    "a dangling link": lambda path: path.symlink_to("nowhere.py"),
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "huge": lambda path: path.write_bytes(b"#" * (MAX_BYTES + 1)),
}


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE)
def test_what_can_be_no_kernel_is_refused_without_reading_it(tmp_path, make):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "secret.py").write_text("not theirs")
    make(tmp_path / "theirs" / "soft max.py")
    with pytest.raises(NoKernelError) as refused:
        find_kernel(tmp_path / "theirs", TASK, 0)
    assert refused.value.status == "unreadable" and "not theirs" not in str(refused.value)


def test_a_link_within_the_folder_is_followed(write_file, tmp_path):
    write_file("the kernel", "all/best.py")
    (tmp_path / "soft max.py").symlink_to("all/best.py")
    assert find_kernel(tmp_path, TASK, 0) == b"the kernel"


@pytest.mark.parametrize("task", ["../secret", "/etc/passwd", "a/../../secret"])
def test_a_task_whose_name_leaves_the_folder_finds_nothing_there(write_file, tmp_path, task):
    write_file("not theirs", "secret.py")
    (tmp_path / "theirs").mkdir()
    with pytest.raises(NoKernelError):
        find_kernel(tmp_path / "theirs", task, 0)


@pytest.mark.parametrize("name", ["..", "../x", "a/../../b", "/abs", "", ".hidden", "a\nb", "a\\b", "x" * 300, " a"])
def test_whatever_a_task_is_called_its_folder_stays_in_the_run(tmp_path, name):
    run = RunFolder(tmp_path / "run")
    place = Path(os.path.normpath(run.kernel_folder((name, 0))))
    assert place.is_relative_to(tmp_path / "run" / "kernels") and len(place.parent.name) < 100
    place.mkdir(parents=True)


def test_different_tasks_have_different_folders_and_plain_names_stay():
    names = ["level1/soft max", "..", ".", "../x", ".-x", "a\tb", "a\nb"]
    assert len({folder_name(name) for name in names}) == len(names)
    assert folder_name("level1/soft max") == "level1/soft max"


def test_what_agent_names(tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "script.json").write_text("[]")
    assert parse_source("draft").stage == "draft" and parse_source("claude").stage == "session"
    found = parse_source(f"dir:{tmp_path / 'made'}")
    assert (found.stage, found.name) == ("", "dir:made")
    assert parse_source(f"script:{tmp_path}/script.json").agent("a/b") == f"script:{tmp_path}/script.json"
    assert parse_source("replay:/runs/{task}/0").agent("a/b") == "replay:/runs/a/b/0"


@pytest.mark.parametrize("text", ["", "gpt", "dir:", "dir:/nowhere", "script:/nowhere.json", "draft:x", "claude:x"])
def test_an_agent_that_does_not_exist(text):
    with pytest.raises(UsageError, match="--agent"):
        parse_source(text)


@pytest.mark.parametrize("text", ["some", "0", "-1", "1.5", ""])
def test_gpus_that_cannot_be_meant(text):
    with pytest.raises(UsageError, match="--gpus"):
        choose_gpus(text)


@pytest.fixture
def four_gpus(write_file, tmp_path, monkeypatch):
    """A machine whose nvidia-smi lists four."""
    lists = 'for i in 0 1 2 3; do echo "$i, NVIDIA H200, 9.0, 580.1, 143771"; done\n'
    write_file(f"#!/bin/sh\n{lists}", "bin/nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def test_which_gpus_are_chosen(four_gpus):
    assert choose_gpus("all") == ("0", "1", "2", "3")
    assert choose_gpus("2") == ("0", "1") and choose_gpus("3,1") == ("3", "1") and choose_gpus("2,") == ("2",)
    with pytest.raises(UnavailableError, match="has 4"):
        choose_gpus("5")
    with pytest.raises(UnavailableError, match="no GPU 7"):
        choose_gpus("1,7")


def test_only_those_that_the_environment_leaves(four_gpus):
    four_gpus.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert choose_gpus("all") == ("2", "3") and choose_gpus("1") == ("2",)
    with pytest.raises(UnavailableError, match="no GPU 0"):
        choose_gpus("0,2")
