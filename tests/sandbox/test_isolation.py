"""A worker that misbehaves in every way we know of: each must end in a typed error, and leave nothing behind.

All of it holds for both ways to start one: forked from the fork_server, and as a program of its own.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
import types
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_handlers import Act, factory

from cutesmith.errors import CandidateError
from cutesmith.judge.entries import candidate
from cutesmith.recording.dsl_import import import_dsl
from cutesmith.sandbox import shared_fork_server
from cutesmith.sandbox.confinement import landlock_abi
from cutesmith.sandbox.processes import LEAST_MEMORY, fair_memory
from cutesmith.sandbox.worker import Limits, Worker, run_isolated
from cutesmith.verdicts import ExitCode
from tests.processes import command_line, running, until

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "handlers")])}
SMALL = Limits(call_seconds=20, memory_bytes=600 << 20, file_bytes=1 << 20, log_bytes=1 << 16, processes=8)
ROOM_FOR_FORKS = replace(SMALL, memory_bytes=4 << 30)  # what a fork shares is resident in it too, and counts again


@pytest.fixture(scope="module")
def full_fork_server():
    """The fork server of this process with PyTorch and the DSL in it, as it is in use."""
    with Worker(candidate, preload=(import_dsl,)), Worker(factory, environment=ENVIRONMENT) as worker:
        assert worker.call(Act({"action": "modules"}))["loaded"] == ["torch", "cutlass.cute"]


@pytest.fixture(autouse=True, params=["forked", "executed"])
def way(request, monkeypatch, full_fork_server):
    """How this test's workers start."""
    if request.param == "executed":
        monkeypatch.setenv(shared_fork_server.OFF, "1")
    return request.param


def test_a_worker_starts_in_the_way_that_was_asked_for(way):
    reply = ask("modules")
    assert (reply["parent"] == os.getpid()) == (way == "executed")
    assert reply["loaded"] == ([] if way == "executed" else ["torch", "cutlass.cute"])


def ask(action, *, limits=SMALL, scratch=None, gpu=False, **request):
    act = Act({"action": action, **request})
    return run_isolated(factory, act, limits=limits, scratch=scratch, gpu=gpu, environment=ENVIRONMENT)


def failure(action, **options):
    with pytest.raises(CandidateError) as caught:
        ask(action, **options)
    return caught.value


def test_a_worker_answers_and_keeps_its_state():
    with Worker(factory, limits=SMALL, environment=ENVIRONMENT) as worker:
        first = worker.call(Act({"action": "echo", "value": [1, "é"]}))
        second = worker.call(Act({"action": "echo", "value": None}))
    assert first["value"] == [1, "é"]
    assert second == {"value": None, "pid": first["pid"]}
    assert not Path(f"/proc/{first['pid']}").exists()
    assert not worker.scratch.exists()


def test_an_exception_does_not_end_the_worker():
    with Worker(factory, limits=SMALL, environment=ENVIRONMENT) as worker:
        with pytest.raises(CandidateError, match="the kernel raised ZeroDivisionError: division by zero") as caught:
            worker.call(Act({"action": "raise"}))
        assert caught.value.exit_code == ExitCode.CRASHED
        assert caught.value.log_tail.rstrip().endswith("ZeroDivisionError: division by zero")
        assert worker.call(Act({"action": "echo", "value": 1}))["value"] == 1


def test_our_own_errors_keep_their_exit_code_and_hint():
    error = failure("contract")
    assert (error.exit_code, error.message, error.hint) == (ExitCode.USAGE, "no get_inputs", "def get_inputs(): ...")


def test_what_a_worker_says_can_be_written_anywhere():
    """Half of a surrogate pair has no UTF-8: a report would fail over it, and an escape would act on the terminal."""
    error = failure("raise_text", text="a \ud800 b \x1b[2J\x1b]0;title\x07 c \U0001f600")
    assert error.message == "the kernel raised ValueError: a \\ud800 b  c \U0001f600"
    assert f"{error.message}{error.hint}{error.log_tail}".encode()
    assert ask("echo", value="\udc80 \U0001f600 \u00b5")["value"] == "\\udc80 \U0001f600 \u00b5"


