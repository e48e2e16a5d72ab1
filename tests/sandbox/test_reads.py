"""What a confined worker may read: the installation and its own folder, and nothing that is a person's."""

import errno
import inspect
import json
import os
import sys
from pathlib import Path

import pytest
from sandbox_handlers import Act, factory

from cutesmith.problems import contract
from cutesmith.problems.loading import load_file
from cutesmith.sandbox.confinement import landlock_abi
from cutesmith.sandbox.environment import FREE_READS
from cutesmith.sandbox.readable import _linked_from, readable_paths
from cutesmith.sandbox.worker import Limits, run_isolated

ROOT = Path(__file__).parents[2]
INSTALLED = [entry for entry in sys.path if "site-packages" in entry or not Path(entry).is_relative_to(ROOT)]
PATHS = [str(ROOT), str(ROOT / "tests" / "handlers"), *INSTALLED]
LIMITS = Limits(call_seconds=60)
needs_landlock = pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")


def ask(action, *folders, scratch=None, gpu=False, limits=LIMITS, environment=(), **request):
    environment = {"PYTHONPATH": os.pathsep.join([*PATHS, *map(str, folders)]), **dict(environment)}
    request = Act({"action": action, **request})
    return run_isolated(factory, request, limits=limits, scratch=scratch, gpu=gpu, environment=environment)


@needs_landlock
def test_people_s_files_and_other_processes_are_not_readable(tmp_path):
    (tmp_path / "secret.txt").write_text("key")
    (tmp_path / "scratch").mkdir()
    people = ["/etc/shadow", "/root", "/home", "/tmp", "/dev/shm", str(tmp_path), str(tmp_path / "secret.txt")]
    repository = [
        str(ROOT / name) for name in ("evals", "tests", "pyproject.toml", "evals/adversarial/w4_reference.py")
    ]
    processes = [f"/proc/{who}/{name}" for who in ("self", "PARENT") for name in ("environ", "cmdline", "mem", "fd")]
    paths = [path for path in (*people, *repository, *processes, "/proc", "/proc/PARENT/maps") if _exists(path)]
    reply = ask("look", scratch=tmp_path / "scratch", paths=paths, after=[])
    assert reply["layers"]["reads"]
    assert {path for path, became in reply["found"].items() if became != "PermissionError"} == set()


def _exists(path):
    return os.path.exists(path.replace("PARENT", str(os.getppid())))


@needs_landlock
def test_the_installation_the_machine_and_its_own_folder_are_readable(tmp_path):
    scratch, inputs = tmp_path / "scratch", tmp_path / "inputs"
    for folder in (scratch, inputs):
        folder.mkdir()
        (folder / "file").write_text("x")
    own = [str(scratch), str(scratch / "file"), str(inputs / "file")]
    installed = [json.__file__, pytest.__file__, str(ROOT / "cutesmith" / "problems" / "contract.py"), "/usr/lib"]
    machine = ["/proc/self/maps", "/proc/self/status", "/proc/meminfo", "/sys/devices", "/dev/urandom", "/dev/null"]
    paths = [*own, *installed, *machine, "/proc/self/task"]
    lazily = ["wave", "jinja2", "encodings.cp037", "cutesmith.devices"]
    reply = ask("look", scratch=scratch, readable=[str(inputs)], paths=paths, after=lazily)
    assert {path for path, became in reply["found"].items() if became != "read"} == set()


@needs_landlock
def test_of_folders_on_the_path_an_installation_is_open_and_a_project_only_as_far_as_it_is_imported(tmp_path):
    site, project = tmp_path / "site", tmp_path / "project"
    for folder in (site / "library-1.0.dist-info", project / "package"):
        folder.mkdir(parents=True)
    for file in (site / "library.py", project / "package" / "__init__.py", project / "package" / "late.py"):
        file.write_text("")
    for name in ("pyproject.toml", "keys.txt"):
        (project / name).write_text("")
    paths = [str(project), str(project / "keys.txt")]
    request = {"before": ["package"], "paths": paths, "after": ["library", "package.late"]}
    reply = ask("look", site, project, **request)
    assert reply["found"] == {**dict.fromkeys(paths, "PermissionError"), "library": "read", "package.late": "read"}


def test_a_switch_leaves_reads_free_and_is_not_seen_by_the_kernel(tmp_path):
    (tmp_path / "file").write_text("x")
    reply = ask("look", environment={FREE_READS: "1"}, paths=[str(tmp_path / "file")], after=[])
    assert reply["found"] == {str(tmp_path / "file"): "read"}
    assert reply["layers"]["reads"] is False
    assert FREE_READS not in reply["environment"]


