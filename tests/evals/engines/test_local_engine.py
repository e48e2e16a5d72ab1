"""Stages in long-lived processes of this machine: they stay, and one that dies, hangs or loses its GPU is replaced."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import signal
import termios
import time
from pathlib import Path

import pytest

from cutesmith.devices import current_device
from cutesmith.evals.engines.gpus import Probed, probe, taken_of
from cutesmith.evals.engines.jobs import CHECK, VERIFY, CheckJob, File, Job, VerifyJob
from cutesmith.evals.engines.local_engine import LocalEngine, Slots, usual_slots
from cutesmith.evals.settings import JudgeSettings
from cutesmith.sandbox import shared_fork_server

NO_KERNEL = b"def (\n"  # lint says so, and nothing more is started
SLOW = (Path(__file__).resolve().parents[2] / "kernels" / "relu_tvm_ffi.py").read_bytes()  # workers import PyTorch
PROBLEM = b"def reference_fn(x): return x\ndef get_inputs(): return []\n"


def job(
    name: str,
    stage: str = CHECK,
    *,
    on: str = "compile",
    seconds: float = 100.0,
    problem: bytes = PROBLEM,
    kernel: bytes = NO_KERNEL,
) -> Job:
    kind = {CHECK: CheckJob, VERIFY: VerifyJob}[stage]
    files = {"task": File(name="problem.py", data=problem), "kernel": File(name="kernel.py", data=kernel)}
    return kind(id=name, **files, settings=JudgeSettings(on=on), seconds=seconds)


@pytest.fixture
def start():
    """Starts an engine with so many slots, which ends with the test."""
    with contextlib.ExitStack() as engines:
        yield lambda **slots: engines.enter_context(
            contextlib.closing(LocalEngine(Slots(**{"makers": 1, "checks": 1, "judges": 1, **slots})))
        )


@pytest.fixture
def engine(start):
    return start()


def reports(engine, count):
    found, deadline = [], time.monotonic() + 100
    while len(found) < count and time.monotonic() < deadline:
        found += engine.completed(1.0)
    return {report.id: report for report in found}


def process_of(engine, pool="check"):
    return engine._pools[pool]._slots[0]._process


def unread(pipe) -> int:
    """Bytes that wait in it."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return count[0]


def test_a_process_stays_and_one_that_is_killed_or_hangs_is_replaced(engine):
    engine.submit(job("one"))
    said = reports(engine, 1)["one"]
    assert said.result.verdicts["lint"].status == "usage" and "syntax" in str(said.result) and not said.lost
    first = process_of(engine).pid
    engine.submit(job("two"))
    assert not reports(engine, 1)["two"].lost and process_of(engine).pid == first
    os.kill(first, signal.SIGKILL)
    process_of(engine).wait(timeout=60)
    engine.submit(job("three"))
    assert not reports(engine, 1)["three"].lost and process_of(engine).pid != first
    engine.submit(job("hangs", seconds=0.0))
    assert "did not answer in time" in reports(engine, 1)["hangs"].lost and process_of(engine) is None


@pytest.mark.slow
def test_one_that_dies_over_a_job_loses_that_job_alone(engine):
    engine.submit(job("warm"))
    reports(engine, 1)
    os.kill(process_of(engine).pid, signal.SIGSTOP)
    engine.submit(job("lost"))
    while unread(process_of(engine).stdin) < len(NO_KERNEL + PROBLEM):  # until it is handed over
        time.sleep(0.01)
    os.kill(process_of(engine).pid, signal.SIGKILL)
    lost = reports(engine, 1)["lost"]
    assert "ended without an answer" in lost.lost and not lost.result and engine.capacity(CHECK) == 1
    engine.submit(job("next"))
    assert not reports(engine, 1)["next"].lost


