"""What goes wrong only where inputs are long is found on the emulated GPU, which affords short ones."""

from __future__ import annotations

import pytest
import torch

from cutesmith.emulator.errors import LaunchRefused
from cutesmith.emulator.faults import FaultKind, Finding, KernelFault
from cutesmith.judge.candidate_side.trial import declines
from cutesmith.judge.reference_side import full_inputs
from cutesmith.judge.reference_side.cases import fit, resize
from cutesmith.judge.reference_side.declared_sizes import DeclaredSizes
from cutesmith.judge.reference_side.full_inputs import too_much
from cutesmith.judge.reference_side.longer_cases import Growth, long_sizes, narrow
from cutesmith.judge.reference_side.requests import LongSize
from cutesmith.verdicts import CaseOutcome, ExitCode
from tests.judge.in_process import ShortJudge, verdict_here

pytestmark = pytest.mark.timeout(300)


def growth(*inputs, other_columns=True, elements=1 << 22, refusal=lambda values: ""):
    return Growth(
        inputs=inputs,
        shrunk=fit(inputs, 1 << 18, lambda values: "").sizes,
        other_columns=other_columns,
        elements=elements,
        refusal=refusal,
    )


def cases(grown):
    found = [grown.longest(long) for long in long_sizes(grown.inputs, grown.shrunk, grown.refusal)]
    return [(case.long, case.kept, case.sizes) for case in found]


def test_a_long_size_stays_and_the_others_give_way():
    x, weight = torch.empty(16384, 4096), torch.empty(4096)
    assert cases(growth(x, weight)) == [(16384, 16384, {4096: 32})]


def test_columns_stay_where_no_others_were_promised():
    """As many rows as their number of elements affords."""
    grown = growth(torch.empty(16384, 4096), other_columns=False)
    assert cases(grown) == [(16384, 1024, {16384: 1024})]
    assert "elements take the emulated GPU too long" in grown.longest(LongSize(16384)).why


def test_every_size_that_was_shrunk_is_long_once():
    """A matrix product: rows, columns and the sum."""
    a, b, residual = torch.empty(4096, 1024), torch.empty(2048, 1024), torch.empty(4096, 2048)
    grown = growth(a, b, residual)
    assert set(grown.shrunk) == {4096, 2048, 1024}
    assert sorted(kept for _, kept, _ in cases(grown)) == [1024, 2048, 4096]


def test_what_the_reference_refuses_is_tried_with_larger_others():
    """Halves of a head must stay halves; then columns must stay."""
    x, angles = torch.empty(48, 4096, 128), torch.empty(4096, 64)
    assert cases(growth(x, angles))[0] == (4096, 4096, {48: 2, 128: 32, 64: 16})
    whole = lambda values: "" if values[0].shape[-1] == 128 else "heads of 128"  # noqa: E731
    assert cases(growth(x, angles, refusal=whole))[0] == (4096, 4096, {48: 2})
    assert narrow({1001, 64}) == {1001: 1001, 64: 64}


def test_columns_that_are_rows_of_another_input_give_way_first():
    """Groups of quantised weights: a kernel may have a path of its own for groups that are not whole."""
    x, packed, scales = torch.empty(16, 32, 128), torch.empty(28672, 32, 64), torch.empty(32, 28672)
    found = {long: sizes for long, _, sizes in cases(growth(x, packed, scales))}
    assert found[32] == {16: 2, 28672: 56} and all(128 not in sizes for sizes in found.values())


def test_a_reference_that_multiplies_too_much_ends_the_climb():
    """Attention: its scores grow with the square of the length."""
    q = torch.randn(1, 1, 2048, 256)
    attention = lambda q: torch.softmax(q @ q.transpose(-1, -2), -1) @ q  # noqa: E731
    grown = growth(q, other_columns=False, refusal=lambda values: too_much(attention, values))
    case = grown.longest(LongSize(2048))
    assert case.kept == 0 and "multiply-adds" in case.why


def refusing(reference_fn):
    def refusal(values):
        try:
            reference_fn(*values)
        except (RuntimeError, IndexError) as error:
            return str(error)
        return ""

    return refusal


SQUARES = {
    "elements": (lambda x, y: x + y, 2, [((0, 0), (1, 0)), ((0, 1), (1, 1))]),
    "product": (lambda a, b: a @ b, 2, [((0, 0),), ((0, 1), (1, 0)), ((1, 1),)]),
    "transposed factor": (lambda a, b: a @ b.T, 2, [((0, 0),), ((0, 1), (1, 1)), ((1, 0),)]),
    "sum of rows": (lambda x: x.sum(1), 1, [((0, 0),), ((0, 1),)]),
    "with a vector of columns": (lambda x, v: x * v, 2, [((0, 0),), ((0, 1), (1, 0))]),
    "three inputs": (lambda x, y, z: x * y + z, 3, [((0, 0), (1, 0), (2, 0)), ((0, 1), (1, 1), (2, 1))]),
    "product of three": (lambda a, b, c: a @ b @ c, 3, [((0, 0),), ((0, 1), (1, 0)), ((1, 1), (2, 0)), ((2, 1),)]),
    "inverse": (torch.linalg.inv, 1, [()]),
}