@pytest.mark.parametrize("code", [0, -1, 4000])
def test_an_error_is_no_pass_whatever_code_it_claims(code):
    """A file that runs there can raise what it likes, our own errors too."""
    error = failure("passing_error", code=code)
    assert (error.exit_code, error.message) == (ExitCode.CRASHED, "all is well")


def test_replies_are_strict_json():
    assert ask("nan") == {"value": None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        ("exit", {}, "SystemExit"),
        ("os_exit", {}, "left the process with exit code 0 before answering"),
        ("segfault", {}, "SIGSEGV (segmentation fault)"),
        ("abort", {}, "SIGABRT"),
        ("allocate", {"bytes": 500 << 30}, "MemoryError"),
        ("touch", {"bytes": 800 << 20}, "0.6 GiB of host memory"),
        ("touch", {"bytes": 1 << 30, "gpu": True}, "0.6 GiB of host memory"),
        ("big_file", {"bytes": 2 << 20}, "OSError"),
        ("fork_many", {"limits": ROOM_FOR_FORKS}, "more than 8 processes"),
    ],
)
def test_a_worker_that_vanishes_or_takes_too_much_has_crashed(action, options, message):
    error = failure(action, **options)
    assert error.exit_code == ExitCode.CRASHED and message in error.message


def test_a_loop_times_out_and_the_worker_stays_dead():
    with Worker(factory, limits=SMALL, environment=ENVIRONMENT) as worker:
        worker.call(Act({"action": "echo", "value": 1}))
        begin = time.monotonic()
        for _ in range(2):
            with pytest.raises(CandidateError, match="did not finish within 0.3 s of CPU time") as caught:
                worker.call(Act({"action": "loop"}), timeout=0.3)
            assert caught.value.exit_code == ExitCode.TIMED_OUT
        assert time.monotonic() - begin < 15  # on a busy machine; the loop never ends
        assert not worker.alive


@pytest.mark.slow
@pytest.mark.parametrize("action", ["burn_in_children", "burn_in_an_orphan"])
def test_the_cpu_time_of_all_its_processes_counts(action):
    error = failure(action, limits=replace(ROOM_FOR_FORKS, call_seconds=1))
    assert (error.exit_code, error.limit) == (ExitCode.TIMED_OUT, "within 1 s of CPU time")


@pytest.mark.parametrize(("gpu", "said"), [(False, "slept or waited for so long, and used 0"), (True, "within 0.4 s")])
def test_a_call_that_sleeps_is_ended_by_wall_clock_time(gpu, said):
    error = failure("sleep", gpu=gpu, limits=replace(SMALL, call_seconds=0.4))
    assert error.exit_code == ExitCode.TIMED_OUT and error.limit.startswith("within 0.4 s") and said in error.limit


@pytest.mark.slow
def test_a_busy_machine_takes_nothing_from_the_time_of_a_call():
    """Of eight times as many loops as cores a call gets a ninth: its limit passes on the wall, and it answers."""
    endless = [sys.executable, "-c", "while True: pass"]
    with Worker(factory, limits=SMALL, environment=ENVIRONMENT) as worker:
        worker.call(Act({"action": "echo", "value": 1}))
        others = [subprocess.Popen(endless, start_new_session=True) for _ in range(8 * len(os.sched_getaffinity(0)))]
        try:
            begin = time.monotonic()
            assert worker.call(Act({"action": "burn", "seconds": 0.7}), timeout=1) == {}
            assert time.monotonic() - begin > 1  # else nothing was tested
        finally:
            for other in others:
                other.kill()
                other.wait()


def test_a_double_forked_child_dies_with_the_worker(tmp_path):
    pid_file = tmp_path / "pid"
    ask("double_fork", pid_file=str(pid_file), limits=ROOM_FOR_FORKS)
    assert not running(int(pid_file.read_text()))


