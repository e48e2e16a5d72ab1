"""Runs on a real Ray cluster of several nodes on this machine, without a GPU: what is lost is done again elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from cutesmith.commands import eval_run
from cutesmith.errors import UnavailableError
from cutesmith.evals.engines.jobs import CHECK, VERIFY, CheckJob, File
from cutesmith.evals.engines.local_engine import AHEAD, LocalEngine, Slots
from cutesmith.evals.engines.ray_cluster import Node, RayCluster, RayLog, Staffing, posts_on
from cutesmith.evals.engines.ray_engine import RayEngine
from cutesmith.evals.engines.ray_worker import MESSAGE_BYTES, RayWorker
from cutesmith.evals.keys import this_machine
from cutesmith.evals.settings import JudgeSettings
from tests.evals.engines.test_local_engine import children_of, job, reports
from tests.evals.running import judged_runs
from tests.evals.running.test_eval_run import PROBLEM, command

cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves its log files and child processes open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the same, when collected late
]
COMPILE = JudgeSettings(on="compile", arch="sm_90a")
SETTINGS = {
    "health_check_initial_delay_ms": 500,  # a node's death is noticed within two seconds, not twenty
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
    "worker_niceness": 0,  # by default workers give way to whatever else a busy machine has to do
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


class Nodes:
    """A head that offers nothing, a node with a core and two GPUs that are not there, and one with a core, `last`.

    The last one may die, and another may join in its place. Their processes see a key that no one may pass on.
    """

    def __init__(self, temporary):
        self._variables = {"RAY_USAGE_STATS_ENABLED": "0", "ANTHROPIC_API_KEY": "sk-secret"}
        self._variables |= {"RAY_TMPDIR": "/tmp", "TMPDIR": str(temporary)}  # paths of Ray's sockets must be short
        head = {"num_cpus": 0, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        with self._environment():
            self.cluster = cluster_utils.Cluster(
                initialize_head=True, head_node_args={**head, "_system_config": SETTINGS}
            )
            self.cluster.add_node(num_cpus=1, num_gpus=2)
        self.join()

    @contextlib.contextmanager
    def _environment(self):
        with pytest.MonkeyPatch.context() as environment:
            for name, value in self._variables.items():
                environment.setenv(name, value)
            yield

    def join(self):
        with self._environment():
            self.last = self.cluster.add_node(num_cpus=1)

    def die(self):
        self.cluster.remove_node(self.last, allow_graceful=False)

    def processes(self, name, *, on_last=False):
        """Those of the workers' processes, and of what they started, whose command line or title holds the name."""
        nodes = [self.last] if on_last else self.cluster.list_all_nodes()
        return children([node.all_processes["raylet"][0].process.pid for node in nodes], name)


@pytest.fixture(scope="module")
def nodes(temporary):
    made = Nodes(temporary)
    yield made
    made.cluster.shutdown()


def made_engine(nodes, folder, staffing=None, machine=None):
    cluster = RayCluster(nodes.cluster.address, RayLog(folder / "ray.log"))
    staffing = staffing or Staffing(judges_on_gpu=False, drafts=False)
    return RayEngine(cluster, staffing, machine or this_machine("compile"), LocalEngine(NO_SESSIONS))


class Watched:
    """An engine that is watched: no more jobs are on their way than it has workers for, and one ahead.

    Once the first result is there, `then` is called: every worker has had its job by then.
    """

    def __init__(self, engine, then):
        self._engine, self._then, self.outstanding, self.most = engine, then, 0, 0
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
        if found and self._then is not None:
            self._then()
            self._then = None
        return found


def children(parents, name):
    """Processes below these whose command line or title holds the name."""
    found, below = {}, list(parents)
    for parent in below:
        found |= (new := children_of(parent))
        below += new
    return sorted(pid for pid, line in found.items() if name in line)


def within(seconds, true):
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.1)
    return true()


def heard(engine, stage=CHECK, *, capacity, seconds=90):
    """Whether the engine comes to have so many workers of the stage, all of them idle."""
    deadline = time.monotonic() + seconds
    while (engine.capacity(stage), engine.room(stage)) != (capacity, capacity + AHEAD) and time.monotonic() < deadline:
        engine.completed(0.2)
    return (engine.capacity(stage), engine.room(stage)) == (capacity, capacity + AHEAD)


