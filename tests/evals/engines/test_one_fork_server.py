"""All slots of an engine have their workers forked from one fork server: the libraries are imported once for a run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cutesmith.evals.engines.jobs import CHECK, Job
from cutesmith.evals.engines.local_engine import LocalEngine, Slots
from cutesmith.evals.engines.stages import carried
from cutesmith.evals.settings import JudgeSettings
from cutesmith.sandbox import shared_fork_server

KERNEL = (Path(__file__).resolve().parents[2] / "kernels" / "relu_tvm_ffi.py").read_bytes()
PROBLEM = KERNEL[KERNEL.index(b"def reference_fn") :].replace(
    b"def reference_fn", b"import torch\n\n\ndef reference_fn", 1
)


def check(name):
    files = {"task": carried("problem.py", PROBLEM), "kernel": carried("kernel.py", KERNEL)}
    return Job(
        id=name, stage=CHECK, payload={**files, "settings": JudgeSettings(on="compile").to_dict()}, seconds=300.0
    )


def children_of(parent):
    """Pids and command lines."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if f"PPid:\t{parent}\n" in status.read_text():
                found[int(status.parent.name)] = (status.parent / "cmdline").read_bytes().decode()
        except OSError:  # it ended meanwhile
            continue
    return found


@pytest.mark.slow
def test_slots_fork_their_workers_from_the_fork_server_of_this_process():
    shared_fork_server.SHARED.close()  # one that other tests lent, with another environment, cannot be replaced
    engine = LocalEngine(Slots(makers=1, checks=2, judges=1))
    slots, reports, forked = engine._pools["check"]._slots, [], set()
    try:
        for name in ("one", "two"):
            engine.submit(check(name))
        deadline = time.monotonic() + 200
        while len(reports) < 2 and time.monotonic() < deadline:
            reports += engine.completed(0.02)
            fork_server = shared_fork_server.SHARED.fork_server
            forked |= set(children_of(fork_server.pid)) if fork_server is not None else set()
        stages = [slot._process.pid for slot in slots if slot._process is not None]
        assert [report.result["verdicts"]["compile"]["status"] for report in reports] == ["compiled", "compiled"]
        assert len(stages) == 2 and len(forked) >= 2
        assert not [line for pid in stages for line in children_of(pid).values() if "fork_server_process" in line]
    finally:
        engine.close()
