"""The generator: one real run without a GPU, what it refuses, and what it tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cutesmith.checkpoints import CheckpointStore
from cutesmith.devices import current_device
from cutesmith.errors import ContractError, UnavailableError, UsageError
from cutesmith.patterns.generation.generate import generate_kernel
from cutesmith.problems.contract import inspect
from cutesmith.report.generate_page import render_report
from cutesmith.verdicts import (
    ExitCode,
    GenerateVerdict,
)

SOFTMAX = '''\
"""Softmax of small rows."""

import torch


def reference_fn(x):
    return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)]
'''


@dataclass
class Generated:
    verdict: GenerateVerdict
    out: Path
    steps: list[tuple[str, int, int]] = field(default_factory=list)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    """One real run that compiles only, into a folder that held a kernel already."""
    folder = tmp_path_factory.mktemp("generate")
    problem, out, steps = folder / "softmax.py", folder / "out", list[tuple[str, int, int]]()
    problem.write_text(SOFTMAX)
    out.mkdir()
    (out / "kernel.py").write_text("# mine\n")
    verdict = generate_kernel(
        problem,
        arch="sm_90a",
        out=out,
        on="compile",
        configurations_limit=2,
        progress=lambda stage, done, total, message="": steps.append((stage, done, total)),
        render=render_report,
    )
    return Generated(verdict, out, steps)


def test_without_a_gpu_it_compiles_and_says_that_nothing_was_executed(generated: Generated) -> None:
    verdict = generated.verdict
    assert (verdict.exit_code, verdict.status, verdict.pattern) == (ExitCode.PASSED, "compiled", "rows")
    assert "nothing was executed" in verdict.summary
    assert [candidate["chosen"] for candidate in verdict.tried].count(True) == 1
    assert [stage["stage"] for stage in verdict.stages] == ["lint", "compile", "verify"]


@pytest.mark.slow
def test_what_the_emulated_gpu_cannot_decide_is_told_with_its_reason(tmp_path):
    problem = tmp_path / "problem.py"
    problem.write_text(
        "import torch\ndef reference_fn(x): return x.softmax(-1)\n"
        "def get_inputs(shape=(64, 16384)): return [torch.randn(shape, device='cuda')]\n"
        "EMULATED_SIZES = {'shape': (64, 32)}\n"
    )
    verdict = generate_kernel(problem, arch="sm_90a", out=tmp_path / "out", configurations_limit=1)
    assert (verdict.exit_code, verdict.status) == (ExitCode.PASSED, "compiled"), verdict.summary
    assert "the emulated GPU decided nothing: kernel_01.py: not verified: at full size" in verdict.summary
    assert "is verified" not in verdict.summary


def test_the_folder_holds_kernel_report_and_strict_json(generated: Generated) -> None:
    out = generated.out
    kernel = (out / "kernel.py").read_text()
    assert kernel.endswith(SOFTMAX) and inspect(out / "kernel.py").kind == "kernel"
    chosen = next(candidate for candidate in generated.verdict.tried if candidate["chosen"])
    assert Path(chosen["path"]).read_text() == kernel
    result = json.loads((out / "result.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert result["status"] == "compiled" and result["environment"]["architecture"] == "sm_90a"
    assert "not executed" in (out / "report.html").read_text()
    assert not list(out.rglob("*.tmp"))


def test_every_stage_that_held_left_a_checkpoint_and_the_old_kernel_is_kept(generated: Generated) -> None:
    store = CheckpointStore(generated.out / "kernel.py")
    points = store.checkpoints()
    assert [point.note for point in points] == ["before generate", "lint", "compile", "verify"]
    assert store.read(points[0]) == b"# mine\n"


def test_every_candidate_says_how_it_is_cut_up(generated: Generated) -> None:
    first = generated.verdict.tried[0]
    assert first["tiling"]["threads"] == first["compile"]["archs"][0]["kernels"][0]["block"][0]
    assert first["tiling"]["settings"] == first["configuration"] and first["timed_on"] == ""


def test_progress_tells_every_stage_to_its_end(generated: Generated) -> None:
    last = {stage: (done, total) for stage, done, total in generated.steps}
    assert last == {"draft": (1, 1), "lint": (2, 2), "compile": (1, 1), "verify": (1, 1)}


COUNTED = SOFTMAX.replace("torch.softmax(x, dim=-1)", "torch.histc(torch.relu(x))")


def test_an_unmatched_function_names_its_operation_and_needs_a_model(write_file: Callable[..., Path]) -> None:
    problem = write_file(COUNTED, "sorted.py")
    verdict = generate_kernel(problem, on="compile", out=problem.parent / "out")
    assert verdict.exit_code == ExitCode.USAGE and "histc" in verdict.unmatched
    assert "model" in verdict.summary and verdict.kernel == ""
    assert not (problem.parent / "out" / "kernel.py").exists()


def test_a_reference_that_raises_is_named_with_its_line(write_file: Callable[..., Path]) -> None:
    problem = write_file(SOFTMAX.replace("torch.softmax(x, dim=-1)", "[][x.dim()]"), "raises.py")
    verdict = generate_kernel(problem, on="compile", out=problem.parent / "out")
    assert verdict.exit_code == ExitCode.USAGE and "IndexError" in verdict.summary and "7" in verdict.summary


def test_a_problem_that_cannot_be_run_is_a_broken_contract(write_file: Callable[..., Path]) -> None:
    problem = write_file(SOFTMAX + "\n\nraise KeyError('no')\n", "raises.py")
    with pytest.raises(ContractError, match="KeyError"):
        generate_kernel(problem, on="compile", out=problem.parent / "out")


def test_a_kernel_file_is_no_problem(write_file: Callable[..., Path]) -> None:
    kernel = write_file(SOFTMAX + "\n\ndef kernel_fn(x):\n    return x\n")
    with pytest.raises(ContractError, match="already defines kernel_fn"):
        generate_kernel(kernel, on="compile")


def test_an_unknown_architecture_and_place_are_usage_errors(write_file: Callable[..., Path]) -> None:
    problem = write_file(SOFTMAX, "softmax.py")
    with pytest.raises(UsageError, match="sm_42"):
        generate_kernel(problem, arch="sm_42")
    with pytest.raises(UsageError, match="nowhere"):
        generate_kernel(problem, on="nowhere")


@pytest.mark.skipif(current_device() is not None, reason="is about a machine without a GPU")
def test_a_gpu_asked_for_in_vain_is_unavailable(write_file: Callable[..., Path]) -> None:
    with pytest.raises(UnavailableError, match="no GPU"):
        generate_kernel(write_file(SOFTMAX, "softmax.py"), on="gpu")


LOOP = """\
import torch

def reference_fn(x):
    p = torch.exp(x)
    for _ in range(ROUNDS):
        p = p / p.sum(1, keepdim=True)
        p = p / p.sum(0, keepdim=True)
    return p

def get_inputs():
    return [torch.randn(256, 512, device="cuda")]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "repeated"), [(2, 0), (7, 7)])
def test_a_python_loop_that_became_launches_is_told_before_anything_is_verified(tmp_path: Path, rounds, repeated):
    (tmp_path / "problem.py").write_text(LOOP.replace("ROUNDS", str(rounds)))
    said = list[str]()
    verdict = generate_kernel(
        tmp_path / "problem.py",
        out=tmp_path / "out",
        on="compile",
        configurations_limit=1,
        progress=lambda stage, done, total, message="": said.append(f"{stage}: {message}"),
    )
    assert verdict.passed, verdict.summary
    (drafted,) = [text for text in said if "launches a call that move" in text]
    assert f"; {2 * rounds} launches a call that move 0.0" in drafted
    unrolled = f"one kernel is launched {repeated} times a call, for the steps of a Python loop or for equal layers"
    assert (f"launches: {unrolled}" in said) == (unrolled in verdict.summary) == bool(repeated)
