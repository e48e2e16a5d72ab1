"""Runs on a real Ray cluster of several nodes on this machine, without a GPU: what is lost is done again elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cutesmith.errors import UnavailableError
from cutesmith.evals.engines.jobs import CHECK, VERIFY, Job
from cutesmith.evals.engines.local_engine import AHEAD, LocalEngine, Slots
from cutesmith.evals.engines.ray_cluster import RayCluster, RayLog
from cutesmith.evals.engines.ray_engine import RayEngine
from cutesmith.evals.engines.ray_nodes import Node, Staffing, posts_on
from cutesmith.evals.engines.ray_worker import MESSAGE_BYTES, RayWorker
from cutesmith.evals.engines.stages import carried
from cutesmith.evals.running.keys import this_machine
from cutesmith.evals.settings import JudgeSettings
from tests.evals.engines.test_local_engine import job, reports
from tests.evals.running import judged_runs
from tests.evals.running.test_eval_run import PROBLEM, command

cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves its log files and child processes open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the same, when collected late
]
COMPILE = JudgeSettings(on="compile", arch="sm_90a")
QUICK_TO_NOTICE = {  # a node's death: within two seconds, not twenty
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}
NO_SESSIONS = Slots(makers=1, checks=0, judges=0)
PROBE = """\
import os, socket
def attempt(what):
    try:
        return what() or "allowed"
    except OSError as error:
        return type(error).__name__
def ray_folder():
    return str(os.listdir("/tmp/ray"))
found = [attempt(socket.socket), attempt(ray_folder), [name for name in os.environ if "RAY" in name or "KEY" in name]]
raise RuntimeError(f"found {found}")
def kernel_fn(x):
    return x
"""


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    """The nodes' folder for temporary files, but for Ray's own."""
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def cluster(temporary):
    """A head that offers nothing, and two nodes with a core each. Its processes see a key that nobody may pass on."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("RAY_TMPDIR", "/tmp")  # paths of its sockets must be short
        environment.setenv("TMPDIR", str(temporary))
        environment.setenv("ANTHROPIC_API_KEY", "sk-secret")
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": QUICK_TO_NOTICE}
        made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def connected(cluster, tmp_path):
    return RayCluster(cluster.address, RayLog(tmp_path / "ray.log"))


def made_engine(cluster, tmp_path, staffing=None, machine=None):
    staffing = staffing or Staffing(judges_on_gpu=False, drafts=False)
    return RayEngine(
        connected(cluster, tmp_path), staffing, machine or this_machine("compile"), LocalEngine(NO_SESSIONS)
    )


@pytest.fixture
def engine(cluster, tmp_path):
    made = made_engine(cluster, tmp_path)
    yield made
    made.close()


class Counting:
    """An engine that is watched: no more jobs are on their way than it has workers for, and one ahead."""

    def __init__(self, engine):
        self._engine, self.outstanding, self.most = engine, 0, 0
        self.capacity, self.close, self.most_capacity = engine.capacity, engine.close, engine.capacity(CHECK)

    def room(self, stage):
        room = self._engine.room(stage)
        assert room >= 0
        return room

    def submit(self, job):
        self.outstanding += 1
        self.most = max(self.most, self.outstanding)
        self._engine.submit(job)

    def completed(self, seconds):
        found = self._engine.completed(seconds)
        self.outstanding -= len(found)
        return found


def children(parents, name):
    """Processes below these whose command line or title holds the name."""
    found, below = [], set(parents)
    table = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal():
                about = (entry / "stat").read_text().rpartition(")")[2].split()
                if about[0] != "Z":
                    table[int(entry.name)] = (int(about[1]), (entry / "cmdline").read_bytes().decode())
        except OSError:  # it ended meanwhile
            continue
    grown = True
    while grown:
        new = {pid for pid, (parent, _) in table.items() if parent in below} - below
        below, grown = below | new, bool(new)
    found = [pid for pid in below if pid in table and name in table[pid][1]]
    return sorted(found)


def raylet(node):
    return node.all_processes["raylet"][0].process.pid


def raylets(cluster):
    return [raylet(node) for node in cluster.list_all_nodes()]


def gone_within(seconds, find):
    deadline = time.monotonic() + seconds
    while find() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not find()


def warm(engine, count=2):
    """Every worker has its process."""
    for number in range(count):
        engine.submit(job(f"warm {number}"))
    reports(engine, count)