def warm(engine, count=2):
    """Every worker has its process."""
    for number in range(count):
        engine.submit(job(f"warm {number}"))
    assert not any(report.lost for report in reports(engine, count).values())


@pytest.fixture(scope="class")
def hired(nodes, tmp_path_factory):
    made = made_engine(nodes, tmp_path_factory.mktemp("engine"))
    yield made
    made.close()


@pytest.fixture
def engine(hired):
    """It, once all of its workers are idle."""
    assert heard(hired, CHECK, capacity=2) and heard(hired, VERIFY, capacity=2)
    return hired


class TestOneEngine:
    """An engine on both nodes; each test leaves as many workers as it found, or more on their way."""

    @pytest.mark.slow
    def test_a_node_that_dies_loses_nothing_and_one_that_joins_later_works_too(self, nodes, engine, tmp_path):
        """The other node's results are those of this machine alone; the lost job is among them, and nothing twice."""
        warm(engine)
        (hanging,) = nodes.processes("stage_process", on_last=True)
        os.kill(hanging, signal.SIGSTOP)
        plan = judged_runs.plan(tmp_path, 8, judged_runs.kernels(tmp_path, 8, "def ({number}\n"), COMPILE)
        lost = []
        watched = Watched(engine, then=lambda: lost.extend(self.jobs_that_die(nodes, engine)))
        try:
            tally = judged_runs.run(plan, tmp_path / "ray", engine=watched)
        finally:
            if hanging in children([1], "stage_process"):
                os.kill(hanging, signal.SIGKILL)
        assert tally.complete and not tally.open and len(lost) == 1
        assert watched.outstanding == 0 and watched.most <= watched.most_capacity + AHEAD
        assert heard(engine, capacity=1)  # Ray takes a while to be sure
        assert judged_runs.results(tmp_path / "ray") == self.results_of_this_machine(plan, tmp_path / "local")
        assert len(judged_runs.results(tmp_path / "ray")) == 8
        nodes.join()
        assert heard(engine, capacity=2)
        warm(engine)
        assert len(nodes.processes("stage_process", on_last=True)) == 1

    def jobs_that_die(self, nodes, engine):
        """Kill the last node: what its workers had in hand."""
        jobs = [worker.job for worker in engine._workers if worker.job and worker.node.id == nodes.last.node_id]
        nodes.die()
        return jobs

    def results_of_this_machine(self, plan, folder):
        local = LocalEngine(Slots(makers=1, checks=1, judges=1))
        try:
            judged_runs.run(plan, folder, engine=local)
        finally:
            local.close()
        return judged_runs.results(folder)

    @pytest.mark.slow
    def test_workers_that_are_killed_lose_their_jobs_and_others_come(self, nodes, engine):
        """Who dies while it is idle is found out with the next job: a run gives each job three tries."""
        warm(engine)
        pids, stages = nodes.processes("ray::RayWorker"), nodes.processes("stage_process")
        assert len(pids) == 4 and len(stages) == 2
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
        assert within(30, lambda: not set(stages) & set(children([1], "stage_process")))
        for number in range(3):
            engine.submit(job(f"again {number}"))
            report = reports(engine, 1)[f"again {number}"]
            if not report.lost:
                break
        assert not report.lost

    @pytest.mark.slow
    def test_a_candidate_is_confined_as_on_one_machine(self, engine):
        """It has no sockets, does not see Ray's folder, and neither Ray's variables nor keys are in its environment."""
        files = {
            "task": File(name="problem.py", data=PROBLEM.encode()),
            "kernel": File(name="k.py", data=PROBE.encode()),
        }
        engine.submit(CheckJob(id="probe", **files, settings=COMPILE, seconds=250.0))
        text = str(reports(engine, 1)["probe"].result.verdicts["compile"])
        assert "found ['PermissionError', 'PermissionError', []]" in text, text

    @pytest.mark.slow
    def test_a_job_that_is_too_large_does_not_travel(self, engine):
        files = {"task": File(name="problem.py", data=b""), "kernel": File(name="k.py", data=b"x" * MESSAGE_BYTES)}
        engine.submit(CheckJob(id="large", **files, settings=COMPILE, seconds=1.0))
        assert "travel" in reports(engine, 1)["large"].lost