def test_a_forged_reply_is_rejected():
    error = failure("forge")
    assert (error.exit_code, error.rule) == (ExitCode.REJECTED, "H2")


def test_a_flood_of_output_keeps_its_tail():
    with Worker(factory, limits=replace(SMALL, call_seconds=100), environment=ENVIRONMENT) as worker:
        worker.call(Act({"action": "print", "bytes": 1 << 26}))  # a thousand times what is kept
        assert worker.log_tail.endswith("the last line\n")
        assert len(worker.log_tail) < SMALL.log_bytes + 100
        assert "bytes of log dropped" in worker.log_tail


def test_a_worker_never_gets_more_than_half_of_what_is_available():
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    assert LEAST_MEMORY <= fair_memory(1 << 60) <= max(LEAST_MEMORY, 0.6 * available)
    assert fair_memory(LEAST_MEMORY + 1) <= LEAST_MEMORY + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"action": "hold_by_a_file", "bytes": 800 << 20}, "used more than 0.6 GiB of host memory"),
        ({"action": "many_files", "count": 200, "size": 1 << 20}, "wrote more than 0.1 GiB of files"),
        ({"action": "many_files", "count": 3000, "size": 0}, "made more than 2500 files"),
        ({"action": "nested", "depth": 2000}, "made a folder that cannot be looked into"),
    ],
)
def test_what_no_process_shows_is_watched_too(action, said):
    limits = replace(SMALL, file_bytes=2 << 30, folder_bytes=100 << 20, files=2500)
    with Worker(factory, limits=limits, gpu=True, environment=ENVIRONMENT) as worker:
        scratch = worker.scratch
        with pytest.raises(CandidateError, match=f"the kernel {said}") as caught:
            worker.call(Act(action))
    assert caught.value.exit_code == ExitCode.CRASHED
    assert not scratch.parent.exists()


def test_what_happened_between_two_calls_is_said_by_the_second():
    with Worker(factory, limits=SMALL, gpu=True, environment=ENVIRONMENT) as worker:
        worker.call(Act({"action": "hold_by_a_thread", "bytes": 800 << 20}))
        until(lambda: worker._watched.excess(SMALL) and time.monotonic() > worker._next_watch)  # a look is due
        pending = worker.send(Act({"action": "echo", "value": 1}))  # as a reference's, whose replies are told otherwise
        with pytest.raises(CandidateError, match="used more than 0.6 GiB of host memory"):
            pending.reply()


def test_a_worker_is_watched_while_another_is_waited_for():
    watched, waited_for = (Worker(factory, limits=SMALL, gpu=gpu, environment=ENVIRONMENT) for gpu in (True, False))
    with watched as worker, waited_for as other:
        other.beside = (worker,)
        worker.call(Act({"action": "hold_by_a_thread", "bytes": 800 << 20}))
        until(lambda: other.call(Act({"action": "pause"})) or not worker.alive)
        with pytest.raises(CandidateError, match="used more than 0.6 GiB of host memory"):
            worker.call(Act({"action": "echo", "value": 1}))


class Late(Worker):
    """A worker whose start waits for a word."""

    def __init__(self, **options):
        super().__init__(factory, environment=ENVIRONMENT, **options)
        self.word = threading.Event()

    def start(self):
        assert self.word.wait(timeout=30)
        super().start()


def test_the_first_request_waits_for_a_worker_that_starts_beside():
    with Late(limits=SMALL).starting() as worker:
        assert not worker.alive
        threading.Timer(0.1, worker.word.set).start()
        pid = worker.call(Act({"action": "echo", "value": 1}))["pid"]
        assert worker.alive and running(pid)
    assert not running(pid) and not worker.scratch.exists()


def test_a_worker_that_was_never_asked_is_ended_too():
    worker = Late(limits=SMALL)
    with pytest.raises(KeyError), worker.starting():
        worker.word.set()
        raise KeyError
    assert not worker.alive and not worker.scratch.exists()