def test_a_node_that_dies_loses_nothing_and_nothing_comes_twice(cluster, tmp_path):
    """The other node's results are those of this machine alone; the lost job is among them, once."""
    node = cluster.add_node(num_cpus=1)
    engine = made_engine(cluster, tmp_path)
    assert engine.capacity(CHECK) == engine.capacity(VERIFY) == 3 and engine.room(CHECK) == 3 + AHEAD
    warm(engine, 3)
    hanging = children([raylet(node)], "stage_process")
    assert len(hanging) == 1
    for pid in hanging:
        os.kill(pid, signal.SIGSTOP)
    killer = threading.Timer(1.0, cluster.remove_node, [node], {"allow_graceful": False})
    killer.start()
    plan = judged_runs.plan(tmp_path, 8, judged_runs.kernels(tmp_path, 8, "def ({number}\n"), COMPILE)
    counting = Counting(engine)
    try:
        tally = judged_runs.run(plan, tmp_path / "ray", engine=counting)
        assert tally.complete and not tally.open
        deadline = time.monotonic() + 30
        while engine.capacity(CHECK) != 2 and time.monotonic() < deadline:  # Ray takes a while to be sure
            engine.completed(0.5)
        assert engine.capacity(CHECK) == 2
    finally:
        killer.join()
        engine.close()
        for pid in children([1, os.getpid()], "stage_process"):
            if pid in hanging:
                os.kill(pid, signal.SIGKILL)
    assert counting.outstanding == 0 and counting.most <= counting.most_capacity + AHEAD
    local = LocalEngine(Slots(makers=1, checks=1, judges=1))
    try:
        judged_runs.run(plan, tmp_path / "local", engine=local)
    finally:
        local.close()
    assert judged_runs.results(tmp_path / "ray") == judged_runs.results(tmp_path / "local")
    assert len(judged_runs.results(tmp_path / "ray")) == 8


def test_workers_that_are_killed_lose_their_jobs_and_others_come(cluster, engine):
    """Who dies while it is idle is found out with the next job: a run gives each job three tries."""
    warm(engine)
    pids = children(raylets(cluster), "ray::RayWorker")
    stages = children(raylets(cluster), "stage_process")
    for pid in stages:
        os.kill(pid, signal.SIGSTOP)
    engine.submit(job("lost"))
    time.sleep(0.3)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    lost = reports(engine, 1)["lost"]
    assert lost.lost and not lost.result
    for pid in stages:
        os.kill(pid, signal.SIGCONT)
    assert gone_within(30, lambda: set(stages) & set(children([1, *raylets(cluster)], "stage_process")))
    for number in range(3):
        engine.submit(job(f"again {number}"))
        report = reports(engine, 1)[f"again {number}"]
        if not report.lost:
            break
    assert not report.lost


def test_a_candidate_is_confined_as_on_one_machine(engine):
    """It has no sockets, does not see Ray's folder, and neither Ray's variables nor keys are in its environment."""
    files = {"task": carried("problem.py", PROBLEM.encode()), "kernel": carried("kernel.py", PROBE.encode())}
    probe = Job(id="probe", stage=CHECK, payload={**files, "settings": COMPILE.to_dict()}, seconds=250.0)
    engine.submit(probe)
    text = str(reports(engine, 1)["probe"].result["verdicts"]["compile"])
    assert "found ['PermissionError', 'PermissionError', []]" in text, text


def test_a_node_that_joins_later_works_too(cluster, engine):
    node = cluster.add_node(num_cpus=1)
    deadline = time.monotonic() + 60
    while engine.room(CHECK) < 3 + AHEAD and time.monotonic() < deadline:
        engine.completed(0.5)
    assert engine.capacity(CHECK) == 3 and engine.room(CHECK) == 3 + AHEAD
    warm(engine, 3)
    assert len(children([raylet(node)], "stage_process")) == 1
    cluster.remove_node(node)


def test_a_job_that_is_too_large_does_not_travel(engine):
    large = Job(id="large", stage=CHECK, payload={"kernel": "x" * MESSAGE_BYTES}, seconds=1.0)
    engine.submit(large)
    assert "travel" in reports(engine, 1)["large"].lost


def test_nodes_with_other_versions_are_left_out_and_said_so(cluster, tmp_path, capsys):
    other = this_machine("compile").model_copy(update={"torch": "0.1"})
    with pytest.raises(UnavailableError, match="torch .* there, 0.1 here"):
        made_engine(cluster, tmp_path, machine=other)
    assert "is left out: torch" in capsys.readouterr().err


