"""The last line of a verification names the case that decided, and does not say again what is wrong with it."""

from pathlib import Path

import pytest

from cutesmith.commands.verify import table
from cutesmith.judge.conclusion import Conclusion
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import verify_kernel
from cutesmith.report.stages import Said
from cutesmith.verdicts import CaseOutcome, CaseReport, ExitCode, Mechanism, Rule, VerifyVerdict, Violation
from tests.judge.in_process import LocalJudge, verdict_here


def test_each_failure_is_told_once():
    slip = Violation(None, Mechanism.FLOAT64_REFERENCE, "0 / 0", reject=False)
    wrong = CaseReport(name="zeros", inputs="").violated(slip)
    cheat = CaseReport(name="offsets", inputs="")
    cheat = cheat.violated(Violation(Rule.W1, Mechanism.DISPATCH_MODE, "torch computes"))
    summary = f"relu.py: offsets: {cheat.explanation} (and 1 other cases)"
    verdict = VerifyVerdict(
        exit_code=ExitCode.REJECTED,
        summary=summary,
        path="/kernels/relu.py",
        ran_on="gpu",
        cases=(wrong, cheat),
        decided_by="offsets",
    )
    lines = list(table(verdict))
    assert lines[-1] == "rejected: relu.py: offsets (and 1 other cases) (0.0 s)"
    assert sum("torch computes" in line for line in lines) == sum("0 / 0" in line for line in lines) == 1


def test_a_verdict_without_a_failed_case_says_all():
    verdict = VerifyVerdict(exit_code=ExitCode.TIMED_OUT, summary="relu.py: too slow", path="relu.py", ran_on="gpu")
    assert list(table(verdict))[-1].startswith("timed_out: relu.py: too slow")


def test_a_tolerance_that_does_not_count_is_told(tmp_path):
    slip = Violation(None, Mechanism.FLOAT64_REFERENCE, "1 of 64 elements are out of tolerance", reject=False)
    kernel = tmp_path / "relu.py"
    kernel.write_text('TOLERANCE = {"rtol": 1e-2}\ndef kernel_fn(x): return x\n')
    told = {"cases": (CaseReport(name="zeros", inputs="").violated(slip),), "ran_on": "emulator", "device_name": ""}
    told |= {"path": kernel, "reduced": "", "shrunk": {}, "shapes": True, "kinds": (), "idle": (), "own_layouts": {}}
    told["tf32_convolutions"] = False
    ignored = "TOLERANCE of relu.py does not count: the problem says what is allowed"
    reached = Conclusion(own_problem=False, **told).reached()
    assert reached.exit_code is ExitCode.WRONG_RESULT and reached.summary.endswith(ignored)
    verdict = VerifyVerdict(
        exit_code=reached.exit_code,
        summary=reached.summary,
        path=str(kernel),
        ran_on="emulator",
        cases=told["cases"],
        decided_by=reached.case,
        note=reached.note,
    )
    assert list(table(verdict))[-1] == f"wrong_result: relu.py: zeros. {ignored} (0.0 s)"
    assert ignored not in Conclusion(own_problem=True, **told).reached().summary


def test_what_no_case_ran_is_told_of_a_kernel_that_is_not_verified_too(tmp_path):
    kernel = tmp_path / "relu.py"
    kernel.write_text("def kernel_fn(x): return x\n")
    case = CaseReport(
        name="code", inputs="", outcome=CaseOutcome.NOT_EXECUTED, remark="at full size b_kernel is launched"
    )
    reached = Conclusion(
        path=kernel,
        cases=(case,),
        ran_on="emulator",
        device_name="",
        reduced="",
        shrunk={},
        shapes=True,
        kinds=(),
        idle=("took the branch of host code at line 4",),
        own_layouts={},
        own_problem=False,
        tf32_convolutions=False,
    ).reached()
    assert reached.exit_code is ExitCode.UNAVAILABLE
    assert "else 0 cases; no case took the branch of host code at line 4\n" in reached.summary


def test_a_quick_run_says_what_it_ran_and_what_it_left(tmp_path):
    path = tmp_path / "kernel.py"
    lines = "import torch\ndef reference_fn(x): return x + 1\ndef get_inputs(): return [torch.ones(4, 8)]\n"
    path.write_text(f"{lines}def kernel_fn(x): return torch.from_numpy(x.numpy() + 1)\n")
    quick, full = (verdict_here(path, on="cpu", quick=quick) for quick in (True, False))
    few = "offsets, without structure, equal values, ends and mixed sizes"
    told = f"; --quick leaves to a run without it: {few} and 4 more"
    assert told in quick.summary, quick.summary
    assert {*quick.left} & {case.name.removeprefix("derived: ") for case in full.cases} and full.left == ()
    assert "--quick" not in full.summary


