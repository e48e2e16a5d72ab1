"""The fork server: its workers are as if started alone, it dies with its judge, and is optional."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from sandbox_handlers import Act, factory

from cutesmith.audit import problem_audit
from cutesmith.compiling import compilation
from cutesmith.emulator.requirements import import_emulator
from cutesmith.errors import CandidateError
from cutesmith.judge import entries as judging
from cutesmith.judge.entries import candidate
from cutesmith.judge.transfer.requests import Start
from cutesmith.patterns.generation import drafting
from cutesmith.profiling import emulation
from cutesmith.recording.dsl_import import import_dsl
from cutesmith.runtime import trial_processes
from cutesmith.sandbox import shared_fork_server
from cutesmith.sandbox.child import Program
from cutesmith.sandbox.fork_server import ForkServer
from cutesmith.sandbox.fork_server_orders import Answer, Fork, Forked
from cutesmith.sandbox.messages import encode, name_of
from cutesmith.sandbox.worker import Worker, run_isolated
from cutesmith.timing import entries as timing
from tests.processes import running, status_of, until

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "handlers")])}
DSL_ENVIRONMENT = {"CUTE_DSL_ARCH": "sm_90a"}


@pytest.fixture
def full_fork_server():
    """The fork server of this process with PyTorch and the DSL in it, under another architecture than its workers'."""
    if (known := shared_fork_server.SHARED.fork_server) is not None and known.lent:
        shared_fork_server.SHARED.close()  # one that was lent stays, whatever environment it has
    with Worker(candidate, preload=(import_dsl,), environment={"CUTE_DSL_ARCH": "sm_100a"}) as worker:
        assert parent_of(worker) == shared_fork_server.SHARED.fork_server.pid
    return shared_fork_server.SHARED.fork_server


def ask(action, *, environment=ENVIRONMENT, **request):
    return run_isolated(factory, Act({"action": action, **request}), environment=environment)


def parent_of(worker):
    return int(status_of(worker._process.pid, "PPid"))


@pytest.mark.slow
def test_a_forked_worker_is_as_if_it_had_been_started_alone(full_fork_server, monkeypatch, tmp_path):
    more = {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "", "CUTE_DSL_ARCH": "sm_90a"}

    def started():
        return run_isolated(factory, Act({"action": "started"}), environment={**ENVIRONMENT, **more}, scratch=tmp_path)

    forked = [started(), started()]
    monkeypatch.setenv(shared_fork_server.OFF, "1")
    executed = started()
    draws = [reply.pop("draws") for reply in forked]
    assert not set(draws[0]) & set(draws[1]), "random state of Python, NumPy and PyTorch"
    del executed["draws"]
    marks = [next(part for part in reply["from_proc"] if part.startswith("WORKER_ID=")) for reply in forked]
    assert marks[0] != marks[1]
    for reply in (*forked, executed):
        reply["from_proc"] = [part for part in reply["from_proc"] if not part.startswith("WORKER_ID=")]
    assert forked[0] == forked[1] == executed
    assert executed["dsl"]["CuTeDSL"]["_arch"] == "'sm_90a'"
    assert executed["no_bytecode"]
    assert executed["libc"] == {"HOME": True, "FORK_SERVER_ROOM": False, "WORKER_ID": True}


def test_a_forked_worker_starts_quickly(full_fork_server):
    def seconds():
        begin = time.monotonic()
        assert ask("modules")["parent"] == full_fork_server.pid
        return time.monotonic() - begin

    assert min(seconds() for _ in range(5)) < 1  # about 0.05 s on an idle machine; 2 to 3 s when it imports


def test_threads_of_the_judge_share_a_fork_server(full_fork_server):
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda value: ask("echo", value=value), range(24)))
    assert [reply["value"] for reply in replies] == list(range(24))
    assert len({reply["pid"] for reply in replies}) == 24
    children = Path(f"/proc/{full_fork_server.pid}/task/{full_fork_server.pid}/children").read_text().split()
    assert not children, "every worker that ended was reaped"


def test_a_worker_whose_libraries_would_read_another_environment_is_executed(full_fork_server):
    reply = ask("modules", environment={**ENVIRONMENT, "LC_ALL": "C"})
    assert (reply["parent"], reply["loaded"]) == (os.getpid(), [])


@pytest.mark.slow
def test_another_environment_of_the_judge_gets_a_fork_server_of_its_own(monkeypatch):
    shared_fork_server.SHARED.close()  # other tests may have lent it, and then it stays
    with Worker(factory, environment=ENVIRONMENT) as held:
        first = parent_of(held)
        monkeypatch.setenv("TZ", "UTC")
        assert ask("modules")["parent"] == os.getpid(), "the old fork_server still has a worker"
        assert held.call(Act({"action": "echo", "value": 1}))["value"] == 1
    other = ask("modules")["parent"]
    assert other not in (os.getpid(), first)
    assert not running(first)


