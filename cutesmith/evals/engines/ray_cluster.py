"""The connection to a Ray cluster that runs already: its nodes, the posts on them, actors.

Ray is imported here alone, and only when it is asked for; its own words stay off the screen.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutesmith.devices import Device
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.evals.engines.local_engine import Slots, usual_slots
from cutesmith.evals.engines.ray_worker import DEVICE, RayWorker, device_of_node
from cutesmith.evals.engines.slot import GRACE_SECONDS

SHARES = 10_000  # Ray counts resources in ten-thousandths


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of the cluster: Ray's id, its address, the cores and GPUs that it offers."""

    id: str
    address: str
    cpus: int
    gpus: int


@dataclass(frozen=True, kw_only=True)
class Staffing:
    """How nodes are staffed. `judges_on_gpu`: kernels are judged on GPUs. `drafts`: the offline generator is asked.

    `jobs`: kernels at a time on each node (None: 3/4 of its cores). `judges`: for each GPU, or node without (None:
    by the cores). `gpus`: of the whole cluster (None: all).
    """

    judges_on_gpu: bool
    drafts: bool
    jobs: int | None = None
    judges: int | None = None
    gpus: int | None = None


@dataclass(frozen=True, kw_only=True)
class Post:
    """One worker's place on a node: its pool, its shares of a core and of a GPU, its OpenMP threads."""

    name: str
    pool: str
    cpus: float
    gpus: float
    threads: int


