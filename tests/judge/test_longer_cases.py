"""What goes wrong only where inputs are long is found on the emulated GPU, which affords short ones."""

from __future__ import annotations

import pytest

from cutesmith.verdicts import CaseOutcome, ExitCode
from tests.judge.in_process import ShortJudge, verdict_here

pytestmark = pytest.mark.timeout(300)


SOURCE = """
import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 32


@cute.kernel
def scale_kernel(mX: cute.Tensor, mW: cute.Tensor, mY: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    for row in range(block, LAST_ROW, blocks):
        for column in range(thread, LAST_COLUMN, THREADS):
            mY[row, column] = mX[row, column] * mW[INDEX]


@cute.jit
def scale(mX: cute.Tensor, mW: cute.Tensor, mY: cute.Tensor, stream):
    scale_kernel(mX, mW, mY).launch(grid=[cutlass.min(mX.shape[0], BLOCKS), 1, 1], block=[THREADS, 1, 1], stream=stream)


@functools.cache
def compiled():
    rows, columns = cute.sym_int(), KNOWN_COLUMNS
    x, y = (make_fake_compact_tensor(cutlass.Float32, (rows, columns), stride_order=(1, 0)) for _ in range(2))
    w, stream = make_fake_compact_tensor(cutlass.Float32, (rows,)), make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(scale, x, w, y, stream, options="--enable-tvm-ffi")


def kernel_fn(x, w):
    REFUSAL
    y = torch.empty_like(x)
    compiled()(x, w, y)
    return y


def reference_fn(x, w):
    return x * w[:, None]


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, device="cuda"), torch.randn(ROWS, device="cuda")]


DERIVED_SHAPES = PROMISED
"""
HONEST = {  # kernels that scale rows, honest or, with other words, wrong only where the inputs are long
    "LAST_ROW": "mX.shape[0]",
    "LAST_COLUMN": "mX.shape[1]",
    "INDEX": "row % mX.shape[0]",
    "BLOCKS": "2048",
    "KNOWN_COLUMNS": "cute.sym_int()",
    "REFUSAL": "pass",
    "ROWS": "4096",
    "COLUMNS": "2048",
    "PROMISED": "True",
}


def long_rows(**changes: str) -> str:
    """The file with these of its words changed."""
    text = SOURCE
    for word in sorted(HONEST, key=len, reverse=True):
        text = text.replace(word, {**HONEST, **changes}[word])
    return text


def verdict_at_length(write_file, **changes):
    return verdict_here(write_file(long_rows(**changes)), judge=ShortJudge)


FAULTS = {
    "an index that wraps": {"INDEX": "row % 128"},
    "a grid that ends early": {"LAST_ROW": "block + 1"},
    "a loop over the first tiles": {"LAST_ROW": "cutlass.min(mX.shape[0], 2 * blocks)", "BLOCKS": "512"},
}


REFUSES = "if x.shape[0] {}:\n        raise ValueError('other rows')"


def test_what_takes_only_more_than_the_emulated_gpu_affords_is_not_verified(write_file):
    verdict = verdict_at_length(write_file, REFUSAL=REFUSES.format("!= 4096"))
    assert (verdict.exit_code, verdict.status) == (ExitCode.UNAVAILABLE, "unavailable"), verdict.summary
    assert "not verified: at full size 4096x2048 (in its place the kernel declines 64x2048: " in verdict.summary
    assert "ValueError: other rows), which no case executed" in verdict.summary
    assert [case.outcome for case in verdict.cases] == [CaseOutcome.NOT_EXECUTED, CaseOutcome.RECORDED]
    whole = "float32[4096, 2048], float32[4096]"
    assert f"; shrunk: get_inputs() as float32[64, 2048], float32[64] for {whole}" in verdict.summary


SETS = """

def get_input_sets():
    for rows, columns in ((40, 24), (8192, 2048)):
        yield [torch.randn(rows, columns, device="cuda"), torch.randn(rows, device="cuda")]
"""


