"""Verify where there is no GPU: kernels are executed on the emulated one, and what it finds is the verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cutesmith.commands.verify import table
from cutesmith.emulator.device import emulated_device
from cutesmith.errors import ContractError
from cutesmith.judge.candidate_side.kernel_file import load_kernel
from cutesmith.judge.candidate_side.recorded_call import record_call
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.transfer import tensors
from cutesmith.judge.verification import Judge, verify_kernel
from cutesmith.verdicts import ExitCode, Mechanism
from tests.judge.in_process import LocalProcesses, ShortJudge, verdict_here

ROOT = Path(__file__).resolve().parents[2]
ADVERSARIAL = ROOT / "evals" / "adversarial"
REVERSE = (ROOT / "tests" / "kernels" / "smem_reverse.py").read_text()
SEGMENTS = ROOT / "tests" / "kernels" / "first_of_segments.py"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("fault", "words"),
    [("race_reverse", "race"), ("uninitialised_shared", "uninitialised read"), ("wgmma_wait_missing", "missing wait")],
)
def test_what_the_sanitizer_finds_has_its_own_word_and_its_line(fault, words):
    verdict = verdict_here(ROOT / "evals" / "planted_faults" / f"{fault}.py")
    assert verdict.status == words and verdict.mechanism == Mechanism.EMULATED_SANITIZER.value
    assert verdict.exit_code == ExitCode.CRASHED and verdict.ran_on == "emulator"
    assert f"{words} at {fault}.py:" in verdict.summary


def test_a_deadlock_names_all_that_wait_without_frames_of_ours():
    path = ROOT / "evals" / "planted_faults" / "deadlock_cluster.py"
    verdict = verify_kernel(path, VerifyOptions(quick=True, seeds=1), on="emulator")
    assert (verdict.exit_code, verdict.status) == (ExitCode.CRASHED, "deadlock") and verdict.log_tail == ""
    assert verdict.summary.count("deadlock at deadlock_cluster.py:") == 2, verdict.summary
    assert "deadlock: " not in verdict.summary
    text = "\n".join(table(verdict))
    assert "Traceback" not in text and ".py, line" not in text and "last lines" not in text


def test_results_that_depend_on_the_order_of_bulk_copies_fail_where_orders_are_asked_for():
    path = ROOT / "tests" / "kernels" / "sum_of_rows_by_bulk_copies.py"
    assert verdict_here(path, judge=ShortJudge, seeds=1).exit_code == 0
    verdict = verdict_here(path, judge=ShortJudge, seeds=1, orders=4)
    assert verdict.exit_code == ExitCode.CRASHED
    assert "depends on order at sum_of_rows_by_bulk_copies.py:25" in verdict.summary


@pytest.mark.parametrize(
    ("line", "instead", "code", "rule", "words"),
    [
        ("    _compiled(x, y)\n", "", ExitCode.REJECTED, "W1", "launched no CuTe kernel"),
        (
            "    cute.arch.sync_threads()\n",
            '    cute.arch.inline_ptx("{ .reg .b32 v; mov.b32 v, 1; vabsdiff.u32.s32.s32 v, v, v; }")\n',
            ExitCode.UNAVAILABLE,
            "",
            "vabsdiff",
        ),
    ],
    ids=["not launched", "an instruction that is not executed"],
)
def test_a_kernel_is_refused_that_is(write_file, line, instead, code, rule, words):
    verdict = verdict_here(write_file(REVERSE.replace(line, instead)))
    assert (verdict.exit_code, verdict.rule) == (code, rule) and words in verdict.summary, verdict.summary


@pytest.mark.slow
def test_empty_inputs_need_no_launch_though_an_output_is_not_empty(write_file):
    source, sets = REVERSE, "def get_input_sets():\n    yield [torch.randn(0, device='cuda')]\n\n\ndef get_inputs():"
    for old, new in (
        ("    _compiled(x, y)\n", "    if x.numel():\n        _compiled(x, y)\n"),
        ("    return y", "    return y, torch.zeros(2, device=x.device)"),
        ("x.view(-1, THREADS).flip(1).reshape(-1)", "x.view(-1, THREADS).flip(1).reshape(-1), torch.zeros(2)"),
        ("def get_inputs():", sets),
        ("    if _compiled is None:", "    if _compiled is None and x.numel():"),
    ):
        assert old in source
        source = source.replace(old, new)
    verdict = verdict_here(write_file(source))
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary


# Code that computes in less than any type of its problem is said to, and fails by a tolerance of its own (O9)


def test_a_tolerance_of_its_own_lets_no_narrow_code_pass():
    verdict = verdict_here(ADVERSARIAL / "o9_own_tolerance.py", judge=ShortJudge, seeds=1)
    assert (verdict.exit_code, verdict.rule) == (ExitCode.WRONG_RESULT, "O9"), verdict.summary
    assert "1 x cvt.rn.f16.f32, first at o9_own_tolerance.py:27" in verdict.summary
    assert "only this file's own TOLERANCE lets it pass" in verdict.summary


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "tolerances", "said"),
    [
        ("o9_own_tolerance", {"rtol": 1e-2, "atol": 1e-2}, "less than any type of the problem has"),
        ("o9_honest_half_asked_for", {}, ""),
        ("o9_honest_last_store", {}, ""),
    ],
)
def test_narrow_code_passes_by_a_tolerance_that_was_asked_for_and_where_types_explain_it(name, tolerances, said):
    verdict = verdict_here(ADVERSARIAL / f"{name}.py", judge=ShortJudge, seeds=1, **tolerances)
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    explanation = verdict.cases[0].explanation
    assert explanation.endswith(said) and bool(explanation) == bool(said)


def test_parts_of_a_number_that_together_keep_it_are_said_to_be_exact():
    """The error decides: the same conversions with nothing lost, and with the last part left out."""
    whole = verdict_here(ADVERSARIAL / "o9_honest_two_halves.py", judge=ShortJudge, seeds=1)
    assert whole.exit_code == ExitCode.PASSED, whole.summary
    assert "bf16" in whole.cases[0].explanation
    assert whole.cases[0].explanation.endswith("as exact as the problem's types: root mean square error 0")


def test_parts_that_lose_the_rest_are_less_than_the_problem(write_file):
    text = (ADVERSARIAL / "o9_honest_two_halves.py").read_text()
    assert "high + low + rest" in text
    lossy = verdict_here(write_file(text.replace("high + low + rest", "high + low")), judge=ShortJudge, seeds=1)
    assert lossy.exit_code == ExitCode.PASSED, lossy.summary
    assert lossy.cases[0].outputs[0].rms > 2**-20
    assert lossy.cases[0].explanation.endswith("less than any type of the problem has")


@pytest.mark.slow
def test_where_a_gpu_runs_the_kernel_it_is_compiled_once_more_to_see(tmp_path):
    path = ADVERSARIAL / "o9_own_tolerance.py"
    compiled = Judge(path=path, problem=path, options=VerifyOptions())._compiled(tmp_path, "sm_90a")
    assert compiled.counts["cvt.rn.f16.f32"] == 1


# A file whose inputs' sizes belong together says of which sizes its smaller inputs are


@pytest.mark.slow
def test_get_inputs_runs_with_the_sizes_that_the_file_declares():
    verdict = verdict_here(SEGMENTS)
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    assert verdict.reduced == "39999x64 as 99x64, 39999x64"
    own, whole = verdict.cases[:2]
    assert own.inputs == "float32[99, 64], int64[51] for float32[39999, 64], int64[20001]"
    assert whole.name == "launches at full size" and whole.explanation == "recorded: 20,000 blocks, not executed"
    names = [own.name, whole.name, "longer: segments = 20000"]
    assert [case.name for case in verdict.cases if not case.name.startswith("derived")] == names


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("50", "EMULATED_SIZES is 50, no dict"), ('{"rows": 50}', "get_inputs(**EMULATED_SIZES) raised TypeError")],
)
def test_what_cannot_be_sizes_breaks_the_contract(write_file, text, complaint):
    source = SEGMENTS.read_text().replace('EMULATED_SIZES = {"segments": 50}', f"EMULATED_SIZES = {text}")
    verdict = verdict_here(write_file(source))
    assert verdict.exit_code == ContractError.exit_code and complaint in verdict.summary


# Indices that wrap at the size of `get_inputs()` fail a kernel that is right at all sizes that are executed


class NoLongSizes(LocalProcesses):
    """Workers of a problem that names no size to keep whole."""

    def load(self, *args):
        return replace(super().load(*args), long_sizes=())


class FullSizeOnly(ShortJudge):
    """The judge without longer cases either."""

    of_processes = NoLongSizes


def recorded(name):
    """The call on 2^31 + 32768 elements of which there is no memory."""
    path = ADVERSARIAL / f"{name}.py"
    shapes = ((1 << 31) // 4096 + 8, 4096), (4096,)
    layouts = [tensors.describe_layout(torch.empty(shape, dtype=torch.bfloat16, device="meta")) for shape in shapes]
    with emulated_device("sm_90a") as device:
        return record_call(device, load_kernel(path), layouts, path)[0]


def test_an_index_of_32_bits_that_wraps_is_named_with_its_line():
    call = recorded("o11_wraps_at_32_bits")
    assert call.wraps.startswith("an index of 32 bits wraps at this size: o11_wraps_at_32_bits.py:25: thread (0, 0, 0)")
    assert "of input 0 (4,295,032,832 bytes) and accesses byte -" in call.wraps and "cutlass.Int64(row)" in call.wraps


def test_an_index_of_64_bits_is_not_and_what_was_tried_is_said():
    call = recorded("o11_honest_64_bits")
    assert not call.wraps
    assert call.remark == "the addresses of 26 blocks, the last among them, were computed: no index wraps"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code"), [("o11_wraps_at_16_bits", ExitCode.WRONG_RESULT), ("o11_honest_packed_rows", ExitCode.PASSED)]
)
def test_a_row_of_16_bits_is_told_from_one_that_is_put_together(name, code):
    verdict = verdict_here(ADVERSARIAL / f"{name}.py", judge=FullSizeOnly, seeds=1)
    assert verdict.exit_code == code, verdict.summary
    assert ("an index of 16 bits wraps" in verdict.cases[1].explanation) == (code != ExitCode.PASSED)


@pytest.mark.slow
def test_a_verdict_says_what_the_problem_declares_and_what_was_not_drawn_for_it(write_file):
    source = (ADVERSARIAL / "v2_honest_mask_taken_for_causal.py").read_text()
    verdict = verdict_here(write_file(f'{source}\n\nDOMAIN = {{"mask": "causal"}}\n'), seeds=1)
    assert verdict.passed and " for `mask` causal only" in verdict.summary, verdict.summary
    mask = next(kind for kind in verdict.kinds if kind.name == "mask")
    assert mask.left_out["other values"] == "DOMAIN declares that it is causal"
    assert not {"random mask", "all true", "all false"} & set(mask.drawn)
    assert any("other values (DOMAIN declares that it is causal)" in line for line in table(verdict))


def test_a_kernel_of_the_file_that_no_case_launched_is_told(write_file):
    other = "@cute.kernel\ndef other_kernel(x: cute.Tensor):\n    x[0] = x[0]\n\n\n@cute.jit\n"
    assert REVERSE.count("@cute.jit\n") == 1
    verdict = verdict_here(write_file(REVERSE.replace("@cute.jit\n", other)), judge=ShortJudge, seeds=1)
    assert verdict.passed and verdict.summary.endswith("; no case launched other_kernel")
    assert "no case launched" not in verdict_here(write_file(REVERSE), judge=ShortJudge, seeds=1).summary


BRANCHES = """\
def kernel_fn(x):
    if x.shape[0] == 3:
        raise ValueError("not three")
    if x.shape[0] > 1 << 20:
        x = x.clone()
        if x.is_contiguous():
            x = x.view(-1)
    elif x.dtype == torch.float16:
        helper(x)
    else:
        helper(x)
    return launched(x)


def helper(x):
    rows = 4 if x.ndim == 7 else 2
    if x.ndim == 7:
        return None


"""


def test_branches_of_host_code_that_no_case_took_are_told_once_and_refusals_are_not(write_file):
    source = REVERSE.replace("def kernel_fn(x):", BRANCHES + "def launched(x):")
    path = write_file(source)
    line = source[: source.index("        x = x.clone()")].count("\n") + 1
    verdict = verdict_here(path, judge=ShortJudge, seeds=1)
    assert verdict.passed
    told = f"; no case took the branch of host code at lines {line}, {line + 4}, {line + 11}, {line + 13}"
    assert verdict.summary.endswith(told), verdict.summary