@pytest.mark.parametrize("name", SQUARES)
def test_each_axis_of_a_square_is_long_alone_where_the_reference_takes_it(name):
    function, count, groups = SQUARES[name]
    inputs = [torch.rand(2048, 2048) + torch.eye(2048) for _ in range(count)]
    if "vector" in name:
        inputs[1] = inputs[1][0]
    grown = growth(*inputs, refusal=refusing(function))
    longs = long_sizes(inputs, grown.shrunk, grown.refusal)
    assert [long.axes for long in longs] == groups
    for long in longs if groups != [()] else ():
        found = grown.longest(long)
        assert found.kept == 2048 and found.axes == dict.fromkeys(long.axes, 2048)
        values = resize(inputs, found.sizes, found.axes)
        for index, value in enumerate(values):
            lengths = {(index, axis): length for axis, length in enumerate(value.shape) if length == 2048}
            assert lengths == {axis: 2048 for axis in long.axes if axis[0] == index}
        function(*values)


PRODUCTS = {
    "a @ b": (lambda a, b: a @ b, 4 * 8 * 16),
    "einsum": (lambda a, b: torch.einsum("mk,kn->mn", a, b), 4 * 8 * 16),
    "addmm": (lambda a, b: torch.addmm(torch.ones(16), a, b), 4 * 8 * 16),
    "linear": (lambda a, b: torch.nn.functional.linear(a, b.T), 4 * 8 * 16),
    "attention": (lambda a, b: torch.nn.functional.scaled_dot_product_attention(a, a, a), 2 * 4 * 4 * 8),
    "convolution": (lambda a, b: torch.conv1d(b[None], torch.ones(5, 8, 3)), 5 * 14 * 24),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_a_reference_multiplies_is_counted(name, monkeypatch):
    function, count = PRODUCTS[name]
    values = [torch.ones(4, 8), torch.ones(8, 16)]
    monkeypatch.setattr(full_inputs, "MULTIPLY_ADDS", count)
    assert too_much(function, values) == ""
    monkeypatch.setattr(full_inputs, "MULTIPLY_ADDS", count - 1)
    assert too_much(function, values) == f"{count:,} multiply-adds take the emulated GPU too long"


def declared(**sizes):
    def get_inputs(rows=1000, columns=48, name="x", scale=2.0):
        return [torch.ones(rows, columns), torch.ones(rows, 2 * columns)]

    return DeclaredSizes.of(sizes, get_inputs, lambda chosen: get_inputs(**chosen))


def test_arguments_that_emulated_sizes_has_smaller_are_long_in_turn():
    sizes = declared(rows=60, columns=48, name="y", scale=1.0)
    assert sizes.long_sizes() == [LongSize(1000, argument="rows")]
    assert [long.words for long in declared(rows=60, columns=3).long_sizes()] == ["rows = 1000", "columns = 48"]


def test_an_argument_is_doubled_as_far_as_can_be_afforded():
    sizes, rows, columns = declared(rows=60, columns=3), *declared(rows=60, columns=3).long_sizes()
    whole = sizes.longest(columns, 10_000, lambda values: "")
    assert (whole.kept, whole.why, [value.shape for value in whole.inputs]) == (48, "", [(60, 48), (60, 96)])
    part = sizes.longest(rows, 9 * 500, lambda values: "")
    assert (part.kept, part.inputs[0].shape) == (480, (480, 3)) and part.why.startswith("8,640 elements take")
    odd = sizes.longest(columns, 10_000, lambda values: "" if values[0].shape[1] % 12 else "multiples of 12")
    assert (odd.kept, odd.why, odd.inputs[0].shape) == (6, "multiples of 12", (60, 6))
    assert sizes.longest(rows, 1, lambda values: "").kept == 0


def test_an_odd_long_size_stays_whole():
    assert cases(growth(torch.empty(70_001, 64)))[0][:2] == (70_001, 70_001)


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


class Unsupported(Exception):
    """A kernel's own."""


class DslError(Exception):
    """As the DSL raises it."""

    __module__ = "cutlass.base_dsl.common"


def wrapped(inner):
    error = DslError("tracing failed")
    error.__cause__ = inner
    return error


REFUSALS = (ValueError("37 columns"), NotImplementedError(), AssertionError("odd"), Unsupported(), DslError("no"))
MISTAKES = (NameError("x"), UnboundLocalError("x"), AttributeError("x"), TypeError("x"), IndexError(), KeyError("x"))
OTHERS = (ZeroDivisionError(), RecursionError(), SystemExit(), RuntimeError("CUDA error: 700"), wrapped(NameError("x")))


OUTSIDE = Finding(FaultKind.OUT_OF_BOUNDS, "reads beyond input 0", None, (0, 0, 0), (0, 0, 0))


def test_refusals_are_told_from_mistakes():
    for error in (
        *REFUSALS,
        RuntimeError("view size"),
        LaunchRefused("grid x is 0"),
        wrapped(ValueError("37 columns")),
    ):
        assert declines(error), error
    for error in (*MISTAKES, *OTHERS, KernelFault(OUTSIDE, (OUTSIDE,)), None):
        assert not declines(error), error
    try:
        try:
            {}["columns"]
        except KeyError as missing:
            raise ValueError("columns that no tile fits") from missing
    except ValueError as refusal:
        assert declines(refusal)