def test_why_a_worker_did_not_start_is_said_to_the_first_request(tmp_path):
    occupied = tmp_path / "file"
    occupied.touch()
    worker = Late(scratch=occupied / "folder")
    worker.word.set()
    with worker.starting(), pytest.raises(NotADirectoryError):
        worker.call(Act({"action": "echo", "value": 1}))


def test_workers_beside_are_watched_while_one_starts():
    late = Late(limits=SMALL)
    with Worker(factory, limits=SMALL, gpu=True, environment=ENVIRONMENT) as worker, late.starting():
        late.beside = (worker,)
        worker.call(Act({"action": "hold_by_a_thread", "bytes": 800 << 20}))
        threading.Thread(target=lambda: until(lambda: not worker.alive) or late.word.set()).start()
        late.call(Act({"action": "echo", "value": 1}))
        with pytest.raises(CandidateError, match="used more than 0.6 GiB of host memory"):
            worker.call(Act({"action": "echo", "value": 1}))


def test_the_environment_is_clean(monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    reply = ask("environment", scratch=tmp_path / "scratch")
    assert "SOME_API_KEY" not in reply["environment"]
    assert not [name for name in reply["environment"] if "pytest" in name.lower()]
    assert reply["cwd"] == reply["environment"]["HOME"] == reply["environment"]["TMPDIR"] == str(tmp_path / "scratch")
    assert reply["argv"] == ["python"]


def test_descriptors_are_closed(tmp_path):
    with (tmp_path / "held").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        assert len(ask("descriptors")["open"]) <= 6  # 0-2, two pipes, and the listing itself


def test_confinement_refuses_what_it_says(tmp_path):
    (tmp_path / "kept").write_text("kept")
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as shared:
        reply = ask("confined", outside=str(tmp_path), shared=shared.name)
    layers = reply["layers"]
    assert layers["no_new_privileges"]
    assert layers["landlock"] == (landlock_abi() > 0)
    assert reply["write_inside"] == reply["write_null"] == reply["signal_self"] == reply["thread"] == "done"
    if layers["landlock"]:
        assert reply["write_outside"] == reply["write_shared"] == "PermissionError"
        assert reply["parent_environment"] == "PermissionError", "also of root: it may hold keys"
        assert (tmp_path / "kept").read_text() == "kept"
    if layers["seccomp"]:
        refused = {name: reply[name] for name in ("fork", "exec", "socket", "unix_socket", "kill_parent")}
        assert set(refused.values()) == {"PermissionError"}, refused
        assert reply["memory_that_stays"] == [-1, -1, -1]


@pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")
def test_programs_that_may_be_started_are_confined_and_cannot_stay(tmp_path, tmp_path_factory):
    (tmp_path / "kept").write_text("kept")
    seconds, cache = f"600.{os.getpid()}", tmp_path_factory.mktemp("cache")
    reply = ask("confined_with_programs", outside=str(tmp_path), seconds=seconds, cache=str(cache))
    assert reply["program"] == reply["write_inside"] == 0 and reply["compiled"] == 5
    assert 0 not in {reply[name] for name in ("write_outside", "read", "namespace", "kill_parent", "setsid")}
    assert reply["own_session"] == "PermissionError"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and seconds in command_line(pid)]


def test_an_entry_that_does_not_import_is_reported(monkeypatch):
    module = types.ModuleType("no_such_module")
    exec("def entry(): return object", vars(module))
    monkeypatch.setitem(sys.modules, "no_such_module", module)
    with pytest.raises(CandidateError, match="ModuleNotFoundError"):
        run_isolated(module.entry, Act({}), limits=SMALL, environment=ENVIRONMENT)


def test_an_entry_is_a_function_at_the_top_of_a_module():
    with pytest.raises(TypeError, match="cannot be imported by another process"), Worker(lambda: object):
        pass