def test_gpus_are_shared_by_their_judges_and_one_that_is_lost_gets_no_more(cluster, tmp_path):
    """Ray hands out the GPUs that a node is said to have; the judge finds out that they do not answer."""
    node = cluster.add_node(num_cpus=2, num_gpus=2)
    staffing = Staffing(judges_on_gpu=True, drafts=False, judges=2)
    engine = made_engine(cluster, tmp_path, staffing)
    try:
        judges = [worker for worker in engine._workers if worker.post.pool == "judge"]
        assert sorted(worker.gpu for worker in judges) == ["0", "0", "1", "1"]
        assert engine.capacity(VERIFY) == 4 and engine.capacity(CHECK) == 3
        engine.submit(job("one", VERIFY, on="gpu"))
        found = reports(engine, 1)["one"]
        assert "GPU" in found.lost and found.result and engine.capacity(VERIFY) == 2
        engine.submit(job("two", VERIFY, on="gpu"))
        assert "GPU" in reports(engine, 1)["two"].lost and engine.capacity(VERIFY) == engine.room(VERIFY) == 0
    finally:
        engine.close()
        cluster.remove_node(node)


def test_a_run_on_the_cluster_prints_its_result_alone_and_ctrl_c_leaves_nothing_behind(
    cluster, temporary, write_file, tmp_path
):
    write_file(PROBLEM, "tasks/level1/a.py")
    write_file(PROBLEM, "tasks/level1/b.py")
    write_file("def (\n", "theirs/a.py")
    write_file("import time\ntime.sleep(300)\ndef kernel_fn(x):\n    return x\n", "theirs/b.py")
    line = command(
        *("--suite", tmp_path / "tasks", "--agent", f"dir:{tmp_path / 'theirs'}", "--on", "compile", "--no-cache"),
        *("--engine", "ray", "--address", cluster.address, "--out", tmp_path / "run", "--json"),
    )
    run = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = tmp_path / "run" / "results.jsonl"
        deadline = time.monotonic() + 200
        while not (lines.is_file() and lines.stat().st_size) and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        while not any(temporary.glob("cutesmith-eval-*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert children(raylets(cluster), "ray::RayWorker")
        run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=100)
    finally:
        run.kill()
    assert run.returncode == 130, errors
    assert json.loads(output)["done"] == 1 and "level1/a" in errors
    assert len(errors.splitlines()) <= 3, errors
    for name in ("ray::RayWorker", "stage_process"):
        assert gone_within(30, lambda name=name: children(raylets(cluster), name))
    assert not any(temporary.glob("cutesmith-eval-*"))


@pytest.mark.parametrize(
    "address, code, words",
    [("127.0.0.1:1", 7, "nothing listens at 127.0.0.1:1"), ("nonsense", 2, "neither auto nor HOST:PORT")],
)
def test_an_address_without_a_cluster_is_one_sentence(write_file, tmp_path, address, code, words, run_main):
    done = run_main(address)
    assert done.returncode == code and words in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def run_main(write_file, tmp_path):
    """`eval run --engine ray` in a process of its own, with code before it."""
    suite = write_file(PROBLEM, "tasks/level1/a.py").parent

    def run(address, before=""):
        arguments = ["--suite", str(suite), "--agent", f"dir:{tmp_path}", "--engine", "ray", "--address", address]
        code = f"{before}\nimport sys\nfrom cutesmith.commands.eval_run import main\nsys.exit(main({arguments!r}))"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, cwd=tmp_path)

    return run


def test_without_ray_the_line_that_installs_it_is_said(run_main):
    done = run_main("auto", "import sys\nsys.modules['ray'] = None")
    assert done.returncode == 2 and "pip install 'cutesmith[ray]'" in done.stderr


def test_shares_fit_their_node():
    """Ray counts in ten-thousandths; a GPU's judges, and the makers that use it, fill it and never more."""
    for cpus, gpus, judges in ((1, 0, None), (2, 0, 3), (128, 8, None), (16, 1, 3), (7, 3, 6)):
        node = Node(id="n", address="a", cpus=cpus, gpus=gpus)
        for drafts in (False, True):
            posts = posts_on(node, Staffing(judges_on_gpu=bool(gpus), drafts=drafts, judges=judges))
            assert sum(post.cpus for post in posts) <= cpus and len({post.name for post in posts}) == len(posts)
            assert sum(post.gpus for post in posts) <= gpus and {post.pool for post in posts} >= {"judge", "check"}
            assert all(post.gpus for post in posts if post.pool == "judge") == bool(gpus)
    judge = next(post for post in posts_on(node, Staffing(judges_on_gpu=True, drafts=False, judges=4)))
    assert judge.gpus == 0.25
    compilers = posts_on(Node(id="n", address="a", cpus=8, gpus=0), Staffing(judges_on_gpu=True, drafts=True))
    assert {post.pool for post in compilers} == {"check"}


def test_a_worker_hands_no_key_on(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    environment = RayWorker("one", gpu=False, threads=3)._slot._environment
    assert not {name for name in environment if name.startswith(("RAY_", "ANTHROPIC_"))}
    assert (environment["OMP_NUM_THREADS"], environment["CUDA_VISIBLE_DEVICES"]) == ("3", "")