@pytest.mark.slow
def test_nodes_with_other_versions_are_left_out_and_said_so(nodes, tmp_path, capsys):
    other = this_machine("compile").model_copy(update={"torch": "0.1"})
    with pytest.raises(UnavailableError, match="torch .* there, 0.1 here"):
        made_engine(nodes, tmp_path, machine=other)
    assert "is left out: torch" in capsys.readouterr().err


@pytest.mark.slow
def test_gpus_are_shared_by_their_judges_and_one_that_is_lost_gets_no_more(nodes, tmp_path):
    """Ray hands out the GPUs that a node is said to have; the judge finds out that they do not answer."""
    engine = made_engine(nodes, tmp_path, Staffing(judges_on_gpu=True, drafts=False, judges=2))
    try:
        judges = [worker for worker in engine._workers if worker.post.pool == "judge"]
        assert sorted(worker.gpu for worker in judges) == ["0", "0", "1", "1"]
        assert engine.capacity(VERIFY) == 4 and engine.capacity(CHECK) == 2
        engine.submit(job("one", VERIFY, on="gpu"))
        found = reports(engine, 1)["one"]
        assert "GPU" in found.lost and found.result and engine.capacity(VERIFY) == 2
        engine.submit(job("two", VERIFY, on="gpu"))
        assert "GPU" in reports(engine, 1)["two"].lost and engine.capacity(VERIFY) == engine.room(VERIFY) == 0
    finally:
        engine.close()


@pytest.mark.slow
def test_a_run_on_the_cluster_prints_its_result_alone_and_ctrl_c_leaves_nothing_behind(
    nodes, temporary, write_file, tmp_path
):
    write_file(PROBLEM, "tasks/level1/a.py")
    write_file(PROBLEM, "tasks/level1/b.py")
    write_file("def (\n", "theirs/a.py")
    write_file("import time\ntime.sleep(300)\ndef kernel_fn(x):\n    return x\n", "theirs/b.py")
    options = ("--suite", tmp_path / "tasks", "--agent", f"dir:{tmp_path / 'theirs'}", "--on", "compile", "--no-cache")
    line = command(*options, "--engine", "ray", "--address", nodes.cluster.address, "--out", tmp_path / "run", "--json")
    run = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = tmp_path / "run" / "results.jsonl"
        assert within(200, lambda: run.poll() is not None or (lines.is_file() and lines.stat().st_size))
        assert within(100, lambda: run.poll() is not None or any(temporary.glob("cutesmith-eval-*")))
        assert nodes.processes("ray::RayWorker")
        run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=100)
    finally:
        run.kill()
    assert run.returncode == 130, errors
    assert json.loads(output)["done"] == 1 and "level1/a" in errors
    assert len(errors.splitlines()) <= 3, errors
    for name in ("ray::RayWorker", "stage_process"):
        assert within(30, lambda name=name: not nodes.processes(name))
    assert not any(temporary.glob("cutesmith-eval-*"))


@pytest.fixture
def arguments(write_file, tmp_path):
    """Of `eval run --engine ray`, but for the address."""
    suite = write_file(PROBLEM, "tasks/level1/a.py").parent
    return ["--suite", str(suite), "--agent", f"dir:{tmp_path}", "--engine", "ray", "--address"]


@pytest.mark.parametrize(
    "address, code, words",
    [("127.0.0.1:1", 7, "nothing listens at 127.0.0.1:1"), ("nonsense", 2, "neither auto nor HOST:PORT")],
)
def test_an_address_without_a_cluster_is_one_sentence(arguments, address, code, words, capsys):
    assert eval_run.main([*arguments, address]) == code
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said


def test_without_ray_the_line_that_installs_it_is_said(arguments, tmp_path):
    code = "import sys\nsys.modules['ray'] = None\nfrom cutesmith.commands.eval_run import main\nsys.exit(main())"
    line = [sys.executable, "-c", code, *arguments, "auto"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100, cwd=tmp_path)
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
