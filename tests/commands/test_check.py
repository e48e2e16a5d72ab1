"""`cutesmith check`: every stage in one call, the first that fails ends it, and what passed is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.checkpoints import CheckpointStore
from cutesmith.commands import verify
from cutesmith.commands._last_check import compiled_before, judged, keep
from cutesmith.commands.check import MOST_LINES, CheckOptions, _kept, check_kernel, main, table
from cutesmith.compiling.compilation import compile_kernel
from cutesmith.errors import ContractError
from cutesmith.lint import lint_file
from cutesmith.verdicts import (
    ArchReport,
    CaseOutcome,
    CaseReport,
    CheckVerdict,
    CompileVerdict,
    ExitCode,
    Finding,
    GlobalAccess,
    InputKind,
    LintVerdict,
    Mechanism,
    Touched,
    VerifyVerdict,
    Violation,
)
from tests.commands.test_compile import KERNEL

ARCH = ArchReport(arch="sm_90a", exit_code=ExitCode.PASSED, compile_seconds=0.5, kernels=(KERNEL,))

RELU = (Path(__file__).parents[1] / "kernels" / "relu_tvm_ffi.py").read_text(encoding="utf-8")
PASSED = CheckVerdict(
    exit_code=ExitCode.PASSED,
    summary="verified",
    path="kernel.py",
    stages=(
        VerifyVerdict(exit_code=ExitCode.PASSED, summary="verified", path="kernel.py", ran_on="emulator", device="x"),
    ),
)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    """Lines are as wide as the terminal, 80 columns where pytest starts processes."""
    monkeypatch.setenv("COLUMNS", "160")


def check(capsys, *arguments: object) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().out


@pytest.mark.slow
def test_a_right_kernel_goes_through_all_stages_and_is_kept(capsys, write_file):
    path = write_file(RELU)
    code, out = check(capsys, path, "--quick", "--on", "emulator", "--note", "vectors of four", "--json")
    verdict = json.loads(out)
    assert (code, verdict["status"]) == (0, "verified on the emulated GPU, with quick values")
    assert [stage["stage"] for stage in verdict["stages"]] == ["lint", "compile", "verify"]
    assert [arch["arch"] for arch in verdict["stages"][1]["archs"]] == ["sm_90a"]
    assert verdict["untimed"] == "nothing was timed: it ran on the emulated GPU (sm_90a)"
    (kept,) = CheckpointStore(path).checkpoints()
    assert (kept.number, kept.note, kept.verdict["status"]) == (
        verdict["checkpoint"],
        "vectors of four",
        verdict["status"],
    )


@pytest.mark.slow
def test_the_full_check_after_a_quick_one_takes_its_compilation_and_all_details_are_saved(capsys, write_file):
    path = write_file(RELU)
    first = json.loads(check(capsys, path, "--quick", "--on", "emulator", "--json")[1])
    saved = path.parent / ".cutesmith" / "checks" / "kernel.py.json"
    assert first["saved"] == str(saved) and json.loads(saved.read_text()) == first
    own = json.loads(compile_kernel(path, ("sm_90a",)).to_json())
    (kernel,), (of_check,) = own["archs"][0]["kernels"], first["stages"][1]["archs"][0]["kernels"]
    assert kernel == of_check and kernel["global_accesses"]
    code, out = check(capsys, path, "--on", "emulator")
    shown = out.splitlines()
    assert code == 0 and shown[1].endswith("nothing was executed (as in the last check: nothing changed)")
    assert shown[2].strip().startswith("relu_kernel: ") and shown[2].endswith(" registers a thread, no spills")
    path.write_text(RELU + "\n# edited\n")
    assert "as in the last check" not in check(capsys, path, "--quick", "--on", "emulator")[1]


def test_only_a_whole_compilation_of_the_same_files_is_taken_again(write_file):
    path = write_file(RELU)
    problem = write_file("x = 1\n", "other.py")
    key = judged(path, None, "sm_90a")
    assert key == judged(path, None, "sm_90a")
    assert len({key, judged(path, None, "sm_80"), judged(path, str(problem), "sm_90a")}) == 3
    compiled = CompileVerdict(exit_code=ExitCode.PASSED, summary="1 kernel compiled", path=str(path), archs=(ARCH,))
    kept = keep(replace(PASSED, path=str(path), judged=key, stages=(compiled, *PASSED.stages)))
    assert compiled_before(path, key) == compiled and compiled_before(path, key[::-1]) is None
    place = Path(kept.saved)
    place.write_text(place.read_text()[:-9])
    assert compiled_before(path, key) is None
    place.unlink()
    assert compiled_before(path, key) is None
    failed = replace(compiled, exit_code=ExitCode.CRASHED)
    keep(replace(PASSED, path=str(path), judged=key, stages=(failed,)))
    assert compiled_before(path, key) is None


def test_details_that_cannot_be_saved_do_not_change_the_verdict(capsys, write_file):
    path = write_file(RELU)
    (path.parent / ".cutesmith").write_text("a file where a folder should be")
    verdict = replace(PASSED, path=str(path))
    assert keep(verdict) == verdict and "the details were not saved in" in capsys.readouterr().err


def test_a_problem_beside_the_kernel_that_was_not_asked_for_is_told(capsys, write_file):
    kernel = write_file("def kernel_fn(x):\n    return x\n")
    beside = write_file("def reference_fn(x):\n    return x\n", "problem.py")
    code, _ = check(capsys, kernel)
    assert code == 2
    with pytest.raises(ContractError) as raised:
        check_kernel(kernel, CheckOptions())
    assert f"problem.py lies beside it: --problem {beside}" in raised.value.hint
    shown = list(table(replace(PASSED, unused_problem="problem.py")))
    assert "note       problem.py was not used: --problem problem.py judges by it" in shown


def test_registers_spills_their_cause_and_scattered_accesses_stand_beneath_the_compilation():
    scattered = GlobalAccess("ld.global.b32", "kernel.py:31", True, Touched(4, 512, 512, 128, 16))
    whole = GlobalAccess("st.global.b32", "kernel.py:32", False, Touched(4, 512, 512, 16, 16))
    spilling = replace(KERNEL, spill_store_bytes=64, spill_load_bytes=96, notes=("registers ran out at 40 a thread",))
    kernels = (replace(KERNEL, spill_store_bytes=0, global_accesses=(scattered, whole)), spilling, KERNEL)
    compiled = CompileVerdict(
        exit_code=ExitCode.PASSED, summary="done", path="kernel.py", archs=(replace(ARCH, kernels=kernels),)
    )
    shown = [line.strip() for line in table(replace(PASSED, stages=(compiled, *PASSED.stages)))]
    assert shown[1:6] == [
        "relu_kernel: 40 registers a thread, 64/96 B spilled (store/load)",
        "registers ran out at 40 a thread",
        "relu_kernel: 40 registers a thread, no spills",
        "ld.global.b32 in a loop, line 31: a warp asks 128 B, 32 sectors where 4 would do",
        "and 1 more kernels or variants (scripts/compile_kernel.py)",
    ]


@pytest.mark.slow
def test_a_wrong_kernel_ends_with_its_cases_and_is_not_kept(capsys, write_file):
    path = write_file(RELU.replace("return torch.relu(x)", "return torch.relu(x) + 1"))
    code, out = check(capsys, path, "--quick", "--on", "emulator")
    names = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert code == 1 and names[:3] == ["lint", "compile", "verify"] and "FAIL" in names
    assert len(out.splitlines()) < 45 and out.splitlines()[-1].startswith("wrong_result: kernel.py: get_inputs()")
    assert CheckpointStore(path).checkpoints() == []


def test_a_finding_of_lint_ends_it_at_once(capsys, write_file):
    path = write_file(RELU.replace("cute.compile(", "cute.compil("))
    code, out = check(capsys, path)
    assert code == 3 and out.splitlines()[0].startswith("lint       lint: ") and "CS101" in out
    verdict = json.loads(check(capsys, path, "--json")[1])
    assert [stage["stage"] for stage in verdict["stages"]] == ["lint"] and verdict["checkpoint"] == 0


def test_a_file_that_is_not_there_is_a_verdict_and_a_tolerance_below_zero_is_refused(capsys, tmp_path):
    assert check_kernel(tmp_path / "gone.py", CheckOptions()).exit_code == ExitCode.USAGE
    assert check(capsys, tmp_path / "gone.py", "--rtol", "-1")[0] == 2


def test_the_details_of_a_stage_fit_a_screen():
    findings = tuple(
        Finding(rule="CS101", severity="error", line=n, column=1, message="m " * 200, fix="") for n in range(90)
    )
    lint = LintVerdict(exit_code=ExitCode.LINT, summary="90 errors", path="kernel.py", findings=findings)
    shown = list(table(replace(PASSED, exit_code=ExitCode.LINT, summary="90 errors", stages=(lint,))))
    assert len(shown) == MOST_LINES + 3 and max(map(len, shown)) <= 200
    assert shown[-2] == "… 60 more lines: python scripts/lint_kernel.py kernel.py"
    beside = replace(PASSED, exit_code=ExitCode.LINT, summary="90 errors", stages=(lint,), problem="a problem.py")
    told = list(table(beside))[-2]
    assert told == "… 60 more lines: python scripts/lint_kernel.py kernel.py --problem 'a problem.py'"


def test_a_kernel_without_a_reference_hears_of_the_option_that_names_one(capsys, write_file):
    kernel, problem = write_file("def kernel_fn(x):\n    return x\n"), write_file(RELU, "relu.py")
    with pytest.raises(ContractError) as raised:
        check_kernel(kernel, CheckOptions())
    assert "--problem FILE" in raised.value.hint
    assert check_kernel(kernel, CheckOptions(), str(problem)).problem == str(problem)


def test_what_is_wrong_is_told_whole_before_the_cases_that_passed():
    case = CaseReport(name="get_inputs()", inputs="float32[4, 4]")
    violation = Violation(None, Mechanism.FLOAT64_REFERENCE, f"{'element ' * 40}the last word", reject=False)
    cases = (*(replace(case, name=f"case {n}") for n in range(50)), case.violated(violation))
    verified = replace(PASSED.stages[0], exit_code=ExitCode.WRONG_RESULT, cases=cases)
    shown = list(table(replace(PASSED, exit_code=ExitCode.WRONG_RESULT, summary="wrong", stages=(verified,))))
    text = " ".join(" ".join(shown).split())
    assert max(map(len, shown)) <= 160
    assert "the last word" in text and text.index("FAIL") < text.index("ok case 0")
    assert "python scripts/verify_kernel.py" in shown[-2]


def test_of_many_draws_the_first_are_named_and_all_with_verbose():
    kind = InputKind(name="x", kind="float", drawn=tuple(f"draw {n}" for n in range(9)))
    verified = replace(PASSED.stages[0], kinds=(kind,))
    assert "drawn for `x` (float): draw 0, draw 1, draw 2 and 6 more (--verbose)" in list(verify.table(verified))
    assert any("draw 8" in line for line in verify.table(verified, verbose=True))


def test_a_long_line_is_wrapped_and_declined_cases_are_named():
    (verified,) = PASSED.stages
    assert isinstance(verified, VerifyVerdict)
    cases = [CaseReport(name=f"rows of {n}", inputs="", outcome=CaseOutcome.DECLINED) for n in range(14)]
    verified = replace(verified, summary=f"{'verified ' * 30}by the file's own reference", cases=tuple(cases))
    shown = list(table(replace(PASSED, stages=(verified,))))
    text = " ".join(" ".join(shown).split())
    assert max(map(len, shown)) <= 160
    assert "by the file's own reference" in text
    assert "14 cases declined by the kernel: rows of 0; rows of 1; " in text and "rows of 11; and 2 more (" in text


def test_draws_that_were_declined_are_counted_apart_from_cases():
    (verified,) = PASSED.stages
    kind = InputKind(name="x", kind="float", declined=("transposed", "expanded"))
    case = CaseReport(name="rows of 0", inputs="", outcome=CaseOutcome.DECLINED)
    shown = list(table(replace(PASSED, stages=(replace(verified, cases=(case,), kinds=(kind,)),))))
    assert [line.strip() for line in shown if "declined" in line] == [
        "1 case declined by the kernel: rows of 0",
        "2 draws of single inputs declined by the kernel: transposed for `x`; expanded for `x`",
    ]


def test_warnings_of_lint_are_told_with_their_text_and_notes_are_not():
    found = [
        Finding(rule="CS425", severity="warning", line=n, column=0, message=f"Line {n} waits.", fix="Load first.")
        for n in range(6)
    ]
    note = Finding(rule="CS501", severity="note", line=1, column=0, message="No reference.", fix="")
    linted = LintVerdict(exit_code=ExitCode.PASSED, summary="6 warnings", path="kernel.py", findings=(*found, note))
    text = "\n".join(table(replace(PASSED, stages=(linted, *PASSED.stages))))
    assert "line 3: CS425: Line 3 waits. Load first." in text and "and 2 more (scripts/lint_kernel.py)" in text
    assert "CS501" not in text


def test_a_kernel_beside_its_problem_is_not_asked_for_a_reference(write_file):
    text = "def kernel_fn(x):\n    return x\n"
    path = write_file(text)
    assert [found.rule for found in lint_file(path).findings] == ["CS501"]
    assert lint_file(path, problem=True).findings == ()
    assert [found.rule for found in lint_file(write_file("x = 1\n"), problem=True).findings] == ["CS501"]


def test_what_was_edited_meanwhile_or_cannot_be_written_is_not_kept(write_file):
    path = write_file(RELU)
    passed = replace(PASSED, path=str(path))
    edited = _kept(passed, b"another text", "")
    assert (edited.exit_code, edited.checkpoint) == (
        ExitCode.USAGE,
        0,
    ) and "edited while it was judged" in edited.summary
    (path.parent / ".cutesmith").write_text("a file where a folder should be")
    lost = _kept(passed, path.read_bytes(), "")
    assert not lost.passed and lost.checkpoint == 0 and lost.summary.startswith("verified; not kept: ")
