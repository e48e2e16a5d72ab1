"""Library functions compute their tasks: on the CPU, on the emulated GPU, or as far as shapes and signatures tell."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cutesmith import resources
from cutesmith.emulator.device import emulated_device
from cutesmith.evals.suites.libraries import read_library
from cutesmith.judge.reference_side.comparison import Comparison, compare
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.reference_side.problem_calls import native_outputs
from cutesmith.judge.reference_side.structure import structure_violation
from cutesmith.judge.reference_side.tolerance import tolerance_for
from cutesmith.judge.transfer import tensors
from cutesmith.problems.loading import load_file
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.recording.open_session import session

FOLDER = resources.libraries()
EMULATOR = Path(__file__).resolve().parents[2] / "evals" / "studies" / "emulator"
TORCH = read_library(FOLDER / "torch_fused.py")
QUACK = read_library(FOLDER / "quack.py")

OUT_DTYPE = "PyTorch has products of halves with a float32 result on CUDA only"
FLASH = "FlashAttention is CUDA only"
CUDA_ONLY = {
    "level2/row_dot": OUT_DTYPE,
    "level3/gemm_residual_layer_norm": OUT_DTYPE,
    "level3/gemm_soft_cap": OUT_DTYPE,
    "level3/linear_cross_entropy": OUT_DTYPE,
    "level3/lora_linear": OUT_DTYPE,
    "level3/lstm_step": OUT_DTYPE,
    "level4/attention_backward": FLASH,
    "level4/attention_sliding_window": FLASH,
    "level4/attention_varlen": FLASH,
    "level4/gemm_fp8_blocks": "scales of blocks are CUDA only",
}
# The fused kernels round each weight of a key to the inputs' type before they multiply by values, of which a reference
# in float32 knows nothing: of a million elements a few, small by luck, are out of the judge's tolerance.
ROUNDED_WEIGHTS = {"level3/window_attention_bias": 1e-4}

# Sizes of `get_inputs`. Rows that nothing else in this process has: QuACK keeps what it compiled in another session.
EMULATED = {
    "level1/softmax": (9, 1096),
    "level1/softmax_rank4": (1, 2, 3, 136),
    "level2/cross_entropy": (9, 1096),
    "level2/cross_entropy_ignore": (9, 1112),
    "level2/layer_norm": (5, 264),
    "level2/layer_norm_plain": (5, 272),
    "level2/layer_norm_written_out": (5, 280),
    "level2/residual_layer_norm": (5, 288),
    "level2/residual_rms_norm": (5, 296),
    "level2/rms_norm": (5, 304),
    "level2/rms_norm_gemma": (5, 312),
    "level2/rms_norm_llama": (5, 320),
    "level2/softmax_backward": (5, 328),
    "level2/token_log_probability": (9, 1128),
    "level2/z_loss": (9, 344),
    "level4/hadamard_rotation": (3, 512),
}
RECORDED = "level4/hadamard_rotation", "level1/softmax_wide", "level2/cross_entropy_vocabulary", "level2/rms_norm_gemma"
NOT_EMULATED = {
    "level1/softmax_wide": "a row of 262144 in sixteen blocks; recorded",
    "level2/cross_entropy_vocabulary": "a row of 128256 in eight blocks; recorded",
} | dict.fromkeys(
    ("level3/gated_mlp", "level3/gelu_mlp_biases", "level3/gemm_bias_gelu", "level3/gemm_fp8_bias")
    + ("level3/linear_cross_entropy", "level4/grouped_gemm"),
    "it measures its configurations on a GPU",
)


def module_of(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"library_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def torch_fused() -> Any:
    return module_of("torch_fused")


@pytest.fixture(scope="module")
def quack() -> Iterator[Any]:
    pytest.importorskip("cutlass")
    if importlib.util.find_spec("quack") is None:
        pytest.skip("quack is not installed")
    os.environ["QUACK_CACHE_ENABLED"] = "0"
    sys.path.insert(0, str(EMULATOR))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        import kernel_cases

        with kernel_cases.triton_or_stand_in():
            module = module_of("quack")
    yield module
    sys.path.remove(str(EMULATOR))


def problem_of(task: str) -> Any:
    return load_file(resources.tasks() / f"{task}.py").module


def comparisons(
    problem: Any, values: list[Any], run: Callable[..., tuple[list[torch.Tensor], bool]]
) -> list[Comparison]:
    """As the judge compares: number, shapes, dtypes and strides, then each output with PyTorch's and float64's."""
    native, is_tuple = native_outputs(problem.reference_fn, [tensors.copy_of(value) for value in values])
    exact = in_float64(problem.reference_fn, values)
    outputs, gave_tuple = run([tensors.copy_of(value) for value in values])
    assert structure_violation([tensors.describe_layout(o) for o in outputs], gave_tuple, native, is_tuple) is None
    sides = zip(outputs, native, exact if isinstance(exact, tuple) else [exact], strict=True)
    return [
        compare(index, out, own, wide, tolerance_for(own.dtype, None, None))
        for index, (out, own, wide) in enumerate(sides)
    ]


def require_structure(problem: Any, function: Callable[..., Any], values: list[Any]) -> None:
    """The function returns as many tensors as the reference, of the same shapes, dtypes and strides."""
    native, is_tuple = native_outputs(problem.reference_fn, values)
    outputs, gave_tuple = native_outputs(function, values)
    assert structure_violation([tensors.describe_layout(o) for o in outputs], gave_tuple, native, is_tuple) is None


def test_what_is_listed_here_is_there():
    assert CUDA_ONLY.keys() | ROUNDED_WEIGHTS.keys() <= TORCH.keys()
    assert EMULATED.keys() | NOT_EMULATED.keys() == QUACK.keys()


@pytest.mark.parametrize("task", TORCH)
def test_it_returns_at_full_size_what_the_reference_does(task, torch_fused):
    problem, function = problem_of(task), getattr(torch_fused, TORCH[task])
    with cuda_as_cpu(fake=task != "level4/grouped_gemm"):  # that reference reads where rows end
        values = problem.get_inputs() if task != "level4/grouped_gemm" else problem.get_inputs(rows=64, experts=4)
        assert len(inspect.signature(function).bind(*values).arguments) == len(values)
        require_structure(problem, function, values)


@pytest.mark.parametrize("task", sorted(TORCH.keys() - CUDA_ONLY.keys()))
def test_it_computes_on_a_cpu_what_the_reference_does(task, torch_fused):
    problem, function = problem_of(task), getattr(torch_fused, TORCH[task])
    torch.manual_seed(0)
    with cuda_as_cpu():
        for values in problem.get_input_sets():
            for found in comparisons(problem, values, lambda values: native_outputs(function, values)):
                few = ROUNDED_WEIGHTS.get(task, 0.0) * found.error.elements
                assert found.violation is None or 0 < found.error.mismatches <= few, found.violation


@pytest.mark.parametrize("task", sorted(CUDA_ONLY))
def test_what_is_said_to_need_a_gpu_fails_without_one(task, torch_fused):
    problem = problem_of(task)
    with cuda_as_cpu(), pytest.raises((NotImplementedError, ValueError), match="CPU|Invalid scaling configuration"):
        getattr(torch_fused, TORCH[task])(*next(iter(problem.get_input_sets())))


@pytest.mark.slow
def test_calls_of_quack_fit_the_installed_functions(quack):
    from quack.autotuner import Autotuner

    tree = ast.parse((FOLDER / "quack.py").read_text(encoding="utf-8"))
    imported = {a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    called = [call for call in calls if call.func.id in imported]
    assert {call.func.id for call in called} == imported
    for call in called:
        function = getattr(quack, call.func.id)
        signature = inspect.signature(function.fn if isinstance(function, Autotuner) else function)
        signature.bind(*call.args, **{keyword.arg: keyword.value for keyword in call.keywords})


@pytest.mark.slow
@pytest.mark.parametrize("task", QUACK)
def test_a_function_of_quack_takes_the_inputs_of_its_task(task, quack):
    with cuda_as_cpu():
        values = next(iter(problem_of(task).get_input_sets()))
    assert len(inspect.signature(getattr(quack, QUACK[task])).bind(*values).arguments) == len(values)


@pytest.mark.slow
@pytest.mark.parametrize("task", EMULATED)
def test_quack_computes_on_the_emulated_gpu_what_the_reference_does(task, quack, monkeypatch):
    from quack.rmsnorm import rmsnorm_fwd_tuned

    monkeypatch.setattr(rmsnorm_fwd_tuned, "configs", rmsnorm_fwd_tuned.configs[:1])  # one, so that none is measured
    problem, function = problem_of(task), getattr(quack, QUACK[task])
    torch.manual_seed(0)
    with cuda_as_cpu():
        values = problem.get_inputs(*EMULATED[task])

    def emulated(values: list[Any]) -> tuple[list[torch.Tensor], bool]:
        with warnings.catch_warnings(), emulated_device("sm_90a"):
            warnings.simplefilter("ignore")
            outputs, is_tuple = native_outputs(function, [v.cuda() for v in values])
            return [output.cpu() for output in outputs], is_tuple

    assert [found.violation for found in comparisons(problem, values, emulated) if found.violation] == []


@pytest.mark.slow
@pytest.mark.parametrize("task", RECORDED)
def test_quack_returns_at_full_size_what_the_reference_does(task, quack):
    problem, function = problem_of(task), getattr(quack, QUACK[task])
    with warnings.catch_warnings(), session("sm_90a", fake=True) as recorded:
        warnings.simplefilter("ignore")
        require_structure(problem, function, problem.get_inputs())
    assert len(recorded.launches) == 1


@pytest.mark.slow
def test_the_judge_s_draws_find_no_fault_in_a_function_of_quack(tmp_path):
    if importlib.util.find_spec("quack") is None:
        pytest.skip("quack is not installed")
    script = Path(__file__).resolve().parents[2] / "evals" / "studies" / "judge_libraries.py"
    out = tmp_path / "quack.jsonl"
    words = [sys.executable, script, "--out", out, "--on", "emulator", "--quick", "--only", "level4/hadamard_rotation"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    line = json.loads(out.read_text())
    assert (ran.returncode, line["exit_code"]) == (0, 0), line["summary"] + ran.stderr[-2000:]
    assert line["cases"]["passed"] > 10