def slots_on(node: Node, staffing: Staffing) -> Slots:
    """How many of each: a node without a GPU compiles where kernels are judged on GPUs, since a draft is run there."""
    jobs = staffing.jobs or max(1, node.cpus * 3 // 4)
    if staffing.judges_on_gpu and not node.gpus:
        return Slots(makers=0, checks=jobs, judges=0)
    gpus = tuple(str(number) for number in range(node.gpus)) if staffing.judges_on_gpu else ()
    slots = usual_slots(gpus, jobs)
    slots = replace(slots, judges=staffing.judges) if staffing.judges else slots
    return slots if staffing.drafts else replace(slots, makers=0)


def posts_on(node: Node, staffing: Staffing) -> list[Post]:
    """A node's workers. A GPU's judges have equal shares of it (its lock lets one time), as has a maker on it."""
    slots = slots_on(node, staffing)
    gpus = len(slots.gpus)
    judges = slots.judges * max(1, gpus)
    cpus = _share(node.cpus, slots.makers + slots.checks + judges)
    share = _share(1, slots.judges + -(-slots.makers // gpus)) if gpus else 0.0
    threads = max(1, node.cpus // max(1, slots.makers + slots.checks + judges))
    return [
        Post(name=f"{pool}{number}", pool=pool, cpus=cpus, gpus=0.0 if pool == "check" else share, threads=threads)
        for pool, count in (("judge", judges), ("make", slots.makers), ("check", slots.checks))
        for number in range(count)
    ]


def _share(whole: int, count: int) -> float:
    """An equal share of at most one, rounded down so that all of them fit."""
    return min(1.0, whole * SHARES // max(1, count) / SHARES)


INSTALL = "pip install 'cutesmith[ray]'"
CONNECT_SECONDS = 30.0
DEVICE_SECONDS = 120.0
PART_SECONDS = GRACE_SECONDS + 2.0
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
NO_CLUSTER = "Start one with `ray start --head`, and `ray start --address=HEAD:6379` on each further node."


class RayLog(io.TextIOBase):
    """Ray prints about nodes and workers to stdout, which belongs to the result: here it goes to a file of the run."""

    def __init__(self, path: Path | None = None) -> None:
        self.path, self._early = path, ""

    def write(self, text: str) -> int:
        """Append; before the run's folder is there, keep it in memory."""
        self._early = (self._early + text)[-100_000:]
        if self.path is not None and self.path.parent.is_dir():
            early, self._early = self._early, ""
            with self.path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(early)
        return len(text)


class RayCluster:
    """A driver's connection. Everything that it started on the cluster ends with it, also when it is killed."""

    def __init__(self, address: str, log: RayLog) -> None:
        """Connect; raises UsageError (ray is missing, `address` is not an address), UnavailableError (no cluster)."""
        self.log = log
        self.ray = _import_ray()
        self._stdout = contextlib.ExitStack()
        _require_cluster(address)
        self._stdout.enter_context(contextlib.redirect_stdout(log))
        try:
            self._connect(address)
        except BaseException:
            self.close()
            raise

    def _connect(self, address: str) -> None:
        handler = signal.getsignal(signal.SIGTERM)
        try:
            self.ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except Exception as error:  # RuntimeError, ConnectionError, ValueError, by what is wrong
            raise UnavailableError(
                f"the Ray cluster at {address} does not take this process: {_first_line(error)}",
                hint="Run the command on a node of the cluster, with its versions of Python and Ray.",
            ) from error
        finally:
            if handler is not None:
                signal.signal(signal.SIGTERM, handler)  # Ray sets its own

    def nodes(self) -> list[Node]:
        """Those that are alive and offer a core."""
        found = []
        for about in self.ray.nodes():
            cpus, gpus = (int(about["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
            if about["Alive"] and cpus:
                found.append(Node(id=about["NodeID"], address=about["NodeManagerAddress"], cpus=cpus, gpus=gpus))
        return found

    def device(self) -> Device | None:
        """The GPU of the first node that offers one; None when none does. Raises UnavailableError."""
        for node in self.nodes():
            if not node.gpus:
                continue
            options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": self._only_on(node)}
            asked = self.ray.remote(device_of_node).options(**options).remote()
            try:
                found = self.ray.get(asked, timeout=DEVICE_SECONDS)
            except self.ray.exceptions.RayError as error:
                raise UnavailableError(f"node {node.address} cannot be asked for its GPU: {reason(error)}") from error
            if (device := DEVICE.validate_json(found)) is None:
                raise UnavailableError(f"node {node.address} offers GPUs to Ray, and nvidia-smi lists none there")
            return device
        return None

    def hire(self, node: Node, post: Post) -> Any:
        """The actor of a post, on its way."""
        options = {"num_cpus": post.cpus, "num_gpus": post.gpus, "max_restarts": 0, "max_task_retries": 0}
        options["max_concurrency"] = 2  # a job, and the word to end it
        actor = self.ray.remote(RayWorker).options(**options, scheduling_strategy=self._only_on(node))
        return actor.remote(f"{node.address} {post.name}", bool(post.gpus), post.threads)

    def _only_on(self, node: Node) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node.id, soft=False)

    def part(self, actors: Sequence[Any]) -> None:
        """End actors that may be at work; Ray would kill their processes, and their folders would stay."""
        calls = [actor.end.remote() for actor in actors]
        if calls:
            self.ray.wait(calls, num_returns=len(calls), timeout=PART_SECONDS)
        for actor in actors:
            self.dismiss(actor)

    def dismiss(self, actor: Any) -> None:
        """Kill an actor, and with it the process of its slot."""
        with contextlib.suppress(self.ray.exceptions.RayError):  # it is dead already
            self.ray.kill(actor, no_restart=True)

    def answered(self, calls: Sequence[Any], seconds: float) -> list[Any]:
        """The calls that are done; waits up to so many seconds for the first."""
        if not calls:
            return []
        first, _ = self.ray.wait(calls, num_returns=1, timeout=seconds)
        return self.ray.wait(calls, num_returns=len(calls), timeout=0)[0] if first else []

    def close(self) -> None:
        """Leave the cluster, which goes on; the second time nothing."""
        self.ray.shutdown()
        self._stdout.close()


def reason(error: BaseException) -> str:
    """What Ray says of a failure, in one line."""
    text = str(error)
    if "No module named 'cutesmith" in text:
        return f"cutesmith is not installed there ({INSTALL})"
    detail = text.rpartition("Worker exit detail:")[2].strip()
    return _first_line(detail or type(error).__name__)


def _first_line(text: object) -> str:
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return (lines or [type(text).__name__])[0][:300]


def _import_ray() -> Any:
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    try:
        import ray
        import ray.exceptions
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise UsageError("--engine ray needs the package ray", hint=INSTALL) from error
    return ray


def _require_cluster(address: str) -> None:
    """Ask in a process of its own: without a cluster `ray.init` waits for minutes, with messages of its own."""
    if address != "auto" and (address.count(":") != 1 or not address.rpartition(":")[2].isdecimal()):
        raise UsageError(f"--address {address}: neither auto nor HOST:PORT", hint="HOST:6379, as `ray start` says it.")
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    if address != "auto":
        host, port = address.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError):
            raise UnavailableError(f"nothing listens at {address}", hint=NO_CLUSTER) from None
        command += ["--address", address]
    try:
        subprocess.run(command, capture_output=True, timeout=CONNECT_SECONDS, stdin=subprocess.DEVNULL, check=True)
    except subprocess.SubprocessError:
        raise UnavailableError(f"no Ray cluster answers at {address}", hint=NO_CLUSTER) from None
