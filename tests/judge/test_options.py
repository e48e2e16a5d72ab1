"""Functions with options and with lists of tensors: judged in both directions, on the emulated GPU."""

from __future__ import annotations

import pytest

from cutesmith.verdicts import ExitCode
from tests.judge.in_process import LocalJudge, ShortJudge, verdict_here

KERNEL = """\
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 128


@cute.kernel
def weighted_kernel(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, first: cutlass.Float32, second: cutlass.Float32,
                    clamped: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    at = bidx * THREADS + tidx
    if at < cute.size(x):
        value = first * x[at] + second * y[at]
        if cutlass.const_expr(clamped):
            value = cutlass.max(value, cutlass.Float32(0.0))
        z[at] = value


@cute.jit
def weighted(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, first: cutlass.Float32, second: cutlass.Float32,
             clamped: cutlass.Constexpr):
    grid = [cute.ceil_div(cute.size(x), THREADS), 1, 1]
    weighted_kernel(x, y, z, first, second, clamped).launch(grid=grid, block=[THREADS, 1, 1])


_compiled = {}


def kernel_fn(tensors, weights, mode, order):
    if mode not in ("none", "relu"):
        raise ValueError(f"no kernel for mode={mode!r}")
    x, y = (tensors[place].contiguous() for place in order)
    first, second = weights
    z = torch.empty_like(x)
    key = mode, x.shape
    if key not in _compiled:
        views = [from_dlpack(each, assumed_align=4) for each in (x, y, z)]
        _compiled[key] = cute.compile(weighted, *views, first, second, mode == "relu")
    _compiled[key](*(from_dlpack(each, assumed_align=4) for each in (x, y, z)), first, second)
    return z


def reference_fn(tensors, weights, mode, order):
    found = weights[0] * tensors[order[0]] + weights[1] * tensors[order[1]]
    return {"none": torch.clone, "relu": torch.relu}[mode](found)


def get_inputs():
    tensors = [torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")]
    return [tensors, (0.5, 2.0), "relu", [1, 0]]


def get_input_sets():
    for mode, weights in (("none", (0.25, -1.0)), ("relu", (3.0, 0.0))):
        tensors, _, _, order = get_inputs()
        yield [tensors, weights, mode, order]


DERIVED_SHAPES = False
"""


def test_a_right_kernel_of_a_list_and_options_is_verified(write_file):
    verdict = verdict_here(write_file(KERNEL), judge=LocalJudge, quick=True, seeds=1)
    assert verdict.exit_code == 0, verdict.summary
    names = {kind.name: kind.kind for kind in verdict.kinds}
    assert names == {
        "tensors_0": "float",
        "tensors_1": "float",
        "weights": "option",
        "mode": "option",
        "order": "option",
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("for place in order", "for place in (0, 1)"),
        ("first, second = weights", "first, second = 0.5, 2.0"),
        ("if cutlass.const_expr(clamped)", "if cutlass.const_expr(True)"),
        ("for place in order)", "for place in order[:1] * 2)"),
    ],
    ids=["order", "weights of a set", "mode of a set", "one tensor twice"],
)
def test_a_kernel_that_ignores_an_option_or_a_tensor_of_a_list_is_wrong(write_file, old, new):
    assert old in KERNEL
    verdict = verdict_here(write_file(KERNEL.replace(old, new)), judge=ShortJudge, seeds=1)
    assert verdict.exit_code == ExitCode.WRONG_RESULT, verdict.summary


def test_an_input_of_another_type_is_told(write_file):
    source = KERNEL.replace('"relu", [1, 0]]', '{"mode": "relu"}, [1, 0]]')
    verdict = verdict_here(write_file(source), judge=ShortJudge, seeds=1)
    assert verdict.exit_code == ExitCode.USAGE and "input 2 is a dict" in verdict.summary