@pytest.mark.parametrize(("own_problem", "told"), [(False, True), (True, False)])
def test_options_in_a_kernel_file_beside_another_problem_are_said_not_to_count(tmp_path, own_problem, told):
    path, problem = tmp_path / "kernel.py", tmp_path / "problem.py"
    lines = "import torch\ndef reference_fn(x): return x + 1\ndef get_inputs(rows=4): return [torch.ones(rows, 8)]\n"
    path.write_text(
        f"{lines}EMULATED_SIZES = {{'rows': 2}}\ndef kernel_fn(x): return torch.from_numpy(x.numpy() + 1)\n"
    )
    problem.write_text(lines)
    judge = LocalJudge(path=path, problem=path if own_problem else problem, options=VerifyOptions(processes=1))
    verdict = judge.verdict("cpu")
    sentence = "EMULATED_SIZES of kernel.py does not count: write it into the problem's file"
    assert verdict.passed and (sentence in verdict.summary) == told, verdict.summary


@pytest.mark.slow
def test_a_case_whose_launches_were_only_recorded_is_not_ok():
    kernel = Path(__file__).resolve().parents[2] / "examples_index" / "kernels" / "relu_minimal.py"
    verdict = verify_kernel(kernel, VerifyOptions(), on="compile")
    assert verdict.status == "compiled"
    assert {case.outcome for case in verdict.cases} == {CaseOutcome.RECORDED}
    lines = list(table(verdict))
    assert not any(line.startswith("ok") for line in lines)
    assert lines[0].endswith("recorded: 1 launch, no value was compared")
    assert "4 recorded cases" in lines[-1]


LENGTHS = """
import numpy
import torch

def reference_fn(x):
    return x.norm(dim=-1)

def get_inputs():
    return [{scale} * torch.randn(16, 64)]

def kernel_fn(x):
    y = torch.empty(x.shape[:-1])
    y.numpy()[...] = numpy.sqrt((x.numpy().astype("float64") ** 2).sum(-1)){wrong}
    return y
"""


@pytest.mark.parametrize("wrong", ["", "[:1] + 7"], ids=["right", "wrong"])
def test_a_kernel_of_which_no_element_could_be_judged_is_not_verified(tmp_path, wrong):
    """PyTorch's own norm of such numbers overflows, so that no result of these inputs is right or wrong."""
    path = tmp_path / "kernel.py"
    path.write_text(LENGTHS.format(scale="1e25", wrong=wrong))
    verdict = verdict_here(path, on="cpu")
    assert {case.outcome for case in verdict.cases} == {CaseOutcome.NOT_DECIDED}
    assert (verdict.exit_code, verdict.status) == (ExitCode.UNAVAILABLE, "not decided"), verdict.summary
    assert verdict.mechanism == Mechanism.NOTHING_DECIDED.value and "no element" in verdict.summary
    said = Said.of(verdict.to_dict())
    assert (said.kind, said.words) == ("fair", "not decided")


def test_a_kernel_that_raises_on_derived_inputs_is_told_on_which(tmp_path):
    """It raises what Python raises by itself, so that it declines nothing."""
    path = tmp_path / "kernel.py"
    text = LENGTHS.format(scale="1.0", wrong="")
    path.write_text(
        text.replace("    y = torch.empty", "    {True: 0}[bool(numpy.isfinite(x.numpy()).all())]\n    y = torch.empty")
    )
    verdict = verdict_here(path, on="cpu")
    assert verdict.exit_code == ExitCode.CRASHED, verdict.summary
    assert "derived: NaN and Inf [float32[16, 64]]: kernel.py:" in verdict.summary


@pytest.mark.slow
def test_ordinary_values_of_the_same_problem_are_decided(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(LENGTHS.format(scale="1.0", wrong="[:1] + 7"))
    assert verdict_here(path, on="cpu").cases[0].outcome is CaseOutcome.WRONG_RESULT


SPREAD = """
import numpy
import torch

DERIVED_SHAPES = True

def reference_fn(x):
    return (x - x.mean(-1, keepdim=True)).square().sum(-1) / (x.shape[-1] - 1)

def get_inputs():
    return [torch.randn(16, 64)]

def kernel_fn(x):
    y, values = torch.empty(x.shape[:-1]), x.numpy().astype("float64")
    with numpy.errstate(all="ignore"):
        y.numpy()[...] = ((values - values.mean(-1, keepdims=True)) ** 2).sum(-1) / {divisor}
    return y
"""


@pytest.mark.slow
def test_a_case_whose_results_are_all_nan_is_not_decided(tmp_path):
    """The variance of one element is 0 / 0: a kernel that gives NaN there is neither right nor wrong."""
    path = tmp_path / "kernel.py"
    path.write_text(SPREAD.format(divisor="numpy.float64(x.shape[-1] - 1)"))
    verdict = verdict_here(path, on="cpu")
    assert verdict.passed, verdict.summary
    outcomes = {case.name: case for case in verdict.cases}
    of_one = outcomes["derived: size 1 for 64"]
    assert of_one.outcome is CaseOutcome.NOT_DECIDED and "Inf or NaN everywhere" in of_one.remark
    assert outcomes["derived: size 1 for 16"].outcome is CaseOutcome.PASSED
    assert "not decided" in verdict.summary


@pytest.mark.slow
def test_a_number_where_all_results_are_nan_is_still_wrong(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(SPREAD.format(divisor="max(1, x.shape[-1] - 1)"))
    assert verdict_here(path, on="cpu").decided_by == "derived: size 1 for 64"
