"""A kernel file that brings its own problem is not trusted either: there too it may do what a kernel may."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from own_problem_handlers import CallKernel, one_process, posing_baselines

from cutesmith.commands.verify import table
from cutesmith.errors import CandidateError
from cutesmith.judge.entries import confined_reference
from cutesmith.judge.problem_process import ASKED, OWN, ProblemProcess, reference_call
from cutesmith.judge.reference_side.requests import Draw, Load
from cutesmith.judge.reference_side.requests import Judge as JudgeOutputs
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.transfer.requests import Start
from cutesmith.judge.verification import Judge, verify_kernel
from cutesmith.problems import contract
from cutesmith.sandbox.confinement import landlock_abi
from cutesmith.sandbox.readable import INPUTS
from cutesmith.sandbox.worker import Limits, Worker
from cutesmith.timing.requests import Prepare
from cutesmith.verdicts import ExitCode

ROOT = Path(__file__).parents[2]
HERE = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "handlers")])
LAYERS = {"no_new_privileges", "landlock", "reads", "seccomp"}
PROBLEM = """
import os
import time
import torch

def reference_fn(x):
    return torch.relu(x)

def get_inputs():
    assert os and time  # what the problem needs is run on its side, and nothing else
    return [torch.randn(33, 20)]
"""
KERNEL = """
import torch

def kernel_fn(x):
    y = torch.empty_like(x)
    y.numpy()[...] = x.numpy().clip(min=0)
    return y
"""
SPAWN = 'os.posix_spawn("/usr/bin/touch", ["touch", "{outside}/written"], {{}})'
FORKS = "[os.fork() or time.sleep(30) for _ in range(20)]"
READ, WRITE = 'open("{outside}/secret.txt").read()', 'open("{outside}/written", "w").write("x")'
REMOVE = 'os.unlink("{outside}/secret.txt")'
ATTACKS = {
    "write": (WRITE, "H5", "Permission denied"),
    "read": (READ, "R5", "Permission denied"),
    "remove": (REMOVE, "R5", "Permission denied"),  # it may not even look there
    "fork": (FORKS, "", "Operation not permitted"),
    "spawn": (SPAWN, "", "Operation not permitted"),
    "memory": ("bytearray(1 << 42)", "", "MemoryError"),
    "tensor": ("torch.empty(1 << 42, dtype=torch.uint8)", "", "can't allocate memory"),
    "exit": ("raise SystemExit(0)", "", "SystemExit: 0"),
}
PLACES = {
    "when the file is run": "def reference_fn",
    "where inputs are drawn": "    return [torch.randn(33, 20)]",
    "in the reference": "    return torch.relu(x)",
}
needs_landlock = pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")


@pytest.fixture
def outside(tmp_path):
    """A folder of somebody's, with a secret in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("key")
    return folder


def attacking(tmp_path, attack, place):
    """A kernel file whose problem attacks in that place, and the line on which it does."""
    indent = place[: len(place) - len(place.lstrip())]
    line = f"{indent}{attack.format(outside=tmp_path / 'outside')}\n"
    before, _, after = PROBLEM.partition(place)
    path = tmp_path / "kernel.py"
    path.write_text(f"{before}{line}{place}{after}{KERNEL}")
    return path, before.count("\n") + 1


def untouched(folder):
    return [path.name for path in folder.iterdir()] == ["secret.txt"] and (folder / "secret.txt").read_text() == "key"


@pytest.mark.sampled(5)
@needs_landlock
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_kernel_may_not_do_its_own_problem_may_not_do_either(tmp_path, outside, name, place):
    attack, rule, words = ATTACKS[name]
    path, line = attacking(tmp_path, attack, PLACES[place])
    judge = Judge(path=path, problem=path, options=VerifyOptions(timeout=60))
    verdict = judge.verdict("cpu")
    assert (verdict.exit_code, verdict.rule) == (ExitCode.CRASHED, rule), verdict.summary
    assert words in verdict.summary and f"kernel.py:{line}: " in verdict.summary
    assert OWN.way_out in verdict.summary, "what to do instead"
    assert untouched(outside)
    assert not any(worker.scratch.exists() for worker in judge.processes.workers.values())


@pytest.mark.parametrize("place", ["when the file is run", "where inputs are drawn"])
def test_a_problem_that_never_returns_is_ended(tmp_path, outside, place):
    path, _ = attacking(tmp_path, "time.sleep(1000)", PLACES[place])
    verdict = verify_kernel(path, VerifyOptions(timeout=1.5), on="cpu")
    assert verdict.exit_code == ExitCode.TIMED_OUT
    assert "the file did not finish loading within 1.5 s (it slept or waited" in verdict.summary
    assert "look for a loop" in verdict.summary