@pytest.mark.slow
def test_no_process_outlives_the_engine(engine):
    engine.submit(job("one"))
    reports(engine, 1)
    pid = process_of(engine).pid
    engine.submit(job("two"))
    engine.close()
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.slow
def test_a_gpu_that_is_not_there_is_no_verdict_and_its_slots_take_nothing_more(start):
    """No machine has a GPU 63: the judge's own question to it says so. The jobs come back as lost."""
    engine = start(gpus=("63",))
    assert engine.capacity(VERIFY) == 1 and engine.room(VERIFY) == 2
    for name in ("one", "two"):
        engine.submit(job(name, VERIFY, on="gpu"))
    found = reports(engine, 2)
    assert "GPU" in found["one"].lost and "no GPU is left" in found["two"].lost
    assert engine.capacity(VERIFY) == engine.room(VERIFY) == 0
    engine.submit(job("three", VERIFY, on="gpu"))  # by somebody who looked a moment too early
    assert "no GPU is left" in reports(engine, 1)["three"].lost


@pytest.mark.slow
def test_what_a_process_had_in_hand_is_cleared_up_when_it_is_ended(tmp_path, monkeypatch, start):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    engine, never = start(), PROBLEM.replace(b"return []", b"__import__('time').sleep(100)")
    engine.submit(job("one", VERIFY, problem=never, kernel=SLOW))
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("cutesmith-eval-*/kernel.py")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert not engine.completed(0.01)  # it is at work
    pid = process_of(engine, "judge").pid
    engine.close()
    assert not os.path.exists(f"/proc/{pid}") and not list(tmp_path.glob("cutesmith-eval-*"))


def test_only_makers_are_given_keys(monkeypatch, start):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    environments = {name: pool._slots[0]._environment for name, pool in start(gpus=("3",))._pools.items()}
    assert {name for name, environment in environments.items() if "ANTHROPIC_API_KEY" in environment} == {"make"}
    devices = {name: environment["CUDA_VISIBLE_DEVICES"] for name, environment in environments.items()}
    assert devices == {"make": "3", "check": "", "judge": "3"}


def children_of(parent):
    """Pids and command lines."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if f"PPid:\t{parent}\n" in status.read_text():
                found[int(status.parent.name)] = (status.parent / "cmdline").read_bytes().decode()
    return found


@pytest.mark.slow
def test_slots_fork_their_workers_from_the_fork_server_of_this_process(start):
    """The libraries are imported once for a run."""
    shared_fork_server.SHARED.close()  # one that other tests lent, with another environment, cannot be replaced
    engine, found, forked = start(checks=2), [], set()
    problem = b"import torch\n" + SLOW[SLOW.index(b"def reference_fn") :]
    for name in ("one", "two"):
        engine.submit(job(name, problem=problem, kernel=SLOW, seconds=300.0))
    deadline = time.monotonic() + 200
    while len(found) < 2 and time.monotonic() < deadline:
        found += engine.completed(0.02)
        fork_server = shared_fork_server.SHARED.fork_server
        forked |= set(children_of(fork_server.pid)) if fork_server is not None else set()
    stages = [slot._process.pid for slot in engine._pools["check"]._slots if slot._process is not None]
    assert [report.result.verdicts["compile"].status for report in found] == ["compiled", "compiled"]
    assert len(stages) == 2 and len(forked) >= 2
    assert not [line for pid in stages for line in children_of(pid).values() if "fork_server_process" in line]


def test_how_many_of_each():
    assert usual_slots(("0",), 16) == Slots(makers=5, checks=4, judges=8, gpus=("0",))
    assert usual_slots([str(n) for n in range(8)], 128).judges == 8
    assert usual_slots((), 1) == Slots(makers=1, checks=1, judges=1)


@pytest.mark.parametrize(("free", "says"), [(138, ""), (105, ""), (104, "36.0 of its 140.0 GiB"), (0, "140.0 of its")])
def test_memory_counts_as_taken_when_a_quarter_of_it_is(free, says):
    """Eight judges whose references wait for the next kernel hold 5 GiB."""
    said = taken_of(free << 30, 140 << 30)
    assert said.startswith(says) and bool(said) == bool(says)
    assert not says or said.endswith("GiB of memory are taken")


@pytest.mark.skipif(current_device() is not None, reason="this machine has a GPU")
def test_without_a_gpu_it_is_lost():
    assert probe() == Probed(lost="nvidia-smi lists no GPU any more")


@pytest.mark.gpu
def test_a_gpu_that_computes_is_not_lost():
    assert not probe().lost
