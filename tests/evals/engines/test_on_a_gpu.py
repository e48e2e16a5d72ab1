"""Runs on a real GPU: a context that a kernel poisoned or hung dies with its worker; the next kernel is judged right.

`--judges 1`: all kernels go through one judge's process, one after the other.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.evals.running.judged_runs import results
from tests.evals.running.test_eval_run import ROOT, eval_run

SOURCE = (ROOT / "evals" / "planted_faults" / "endless_wait.py").read_text()
PROBLEM = "import torch\n" + SOURCE[SOURCE.index("def reference_fn") :]
KERNEL = SOURCE[: SOURCE.index("def kernel_fn")]
GOOD = KERNEL + "def kernel_fn(x):\n    return run(x, True)\n"
HANGS = KERNEL + "def kernel_fn(x):\n    return run(x, False)\n"
POISONS = GOOD.replace("y[tidx] = x[tidx]", "y[tidx + 1_000_000_000] = x[tidx]")
SECOND_GPU = Path("/dev/nvidia1")
HOARDER = """
import torch
memory = torch.empty(torch.cuda.mem_get_info()[0] - (1 << 28), dtype=torch.uint8, device="cuda")
print("taken", flush=True)
input()
"""
WRONG = GOOD.replace("y[tidx] = x[tidx]", "y[tidx] = x[tidx] + 1.0")

KERNELS = {"1": GOOD, "2": POISONS, "3": GOOD, "4": HANGS, "5": GOOD, "6": WRONG, "7": GOOD}


def write(root: Path, kernels: Mapping[str, str]) -> tuple[Path, str]:
    """A suite of one function under several names, and a folder of kernels, no two of them the same."""
    for folder in ("tasks", "made"):
        (root / folder).mkdir()
    for name, kernel in kernels.items():
        (root / "tasks" / f"{name}.py").write_text(PROBLEM)
        (root / "made" / f"{name}.py").write_text(f"{kernel}# {name}\n")
    return root / "tasks", f"dir:{root / 'made'}"


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_a_poisoned_and_a_hung_context_end_with_their_worker(tmp_path):
    suite, agent = write(tmp_path, KERNELS)
    options = ("--suite", suite, "--agent", agent, "--on", "gpu", "--gpus", "1", "--judges", 1, "--quick", "--no-cache")
    done = eval_run(*options, "--timeout", 15, "--out", tmp_path / "run", timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {task: line for (task, _), line in results(tmp_path / "run").items()}
    assert {name: line["correct"] for name, line in found.items()} == {n: k is GOOD for n, k in KERNELS.items()}
    assert found["4"]["status"] == "timed_out" and found["6"]["status"] == "wrong_result"
    assert found["2"]["status"] in ("crashed", "rejected", "wrong_result")
    assert all(found[name]["timings"]["kernel"]["median_us"] > 0 for name in "1357")
    assert len({line["worker"] for line in found.values()}) == 1


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_several_judges_share_a_gpu_and_timings_never_overlap(tmp_path):
    suite, agent = write(tmp_path, {str(number): GOOD for number in range(8)})
    done = eval_run("--suite", suite, "--agent", agent, "--quick", "--no-cache", "--out", tmp_path / "run", "--json")
    verdict = json.loads(done.stdout)
    assert verdict["solved"] == 8 and 0 < verdict["gpu"]["timing"] < verdict["gpu"]["busy"] <= 1
    by_gpu = defaultdict(list)
    for line in (tmp_path / "run" / "gpu_holds.jsonl").read_text().splitlines():
        hold = json.loads(line)
        by_gpu[hold["gpu"]].append(hold)
    assert sum(hold["exclusive"] for holds in by_gpu.values() for hold in holds) == 8
    for holds in by_gpu.values():
        timings = sorted((hold["begin"], hold["end"]) for hold in holds if hold["exclusive"])
        assert all(earlier[1] <= later[0] for earlier, later in zip(timings, timings[1:]))
        others = [(hold["begin"], hold["end"]) for hold in holds if not hold["exclusive"]]
        assert all(end <= begin or begin2 >= stop for begin, stop in timings for begin2, end in others)
    assert verdict["judging_s"]["median"] > 0


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0 or not SECOND_GPU.exists(), reason="needs two GPUs, and root to take one away")
def test_a_gpu_that_goes_away_is_named_and_the_other_judges_the_rest(tmp_path):
    """Its device file is covered for this run alone, in a mount namespace: no new process can open it."""
    suite, agent = write(tmp_path, {str(number): GOOD for number in range(16)})
    out = tmp_path / "run"
    command = [sys.executable, "-m", "cutesmith", "eval", "run", "--suite", suite, "--agent", agent, "--out", out]
    command += ["--quick", "--no-cache", "--judges", "2", "--jobs", "8", "--json"]
    script = f"""{shlex.join(map(str, command))} &
while [ ! -s {shlex.quote(str(out / "results.jsonl"))} ]; do kill -0 $! || exit 1; sleep 0.2; done
mount --bind /dev/null {SECOND_GPU}
wait $!"""
    unshared = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    done = subprocess.run(unshared, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    failed = [f"{line['status']}: {line['summary']}" for line in results(out).values() if not line["correct"]]
    assert not failed and verdict["solved"] == 16, failed
    assert len(verdict["lost_gpus"]) == 1, verdict
    lost, why = next(iter(verdict["lost_gpus"].items()))
    assert "does not answer" in why or "lists no GPU" in why
    assert f"lost: {lost}: " in done.stderr


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_memory_that_a_stranger_holds_is_no_fault_of_the_kernel(tmp_path):
    suite, agent = write(tmp_path, {"1": GOOD})
    options = ("--suite", suite, "--agent", agent, "--gpus", "1", "--judges", 1, "--quick", "--no-cache")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOARDER], **pipes) as hoarder:
        assert hoarder.stdout.readline() == b"taken\n"
        crowded = eval_run(*options, "--out", tmp_path / "run")
        hoarder.kill()
    assert not results(tmp_path / "run") and "open: 1#0: others use this GPU: " in crowded.stderr, crowded.stderr
    eval_run("--resume", "--out", tmp_path / "run")
    assert all(line["correct"] for line in results(tmp_path / "run").values()) and results(tmp_path / "run")