@pytest.mark.slow
def test_a_fork_server_that_was_killed_takes_its_workers_along_and_is_replaced():
    with Worker(factory, environment=ENVIRONMENT) as worker:
        worker.call(Act({"action": "echo", "value": 1}))
        first = parent_of(worker)
        folder = Path(os.readlink(f"/proc/{first}/cwd"))
        os.kill(first, signal.SIGKILL)
        with pytest.raises(CandidateError, match=r"ended by SIGKILL"):
            worker.call(Act({"action": "loop"}))
    assert ask("modules")["parent"] not in (first, os.getpid())
    assert not folder.exists()


def test_nothing_outlives_a_killed_judge(tmp_path):
    text = """
import os, signal, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from cutesmith.sandbox.worker import Worker
from sandbox_handlers import Act, factory
worker = Worker(factory, environment={"PYTHONPATH": sys.argv[1]})
worker.start()
reply = worker.call(Act({"action": "modules"}))
print(worker._process.pid, reply["parent"], os.readlink(f"/proc/{reply['parent']}/cwd"), worker.scratch, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    judge = subprocess.run(
        [sys.executable, "-c", text, ENVIRONMENT["PYTHONPATH"]],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert judge.returncode == -signal.SIGKILL, judge.stderr
    worker, parent, folder, _ = judge.stdout.split()
    until(lambda: not running(int(worker)) and not running(int(parent)))
    until(lambda: not Path(folder).exists())


@pytest.mark.slow
def test_the_fork_server_keeps_machine_code_and_its_workers_do_not_know_where(tmp_path):
    text = """
import os, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from cutesmith.emulator.requirements import import_emulator
from cutesmith.profiling.emulation import emulator
from cutesmith.sandbox.worker import Worker
from sandbox_handlers import Act, factory
with Worker(emulator, preload=(import_emulator,)) as worker:
    assert not worker.not_forked, worker.not_forked
with Worker(factory, environment={"PYTHONPATH": sys.argv[1]}) as worker:
    print(*worker.call(Act({"action": "environment"}))["environment"])
"""
    judge = subprocess.run(
        [sys.executable, "-c", text, ENVIRONMENT["PYTHONPATH"]],
        capture_output=True, text=True, cwd=ROOT, timeout=100, check=False,
        env={**os.environ, "CUTESMITH_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert judge.returncode == 0, judge.stderr
    assert "HOME" in judge.stdout and "CUTESMITH" not in judge.stdout
    assert len(list((tmp_path / "code").glob("*.o"))) == 1


@pytest.mark.slow
def test_a_fork_server_with_threads_is_done_without(tmp_path):
    """As it would be with a release of the DSL that starts threads when it is imported."""
    (tmp_path / "cutlass").mkdir()
    (tmp_path / "cutlass" / "__init__.py").touch()
    lines = ("import threading, time", "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
    (tmp_path / "cutlass" / "cute.py").write_text("\n".join(lines))
    text = """
import sys
from pathlib import Path
from cutesmith.emulator.requirements import import_emulator
from cutesmith.profiling.emulation import emulator
from cutesmith.sandbox.worker import Worker
for _ in range(2):
    environment = {"PYTHONPATH": sys.argv[1], "CUTE_DSL_ARCH": "sm_90a"}
    with Worker(emulator, preload=(import_emulator,), environment=environment) as worker:
        print([line for line in Path(f"/proc/{worker._process.pid}/status").read_text().splitlines() if "PPid" in line])
"""
    command = [sys.executable, "-c", text, f"{tmp_path}{os.pathsep}{ROOT}"]
    judge = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert judge.communicate(timeout=100)[0] == f"['PPid:\\t{judge.pid}']\n" * 2
    assert judge.returncode == 0


LENT_VERB = """
import os, sys, time
sys.path[:0] = sys.argv[1].split(os.pathsep)
from cutesmith.sandbox.worker import Worker
from sandbox_handlers import Act, factory
print([name for name in os.environ if name.startswith("CUTESMITH_N")], flush=True)
with Worker(factory, environment={"PYTHONPATH": sys.argv[1]}) as worker:
    reply = worker.call(Act({"action": "modules"}))
    print(worker._process.pid, reply["parent"], len(worker.call(Act({"action": "descriptors"}))["open"]), flush=True)
    if len(sys.argv) > 2:
        time.sleep(60)