@needs_landlock
@pytest.mark.parametrize(("mode", "rule", "says"), [("r", "R5", "may read only"), ("a", "H5", "may write only")])
def test_a_refused_file_is_told_with_what_a_kernel_may_do(tmp_path, mode, rule, says):
    path = Path(json.__file__) if mode == "a" else tmp_path / "file"
    path.touch()
    verdict = ask("told", path=str(path), mode=mode)
    assert verdict["rule"] == rule and says in verdict["hint"]
    assert verdict["message"].startswith("kernel.py: PermissionError") and path.name in verdict["message"]


def test_nothing_on_the_list_would_open_a_home_or_a_temporary_folder(tmp_path):
    listed = readable_paths()
    for place in (Path.home().resolve(), Path("/tmp"), tmp_path, Path("/dev/shm"), Path("/etc/shadow"), ROOT):
        assert not [path for path in listed if place.is_relative_to(path)], place
    assert all(path.exists() for path in listed)


def test_a_file_whose_text_is_held_runs_without_being_read(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("def kernel_fn(x):\n    return x  # held\n")
    contract.hold(path)
    path.write_text("raise AssertionError('this is another text')\n")
    loaded = load_file(path, with_problem=True)
    assert loaded.kernel_fn(3) == 3
    assert "# held" in inspect.getsource(loaded.kernel_fn)


@needs_landlock
@pytest.mark.parametrize("programs", [True, False])
def test_compilers_may_be_started_wherever_they_are_installed_by_whom_may_start_programs(tmp_path, programs):
    """One on PATH outside of the system's folders, with a file beside it that it reads."""
    home = tmp_path / "toolchain"
    for folder in ("bin", "libexec"):
        (home / folder).mkdir(parents=True)
    (home / "libexec" / "message").write_text("compiled")
    (home / "bin" / "gcc").write_text(f"#!/bin/sh\nread -r text < {home}/libexec/message\necho $text\n")
    (home / "bin" / "gcc").chmod(0o755)
    found = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    reply = ask("compile_with", program="gcc", programs=programs, environment=found)
    assert reply == ({"printed": "compiled\n", "said": ""} if programs else {"refused": errno.EPERM})


@needs_landlock
def test_files_may_be_moved_within_the_own_folder_and_neither_into_it_nor_out_of_it(tmp_path):
    scratch, outside = tmp_path / "scratch", tmp_path / "outside"
    for folder in (scratch / "a", scratch / "b", outside):
        folder.mkdir(parents=True)
    secret, made = outside / "secret.txt", scratch / "a" / "made"
    secret.write_text("key")
    made.write_text("x")
    moves = {
        "link a secret": (secret, scratch / "b" / "linked"),
        "move a secret": (secret, scratch / "b" / "moved"),
        "move out": (made, outside / "made"),
        "link out": (made, outside / "linked"),
        "move within": (made, scratch / "b" / "made"),
    }
    reply = ask("move", scratch=scratch, moves=[[name, *map(str, paths)] for name, paths in moves.items()])
    assert reply.pop("move within") == "done" and (scratch / "b" / "made").read_text() == "x"
    assert set(reply.values()) <= {"PermissionError", "EXDEV"}
    assert sorted(outside.iterdir()) == [secret]


@pytest.mark.gpu
def test_cuda_and_the_dsl_need_no_more_than_the_list():
    """When this fails: what a process with free reads has mapped or open, and the list lacks."""
    request = {"kernel": str(ROOT / "tests" / "kernels" / "relu_tvm_ffi.py")}
    limits = Limits(call_seconds=300, memory_bytes=64 << 30, file_bytes=32 << 30)
    free = ask("cuda", gpu=True, limits=limits, environment={FREE_READS: "1"}, **request)
    print("outside the list:", *free["outside"], sep="\n")
    confined = ask("cuda", gpu=True, limits=limits, **request)
    assert confined["layers"]["reads"] == (landlock_abi() > 0)
    assert free["outside"] == []


@pytest.mark.parametrize("linked", ["torch-2.dist-info", "torch-2.dist-info/METADATA"])
def test_packages_that_an_installer_linked_are_read_where_they_lie(tmp_path, linked):
    """Whole folders, or file by file as uv's symlink mode does."""
    store, site = tmp_path / "cache/4f2a", tmp_path / "site-packages"
    (store / "torch-2.dist-info").mkdir(parents=True)
    (store / "torch-2.dist-info/METADATA").touch()
    (site / linked).parent.mkdir(parents=True)
    (site / linked).symlink_to(store / linked)
    (site / "own-1.dist-info").mkdir()
    (site / "own-1.dist-info/METADATA").touch()
    assert _linked_from([str(site)]) == {str(store)}