def process_of(tmp_path, attack, place, **limits):
    """The process of an own problem that attacks, with limits that are met soon, and its request to load."""
    path, _ = attacking(tmp_path, attack, PLACES[place])
    for name in ("candidate", INPUTS):
        (tmp_path / name).mkdir()
    process = ProblemProcess(confined_reference, why=OWN, limits=Limits(**limits), scratch=tmp_path / "reference")
    return process, Load("cpu", str(path), 1)


@pytest.mark.slow
def test_memory_that_is_filled_bit_by_bit_ends_the_process(tmp_path, outside):
    fill = "held = [bytearray(b'x') * (1 << 24) for _ in range(256)]"
    process, load = process_of(tmp_path, fill, "where inputs are drawn", memory_bytes=2 << 30)
    with process, pytest.raises(CandidateError, match=r"own file used more than 2.0 GiB of host memory") as raised:
        reference_call(process, load)
    assert raised.value.exit_code == ExitCode.CRASHED and OWN.way_out in raised.value.hint


def test_a_reference_that_never_returns_is_ended_by_the_clock_of_its_call(tmp_path, outside):
    process, load = process_of(tmp_path, "time.sleep(1000)", "in the reference", call_seconds=3)
    with process:
        reference_call(process, load)
        drawn = Draw(key="a", seed=1, folder=str(tmp_path / INPUTS / "a"))
        assert reference_call(process, drawn).accepted
        with pytest.raises(CandidateError, match="own file did not finish within 3 s") as raised:
            reference_call(process, JudgeOutputs("a", (), False))
    assert raised.value.exit_code == ExitCode.TIMED_OUT


def test_the_verdict_says_whose_problem_it_is_and_how_it_was_confined(tmp_path):
    path, problem = tmp_path / "kernel.py", tmp_path / "problem.py"
    path.write_text(PROBLEM + KERNEL)
    problem.write_text(PROBLEM)
    own = verify_kernel(path, VerifyOptions(seeds=1), on="cpu")
    assert own.passed and own.own_problem and set(own.problem_confinement) == LAYERS
    assert own.summary.endswith(" cases, by the file's own reference")
    path.write_text(KERNEL)
    separate = verify_kernel(path, VerifyOptions(seeds=1), problem=problem, on="cpu")
    assert separate.passed and not separate.own_problem and separate.problem_confinement == {}
    assert separate.summary.endswith(" cases")
    free = replace(own, problem_confinement=dict.fromkeys(LAYERS, False))
    assert any("could not confine its own problem by" in line for line in table(free))
    assert json.loads(own.to_json())["own_problem"] is True


def test_a_problem_of_its_own_keeps_its_freedom(tmp_path, outside):
    """It is the user's, who may keep data beside it, notes of what was drawn, and programs that make it."""
    places = [READ, WRITE, 'assert os.system("exit 0") == 0']
    lines = "".join(f"    {place.format(outside=outside)}\n" for place in places)
    (tmp_path / "problem.py").write_text(PROBLEM.replace("def get_inputs():\n", f"def get_inputs():\n{lines}"))
    (tmp_path / "kernel.py").write_text(KERNEL)
    verdict = verify_kernel(tmp_path / "kernel.py", VerifyOptions(seeds=1), problem=tmp_path / "problem.py", on="cpu")
    assert verdict.passed, verdict.summary
    assert (outside / "written").read_text() == "x"


@needs_landlock
@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_another_name_for_the_kernels_file_makes_it_no_trusted_problem(tmp_path, outside, link):
    path, _ = attacking(tmp_path, WRITE, PLACES["where inputs are drawn"])
    problem = tmp_path / "outside" / ".." / "kernel.py"
    if link is not None:
        problem = tmp_path / "problem.py"
        link(path, problem)
    assert contract.problem_of(path, problem) == path
    verdict = verify_kernel(path, problem=problem, on="cpu")
    assert (verdict.exit_code, verdict.rule) == (ExitCode.CRASHED, "H5") and untouched(outside)


def test_which_file_is_the_problem(tmp_path):
    kernel, problem = tmp_path / "kernel.py", tmp_path / "problem.py"
    assert contract.problem_of(kernel, None) == kernel
    assert contract.problem_of(kernel, problem) == problem, "missing files are said to be where they are read"
    kernel.write_text("x")
    problem.write_text("x")
    assert contract.problem_of(kernel, problem) == problem, "the same text in two files is two files"


@pytest.mark.parametrize("place", ["where inputs are drawn", "in the reference"])
def test_a_problem_cannot_raise_its_way_to_a_pass(tmp_path, outside, place):
    passing = "from cutesmith.errors import ContractError as E; E.exit_code = 0; raise E('verified')"
    path, _ = attacking(tmp_path, passing, PLACES[place])
    verdict = verify_kernel(path, on="cpu")
    assert verdict.exit_code == ExitCode.CRASHED and not verdict.passed


