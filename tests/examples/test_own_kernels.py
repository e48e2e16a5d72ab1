"""Our example kernels: their headers, lint, the contract, and their results on the emulated GPU.

The whole of verification, every input set included, is `cutesmith verify`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cutesmith.lint import lint_file
from cutesmith.problems import contract
from cutesmith.problems.loading import load_file

KERNELS = Path(__file__).resolve().parents[2] / "examples_index" / "kernels"
FILES = sorted(KERNELS.glob("*.py"))
MOST_ELEMENTS = 8_000_000  # of inputs that are emulated here
HEADER = re.compile(
    r"[A-Z].+\.\n\n(.+\n)+?Arch: (sm_80\+|sm_90a|sm_100a)\nOperation: [a-z_]+\nFeatures: [a-z0-9_, ]+\n"
    r"Start here when .+",
    re.DOTALL,
)


def arch_of(path: Path) -> str:
    found = re.search(r"^Arch: (\w+)", path.read_text(), re.MULTILINE)
    assert found is not None
    return found.group(1)


def by_name(path: Path) -> str:
    return path.stem


def test_the_names_that_pages_link_to_are_there() -> None:
    assert len(FILES) == 56
    assert {"relu_minimal", "softmax_rows", "gemm_sm80_bias_gelu", "gemm_sm100_bias_gelu"} <= {
        path.stem for path in FILES
    }


@pytest.mark.sampled(25)
@pytest.mark.parametrize("path", FILES, ids=by_name)
def test_a_reader_finds_what_a_kernel_shows_and_lint_nothing(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring is not None and HEADER.fullmatch(docstring), docstring
    assert lint_file(path).findings == ()


@pytest.mark.parametrize("path", FILES, ids=by_name)
def test_a_kernel_meets_the_contract_by_itself(path: Path) -> None:
    file = contract.inspect(path)
    assert file.kind == "kernel"
    nodes = list(ast.walk(ast.parse(file.source)))
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    allowed = {"functools", "itertools", "math", "operator", "typing", "torch", "cutlass"}
    assert {str(name).split(".")[0] for name in imported} <= allowed


def elements(inputs) -> int:
    return sum(value.numel() for value in inputs if hasattr(value, "numel"))


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=by_name)
def test_the_emulated_gpu_finds_the_results_right(path: Path) -> None:
    import torch

    from cutesmith.emulator.device import emulated_device
    from cutesmith.judge.reference_side.comparison import compare
    from cutesmith.judge.reference_side.precision import in_float64
    from cutesmith.judge.reference_side.tolerance import tolerance_for

    torch.manual_seed(7)
    with emulated_device(arch_of(path)) as device:
        file = load_file(path)
        sets = file.get_input_sets()  # they differ by dtype and alignment
        inputs = next(inputs for inputs in sets if elements(inputs) <= MOST_ELEMENTS)
        results = file.kernel_fn(*inputs)
        native = file.reference_fn(*inputs)
    exact = in_float64(file.reference_fn, list(inputs))
    single = isinstance(native, torch.Tensor)
    sides = zip(*((side,) if single else tuple(side) for side in (results, native, exact)))
    for index, (actual, own, wide) in enumerate(sides):
        assert compare(index, actual, own, wide, tolerance_for(own.dtype, None, None)).violation is None
    assert device.launches and device.findings == ()


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in FILES if "rcp_approx" in path.read_text()], ids=by_name)
def test_no_approximate_function_compiles_to_a_rounded_one(path: Path) -> None:
    from cutesmith.recording.open_session import session

    with session(arch_of(path), fake=True) as recorded:
        file = load_file(path)
        file.kernel_fn(*(x.half() for x in file.get_inputs()))
    ptx = recorded.modules[-1].ptx
    assert {"rcp.approx.ftz.f32", "ex2.approx.ftz.f32"} <= set(re.findall(r"\b(?:rcp|ex2)[\w.]+", ptx))
    assert re.findall(r"\b(?:rcp|div|sqrt)\.rn\.f32", ptx) == []


@pytest.mark.parametrize("path", FILES, ids=by_name)
def test_no_copy_stands_inside_elect_one(path: Path) -> None:
    """A whole warp makes a TMA copy: the DSL elects the loading thread, the hardware stores once a warp."""
    blocks = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.With)]
    elected = [node for node in blocks if "elect_one" in ast.unparse(node.items[0])]
    assert not [node for node in elected if "cute.copy" in ast.unparse(node)]


@pytest.mark.gpu
@pytest.mark.parametrize("path", FILES, ids=by_name)
def test_every_kernel_is_verified_where_it_runs(path: Path) -> None:
    from cutesmith.devices import current_device, parse_arch
    from cutesmith.judge.verification import verify_kernel

    device = current_device()
    assert device is not None and device.sm is not None
    if arch_of(path) != "sm_80" and not parse_arch(arch_of(path)).runs_on(device.sm):
        pytest.skip(f"written for {arch_of(path)}")
    verdict = verify_kernel(path, on="gpu")
    assert verdict.passed, verdict.summary