@pytest.mark.slow
def test_input_sets_that_ran_smaller_are_told_with_their_sizes(write_file):
    """The kernel takes them as they are drawn, and no others."""
    path = write_file(long_rows(REFUSAL=REFUSES.format("not in (40, 4096, 8192)"), PROMISED="False") + SETS)
    verdict = verdict_here(path, judge=ShortJudge)
    assert verdict.exit_code == ExitCode.UNAVAILABLE, verdict.summary
    declined = [case.name for case in verdict.cases if case.outcome is CaseOutcome.NOT_EXECUTED]
    assert declined == ["get_inputs(), draws 1 and 2", "get_input_sets()[1], draws 1 and 2"]
    shrunk = verdict.summary.partition("; shrunk: ")[2].splitlines()[0]
    first, second = shrunk.split("; ")
    assert first.startswith("get_inputs() as float32[") and first.endswith(" for float32[4096, 2048], float32[4096]")
    assert second == "get_input_sets()[1] as float32[64, 2048], float32[64] for float32[8192, 2048], float32[8192]"


@pytest.mark.parametrize("rows", ["4096", "64"])
def test_a_kernel_that_declines_get_inputs_as_the_file_draws_them_fails(write_file, rows):
    verdict = verdict_at_length(write_file, REFUSAL=REFUSES.format("> 0"), ROWS=rows, COLUMNS="2048")
    assert verdict.exit_code == ExitCode.CRASHED and "ValueError: other rows" in verdict.summary, verdict.summary
    assert (verdict.status == "declined") == (rows == "64")  # the other one raises while launches are recorded


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_only_at_length_is_found(write_file, fault):
    verdict = verdict_at_length(write_file, **FAULTS[fault])
    assert verdict.exit_code == ExitCode.WRONG_RESULT, verdict.summary
    assert [case.passed for case in verdict.cases[:2]] == [True, True]
    assert "longer: size" in verdict.summary


@pytest.mark.slow
def test_what_is_wrong_only_at_length_is_found_where_the_file_says_its_smaller_sizes(write_file):
    text = long_rows(INDEX="row % 128", ROWS="rows", COLUMNS="columns")
    text = text.replace("def get_inputs()", "def get_inputs(rows=4096, columns=2048)")
    text += 'EMULATED_SIZES = {"rows": 64, "columns": 96}\n'
    verdict = verdict_here(write_file(text), judge=ShortJudge)
    assert verdict.exit_code == ExitCode.WRONG_RESULT and "longer: rows = 4096" in verdict.summary, verdict.summary
    honest = verdict_here(write_file(text.replace("row % 128", "row")), judge=ShortJudge)
    assert honest.passed and honest.reduced == "4096x2048 as 64x96, 4096x96, 64x2048", honest.summary


@pytest.mark.slow
def test_the_kernel_of_full_size_is_what_is_tried_at_length(write_file):
    """Rows of few columns have a kernel of their own here, which is right."""
    begin, end = "@cute.kernel", "def kernel_fn"
    narrow = long_rows()
    narrow = narrow[narrow.index(begin) : narrow.index(end)]
    narrow = narrow.replace("scale", "narrow_scale").replace("compiled", "narrow_compiled")
    dispatch = (
        "if x.shape[1] < 1024:\n        y = torch.empty_like(x)\n        narrow_compiled()(x, w, y)\n        return y"
    )
    text = long_rows(INDEX="row % 128", REFUSAL=dispatch, COLUMNS="1024")
    verdict = verdict_here(write_file(text.replace(end, narrow + end)), judge=ShortJudge)
    assert verdict.exit_code == ExitCode.WRONG_RESULT and "longer: size 4096" in verdict.summary, verdict.summary