def test_a_broken_problem_is_still_a_broken_contract(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(PROBLEM.replace("torch.relu(x)", "x.no_such_method()") + KERNEL)
    verdict = verify_kernel(path, on="cpu")
    assert verdict.exit_code == ExitCode.USAGE
    assert "reference_fn raised AttributeError" in verdict.summary and "confined" not in verdict.summary


def in_one_process(path, problem, *, confined=False):
    environment = {"PYTHONPATH": HERE}
    with Worker(one_process, limits=Limits(call_seconds=60), environment=environment) as worker:
        return worker.call(CallKernel(path, problem, confined))


@needs_landlock
def test_a_problem_of_its_own_can_be_confined_too(tmp_path, outside):
    _, line = attacking(tmp_path, WRITE, PLACES["where inputs are drawn"])
    kernel, problem = tmp_path / "kernel.py", tmp_path / "problem.py"
    problem.write_text(kernel.read_text().partition("\nimport torch\n\ndef kernel_fn")[0])
    kernel.write_text(KERNEL)
    verdict = verify_kernel(kernel, VerifyOptions(confine_problem=True), problem=problem, on="cpu")
    assert (verdict.exit_code, verdict.rule) == (ExitCode.CRASHED, "H5") and untouched(outside)
    assert ASKED.way_out in verdict.summary and f"problem.py:{line}: " in verdict.summary
    problem.write_text(PROBLEM)
    verdict = verify_kernel(kernel, VerifyOptions(seeds=1, confine_problem=True), problem=problem, on="cpu")
    assert verdict.passed and not verdict.own_problem and set(verdict.problem_confinement) == LAYERS


@pytest.mark.slow
@needs_landlock
def test_an_own_problem_can_be_compiled_by_torch(tmp_path):
    """Dynamo reads the file of what it compiles; the confinement came before."""
    path = tmp_path / "kernel.py"
    renamed = PROBLEM.replace("def reference_fn(", "def plain(")
    assert renamed != PROBLEM
    path.write_text(f"{KERNEL}\n{renamed}\nreference_fn = torch.compile(plain, backend='eager')\n")
    verdict = verify_kernel(path, VerifyOptions(seeds=1), on="cpu")
    assert verdict.passed, verdict.summary
    assert verdict.own_problem and set(verdict.problem_confinement) == LAYERS


@needs_landlock
def test_sanitizers_and_profilers_draw_inputs_of_an_own_problem_confined(tmp_path, outside):
    path, line = attacking(tmp_path, WRITE, PLACES["where inputs are drawn"])
    with pytest.raises(CandidateError, match="Permission denied"):
        in_one_process(path, path)
    assert untouched(outside)
    (tmp_path / "problem.py").write_text(path.read_text().partition("def kernel_fn")[0])
    with pytest.raises(CandidateError, match="Permission denied"):
        in_one_process(path, tmp_path / "problem.py", confined=True)
    assert untouched(outside)
    assert in_one_process(path, tmp_path / "problem.py") > 0
    assert (outside / "written").exists()


@needs_landlock
def test_the_baselines_of_an_own_problem_are_confined(tmp_path, outside):
    path, line = attacking(tmp_path, WRITE, PLACES["in the reference"])
    path.write_text(path.read_text().replace("torch.randn(33, 20)", 'torch.randn(33, 20, device="cuda")'))
    for name in ("candidate", INPUTS):
        (tmp_path / name).mkdir()
    limits, where = Limits(call_seconds=60), {"scratch": tmp_path / "reference", "environment": {"PYTHONPATH": HERE}}
    with ProblemProcess(posing_baselines, why=OWN, limits=limits, **where) as process:
        reference_call(process, Start("cuda"))
        load = Load("cuda", str(path), 1)
        assert set(reference_call(process, load).confinement) == LAYERS
        with pytest.raises(CandidateError, match=rf"kernel.py:{line}: PermissionError") as raised:
            reference_call(process, Prepare((1, 2), str(tmp_path / INPUTS)))
    assert (raised.value.exit_code, raised.value.rule) == (ExitCode.CRASHED, "H5") and untouched(outside)


def test_a_trusted_process_that_fails_breaks_the_contract(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM + "\nraise SystemExit(3)\n")
    (tmp_path / "kernel.py").write_text(KERNEL)
    verdict = verify_kernel(tmp_path / "kernel.py", problem=tmp_path / "problem.py", on="cpu")
    assert verdict.exit_code == ExitCode.USAGE and "the problem cannot be used" in verdict.summary