"""


def lent_verb(*more, **environment):
    with shared_fork_server.lend_fork_server() as (variables, descriptors):
        return subprocess.Popen(
            [sys.executable, "-c", LENT_VERB, ENVIRONMENT["PYTHONPATH"], *more],
            stdout=subprocess.PIPE, text=True, pass_fds=descriptors,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment, **variables},
        )  # fmt: skip


def test_a_verb_forks_its_workers_from_the_fork_server_that_it_was_lent():
    with lent_verb() as verb:
        told = verb.communicate(timeout=60)[0].split("\n")
    _, parent, descriptors = map(int, told[1].split())
    assert (verb.returncode, parent) == (0, shared_fork_server.SHARED.fork_server.pid)
    assert descriptors <= 6
    assert running(parent), "it is still ours"


def test_a_killed_verb_leaves_no_worker_in_the_fork_server_that_it_was_lent():
    with lent_verb("wait") as verb:
        verb.stdout.readline()
        worker, parent, _ = map(int, verb.stdout.readline().split())
        verb.kill()
        until(lambda: not Path(f"/proc/{worker}").exists())
    assert running(parent)
    assert ask("modules")["parent"] == parent


def test_after_ctrl_c_a_late_answer_is_not_taken_for_another():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fork_server = ForkServer(ours, {})

    def late():
        theirs.recv(1 << 18)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with ours, theirs, ThreadPoolExecutor(1) as pool:
        pool.submit(late)
        with pytest.raises(KeyboardInterrupt):
            fork_server.fork(Fork(Program("a:b", (), 1, None), "/", {}), ())
        theirs.send(json.dumps(encode(Forked(1), Answer)).encode())
        assert not fork_server.alive
        assert fork_server.reap(2) == -signal.SIGKILL


def test_a_fork_server_of_another_environment_is_not_borrowed():
    with lent_verb(TZ="UTC") as verb:
        told = verb.communicate(timeout=60)[0].split("\n")
    assert verb.returncode == 0
    assert int(told[1].split()[1]) != shared_fork_server.SHARED.fork_server.pid


def test_the_fork_server_holds_no_secret_of_the_judge(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    shared_fork_server.SHARED.close()  # the next one is started beside the secret
    ask("modules")
    told = Path(f"/proc/{shared_fork_server.SHARED.fork_server.pid}/environ").read_bytes()
    assert b"SOME_API_KEY" not in told
    assert b"WORKER_ID" not in told


ENTRIES = (
    compilation.compiler,
    drafting.drafter,
    problem_audit.auditor,
    emulation.emulator,
    judging.reference,
    judging.confined_reference,
    judging.candidate,
    judging.device_time,
    timing.baselines,
    timing.compiling_baselines,
    timing.confined_compiling_baselines,
    timing.candidates,
    trial_processes.tiling_trials,
)
PRELOADS = (import_dsl, import_emulator, timing.import_for_gpu)
IMPORTED = """
import sys, traceback
import torch
from cutesmith.sandbox.child import Program
from cutesmith.sandbox.fork_server_orders import Fork
from cutesmith.sandbox.fork_server_process import _import_for, _obstacle
def asked(): raise AssertionError("torch was asked for GPUs: " + "".join(traceback.format_stack()[-6:]))
torch.cuda.is_available = torch.cuda.device_count = torch.cuda.init = asked
preload, entries = sys.argv[1].split(), sys.argv[2:]
for entry in entries:
    _import_for(Fork(Program(entry, tuple(preload), 1 << 30, 1 << 34), ".", {"CUTE_DSL_ARCH": "sm_90a"}))
    assert not _obstacle(gpu=True), entry
print("imported")
"""


@pytest.mark.slow
def test_what_the_fork_server_imports_asks_torch_for_no_gpu():
    """Asked, torch starts CUDA and with it a thread, and every later worker imports PyTorch and the DSL itself."""
    names = [" ".join(map(name_of, PRELOADS)), *map(name_of, ENTRIES)]
    command, environment = [sys.executable, "-c", IMPORTED, *names], {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
    assert done.stdout == "imported\n", done.stderr


@pytest.mark.gpu
def test_on_a_gpu_every_worker_is_forked():
    for entry in (*ENTRIES, *ENTRIES):
        gpu = entry.__module__.endswith(".entries")
        with Worker(entry, preload=(import_dsl,), gpu=gpu, environment=DSL_ENVIRONMENT) as worker:
            assert not worker.not_forked, f"{entry}: {worker.not_forked}"


@pytest.mark.gpu
def test_forked_workers_use_the_gpu_and_the_fork_server_does_not(full_fork_server):
    for _ in range(2):
        with Worker(candidate, preload=(import_dsl,), gpu=True, environment=DSL_ENVIRONMENT) as worker:
            worker.call(Start("cuda", "sm_90a"))
            assert parent_of(worker) == full_fork_server.pid
            assert "libcuda.so" in Path(f"/proc/{worker._process.pid}/maps").read_text()
    descriptors = Path(f"/proc/{full_fork_server.pid}/fd").iterdir()
    assert not [path for path in map(os.readlink, descriptors) if path.startswith("/dev/nvidia")]


ASKED = """
import torch
from cutesmith.sandbox.fork_server_process import _obstacle
print([_obstacle(gpu=gpu) for gpu in (True, False)])
torch.cuda.is_available()
print([_obstacle(gpu=gpu) for gpu in (True, False)])
"""


@pytest.mark.slow
def test_a_fork_in_which_torch_would_start_no_cuda_is_refused_to_workers_with_a_gpu():
    command, environment = [sys.executable, "-c", ASKED], {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    before, after = subprocess.check_output(command, cwd=ROOT, env=environment, text=True).splitlines()
    assert before == "['', '']"
    if torch.version.cuda is None:  # such a build never refuses
        assert after == before
    else:
        assert "torch was asked for GPUs" in after or "is open" in after