@pytest.mark.slow
def test_an_honest_kernel_passes_and_the_verdict_says_at_which_sizes(write_file):
    """It looks like the faults: a grid that ends early and a remainder."""
    verdict = verdict_at_length(write_file, BLOCKS="512")
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    assert verdict.reduced == "4096x2048 as 64x2048, 4096x32, 1024x2048"
    assert f"at reduced sizes ({verdict.reduced}), {len(verdict.cases) - 1} cases" in verdict.summary
    assert verdict.cases[0].inputs.endswith("for float32[4096, 2048], float32[4096]")
    assert [case.name for case in verdict.cases[1:]] == [
        "launches at full size",
        "longer: size 4096",
        "longer: more elements for each block",
    ]
    assert verdict.cases[1].explanation == "recorded: 512 blocks, not executed"


SQUARE = """
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream


@cute.kernel
def double_kernel(mX: cute.Tensor, mY: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for column in range(thread, mX.shape[1], 128):
        if row < LAST_ROW and column < LAST_COLUMN:
            mY[row, column] = mX[row, column] * 2.0


@cute.jit
def double(mX: cute.Tensor, mY: cute.Tensor, stream):
    double_kernel(mX, mY).launch(grid=[mX.shape[0], 1, 1], block=[128, 1, 1], stream=stream)


def sized():
    return make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))


compiled = cute.compile(double, sized(), sized(), make_fake_stream(), options="--enable-tvm-ffi")


def kernel_fn(x):
    y = torch.empty_like(x)
    compiled(x, y, torch.cuda.current_stream().cuda_stream)
    return y


def reference_fn(x):
    return x * 2


def get_inputs():
    return [torch.randn(4096, 4096, device="cuda")]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "dimension"), [("LAST_ROW", 0), ("LAST_COLUMN", 1)])
def test_a_fault_at_the_end_of_one_axis_of_a_square_is_found(write_file, fault, dimension):
    text = SQUARE.replace(fault, "4000")
    for name in ("LAST_ROW", "LAST_COLUMN"):
        text = text.replace(name, "4096")
    verdict = verdict_here(write_file(text), judge=ShortJudge, seeds=1)
    wrong = [case.name for case in verdict.cases if not case.passed]
    assert verdict.exit_code == ExitCode.WRONG_RESULT, verdict.summary
    assert wrong == [f"longer: dimension {dimension} of input 0 (4096)"]


@pytest.mark.slow
def test_where_columns_are_known_they_stay_in_longer_cases(write_file):
    verdict = verdict_at_length(write_file, KNOWN_COLUMNS="256", COLUMNS="256", PROMISED="False")
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    assert verdict.reduced == "4096x256 as 512x256, 4096x256"


@pytest.mark.slow
def test_a_launch_that_is_refused_at_full_size_fails_the_kernel(write_file):
    text = long_rows(ROWS="66000", COLUMNS="64")
    for old, new in (
        ("[cutlass.min(mX.shape[0], 2048), 1, 1]", "[1, mX.shape[0], 1]"),
        ("block, _, _ = cute.arch.block_idx()", "_, block, _ = cute.arch.block_idx()"),
        ("blocks, _, _ = cute", "_, blocks, _ = cute"),
    ):
        text = text.replace(old, new)
    verdict = verdict_here(write_file(text), judge=ShortJudge)
    assert verdict.exit_code == ExitCode.DOES_NOT_COMPILE and "grid y is 66000" in verdict.summary
    assert [case.passed for case in verdict.cases] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "code", "rule", "words"),
    [
        ("undefined", ExitCode.CRASHED, "", ("raises at full size", "NameError")),
        ("return x * w[:, None]", ExitCode.REJECTED, "W1", ("computes with torch (mul) at full size",)),
    ],
)
def test_what_a_kernel_does_only_at_full_size_counts(write_file, statement, code, rule, words):
    refusal = f"if x.shape[0] == 4096 and x.shape[1] > 100:\n        {statement}"
    verdict = verdict_at_length(write_file, REFUSAL=refusal)
    assert (verdict.exit_code, verdict.rule) == (code, rule), verdict.summary
    assert all(word in verdict.summary for word in words)
