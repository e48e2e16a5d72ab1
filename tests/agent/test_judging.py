"""What the judge is asked and what a model reads of its verdicts; every stage's text from the stage's own types."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.agent.outcome import KeepVersion, RecordVerdict
from cutesmith.agent.session_state import TIE
from cutesmith.agent.texts.bounded_text import LIMIT, bounded
from cutesmith.agent.texts.verdict_texts import CHAINED, describe
from cutesmith.agent.tools import judging
from cutesmith.agent.tools.judging_tools import JudgingTools
from cutesmith.verdicts import (
    ArchReport,
    BenchmarkVerdict,
    CaseOutcome,
    CaseReport,
    CompileVerdict,
    ExitCode,
    Finding,
    KernelReport,
    LintVerdict,
    Mechanism,
    OutputError,
    Timing,
    Verdict,
    VerifyVerdict,
    Violation,
)
from tests.agent.tool_bench import RELU, ToolBench


def timing(name: str, median: float, **fields: object) -> Timing:
    values = {"samples_us": (median,), "median_us": median, "q1_us": median, "q3_us": median, **fields}
    return Timing(name=name, **values)


def verify(**fields: object) -> VerifyVerdict:
    filled = {"exit_code": ExitCode.PASSED, "summary": "kernel.py: 5 cases", "path": "k", "ran_on": "gpu", **fields}
    return VerifyVerdict(**filled)


def benchmark(median: float, **fields: object) -> BenchmarkVerdict:
    filled = {"exit_code": ExitCode.PASSED, "summary": "timed", "path": "k", "timings": (timing("kernel", median),)}
    return BenchmarkVerdict(**{**filled, **fields})


def record(bench: ToolBench, text: str, *verdicts: Verdict, line: int = 1) -> None:
    """Let the state know a text and what was said of it."""
    bench.seq += 1
    digest = hashlib.sha256(text.encode()).hexdigest()
    effects = [RecordVerdict(digest, text, verdict.to_dict()).to_dict() for verdict in verdicts]
    bench.state.follow({"seq": bench.seq, "line": line, "kind": "tool", "effects": effects})


def told(bench: ToolBench, *verdicts: Verdict) -> str:
    """What a model reads of its kernel's place after these verdicts."""
    kernel = judging.take_snapshot(bench.workbench)
    return judging.comparison(bench.workbench, kernel, [verdict.to_dict() for verdict in verdicts])


# ----------------------------------------------------------------------------------------------------------- snapshot


def test_a_snapshot_is_the_text_that_was_hashed_whatever_follows(drafted):
    kernel = judging.take_snapshot(drafted.workbench)
    (drafted.work / "kernel.py").write_text("changed afterwards")
    assert hashlib.sha256(kernel.path.read_bytes()).hexdigest() == kernel.sha256
    assert kernel.path == drafted.root / "judged" / kernel.sha256[:12] / "kernel.py"
    again = judging.take_snapshot(drafted.workbench)
    assert again.sha256 != kernel.sha256 and kernel.path.read_text() == RELU == kernel.text


def test_a_snapshot_that_somebody_changed_is_made_anew(drafted):
    kernel = judging.take_snapshot(drafted.workbench)
    kernel.path.chmod(0o644)
    kernel.path.write_text("something else")
    assert judging.take_snapshot(drafted.workbench).path.read_text() == RELU


# ------------------------------------------------------------------------------------------------------------ state


def test_the_first_verified_kernel_is_the_best(drafted):
    assert told(drafted, verify(), benchmark(12.5)) == "NEW BEST, the first: verified, 12.50 µs."


def test_a_faster_one_names_what_it_beats_and_a_slower_one_what_beats_it(drafted):
    record(drafted, "old", verify(), benchmark(20.0))
    drafted.workspace.apply(KeepVersion("kernel.py", "old", "", {}), 1)
    old = hashlib.sha256(b"old").hexdigest()[:8]
    faster = f"NEW BEST: verified, 10.00 µs; before it {old} (verified, 20.00 µs; checkpoint 1)."
    assert told(drafted, verify(), benchmark(10.0)) == faster
    slower = f"Best so far is {old} (verified, 20.00 µs; checkpoint 1); it stays the result"
    assert told(drafted, verify(), benchmark(30.0)).startswith(slower)
    partial = told(drafted, verify(declined=3), benchmark(2.0))
    assert partial.startswith("Best so far is") and partial.endswith("This one declined 3 cases, that one 0.")


def test_the_best_of_another_line_is_named_as_such(drafted):
    record(drafted, "theirs", verify(), benchmark(5.0), line=2)
    assert "(verified, 5.00 µs; line 2)" in told(drafted, benchmark(9.0))


def test_a_failure_of_what_was_best_is_told_as_it_will_stand(drafted):
    record(drafted, RELU, verify())
    assert told(drafted, verify(exit_code=ExitCode.WRONG_RESULT)) == "No kernel is verified yet."
    assert told(drafted, verify()) == "This version is the best so far: verified, not timed."
    assert drafted.state.best().state == "verified"  # asking changed nothing


def test_where_nothing_is_timed_the_latest_counts_and_it_is_said(drafted):
    record(drafted, "old", verify())
    latest = f"NEW BEST: verified, not timed ({TIE})"
    assert told(drafted, verify()).startswith(latest)


def test_a_benchmark_that_could_not_run_makes_nothing_the_best(drafted):
    record(drafted, RELU, verify())
    record(drafted, "newer", verify())
    newer = hashlib.sha256(b"newer").hexdigest()[:8]
    unable = benchmark(9.0, exit_code=ExitCode.UNAVAILABLE, timings=())
    assert told(drafted, unable).startswith(f"Best so far is {newer} ")


def test_a_pass_after_a_failure_of_the_same_text_does_not_count_and_it_is_said(drafted):
    record(drafted, RELU, verify(exit_code=ExitCode.WRONG_RESULT))
    assert told(drafted, verify()) == f"{judging.CONDEMNED} No kernel is verified yet."
    record(drafted, "good", verify())
    assert told(drafted, verify()).startswith(f"{judging.CONDEMNED} Best so far is ")


def test_what_is_kept_has_the_verdict_and_the_time_without_the_cases(drafted):
    kernel = judging.take_snapshot(drafted.workbench)
    effect = judging.kept(kernel, verify().to_dict(), benchmark(12.5).to_dict(), "")
    assert (effect.kind, effect.path, effect.text, effect.note) == ("checkpoint", "kernel.py", RELU, "verified")
    assert effect.verdict["median_us"] == 12.5 and "cases" not in effect.verdict
    untimed = judging.kept(kernel, verify().to_dict(), benchmark(1.0, exit_code=ExitCode.CRASHED).to_dict(), "mine")
    assert "median_us" not in untimed.verdict and untimed.note == "mine"


def test_a_pass_on_a_gpu_is_kept_with_its_time_in_the_same_call(drafted):
    kernel, tools = judging.take_snapshot(drafted.workbench), JudgingTools(drafted.workbench)
    outcome = tools.passed(kernel, verify().to_dict(), benchmark(12.5).to_dict(), "wider loads")
    assert [effect.kind for effect in outcome.effects] == ["judged", "judged", "checkpoint"]
    assert outcome.effects[2].verdict["median_us"] == 12.5
    assert outcome.text.index("verify: verified") < outcome.text.index("benchmark: passed")
    assert outcome.text.endswith("Kept as checkpoint 1.\nNEW BEST, the first: verified, 12.50 µs.")


def test_what_the_timing_finds_to_be_a_cheat_is_not_kept(drafted):
    kernel, tools = judging.take_snapshot(drafted.workbench), JudgingTools(drafted.workbench)
    rejected = benchmark(0.1, exit_code=ExitCode.REJECTED, rule="T1", summary="faster than memory")
    outcome = tools.passed(kernel, verify().to_dict(), rejected.to_dict(), "")
    assert [effect.kind for effect in outcome.effects] == ["judged", "judged"]
    assert "Rule T1." in outcome.text and outcome.text.endswith("No kernel is verified yet.")


# --------------------------------------------------------------------------------------------------------------- texts


def test_lint_lists_errors_first_with_their_fixes():
    warning = Finding(rule="CS301", severity="warning", line=3, column=1, message="slow", fix="widen")
    error = Finding(rule="CS101", severity="error", line=9, column=5, message="no such name", fix="cute.size")
    verdict = LintVerdict(exit_code=ExitCode.LINT, summary="1 error.", path="k", findings=(warning, error) * 20)
    lines = describe(verdict.to_dict()).splitlines()
    assert lines[:3] == ["lint: lint (exit code 3). 1 error.", "line 9:5 error CS101: no such name", "  fix: cute.size"]
    assert lines[-1] == "and 15 more findings"


def test_compile_tells_what_a_kernel_costs_and_what_the_hardware_refuses():
    kernel = KernelReport(
        name="kernel_cutlass_relu_kernel_tensorptrf32_0",
        arch="sm_90a",
        registers=255,
        stack_bytes=8,
        spill_store_bytes=16,
        spill_load_bytes=32,
        static_smem_bytes=0,
        dynamic_smem_bytes=400000,
        grid=(8, 1, 1),
        block=(128, 1, 1),
        cluster=(2, 1, 1),
        occupancy_blocks=0,
        occupancy_percent=0.0,
        occupancy_limit="shared memory",
        widest_global_load_bits=128,
        widest_global_store_bits=32,
        tensor_core_instructions={"wgmma": 4},
        launches=3,
        refused=("400000 bytes of shared memory a block: sm_90 has 232448",),
    )
    arch = ArchReport(arch="sm_90a", exit_code=ExitCode.DOES_NOT_COMPILE, compile_seconds=1.0, kernels=(kernel,))
    text = describe(
        CompileVerdict(exit_code=ExitCode.DOES_NOT_COMPILE, summary="refused", path="k", archs=(arch,)).to_dict()
    )
    for fact in (
        "sm_90a relu_kernel ×3: grid 8×1×1 block 128×1×1 cluster 2×1×1; 255 registers",
        "SPILLS 16 B stored, 32 B loaded",
        "0 B static + 400000 B dynamic",
        "limited by shared memory",
        "load 128 bits, store 32 bits",
        "tensor cores: wgmma ×4",
        "the hardware refuses this launch: 400000 bytes",
    ):
        assert fact in text


def test_a_compile_error_keeps_its_first_and_last_lines():
    error = "error[CODE]: the cause\n" + "noise\n" * 2000 + "suggestion: the way out"
    arch = ArchReport(
        arch="sm_90a",
        exit_code=ExitCode.DOES_NOT_COMPILE,
        compile_seconds=1.0,
        error=error,
        error_code="CODE",
        error_line=7,
    )
    text = describe(CompileVerdict(exit_code=ExitCode.DOES_NOT_COMPILE, summary="x", path="k", archs=(arch,)).to_dict())
    assert "CODE at line 7:\nerror[CODE]: the cause" in text and text.endswith("suggestion: the way out")
    assert len(text) < 3000


def failing_case(name: str) -> CaseReport:
    output = OutputError(
        output=0,
        dtype="bfloat16",
        shape=(128, 257),
        max_abs=0.5,
        max_rel=1.0,
        max_ulp=9.0,
        mismatches=12,
        elements=32896,
        worst_index=(110, 214),
        worst_actual="nan",
        worst_expected=1.25,
    )
    case = CaseReport(name=name, inputs="bfloat16[128, 257]", outputs=(output,))
    return case.violated(Violation(None, Mechanism.FLOAT64_REFERENCE, "12 wrong", reject=False))


def test_verify_shows_failing_cases_with_inputs_and_the_worst_element():
    cases = tuple(failing_case(f"case {n}") for n in range(6))
    passed = CaseReport(name="derived: tiny", inputs="bfloat16[2]")
    verdict = verify(exit_code=ExitCode.WRONG_RESULT, cases=(*cases, passed), log_tail="printed by the kernel")
    text = describe(verdict.to_dict(), closing=["Best so far is 123."])
    assert "FAIL case 0 [bfloat16[128, 257]]: 12 wrong" in text
    assert "worst element [110, 214]: actual nan, expected 1.25" in text
    assert "also FAIL: case 4; case 5" in text and "passed 1 of 7 cases: derived: tiny" in text
    assert text.splitlines()[-2:] == ["  printed by the kernel", "Best so far is 123."]


def test_verify_explains_a_failure_once():
    same = tuple(replace(failing_case(f"case {n}"), same_as="case 0") for n in (1, 2))
    text = describe(verify(exit_code=ExitCode.WRONG_RESULT, cases=(failing_case("case 0"), *same)).to_dict())
    assert text.count("12 wrong") == 1
    assert "the same in 2 other cases: case 1; case 2" in text


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (verify(exit_code=ExitCode.REJECTED, rule="R1"), ("verify: rejected (exit code 8)", "Rule R1.", "pointless")),
        (verify(exit_code=ExitCode.UNAVAILABLE), ("verify: unavailable (exit code 7)", "not verified")),
    ],
)
def test_a_rejection_names_its_rule_and_what_was_not_executed_is_not_called_verified(verdict, words):
    assert all(word in describe(verdict.to_dict()) for word in words)


@pytest.mark.parametrize("mechanism", [Mechanism.NOTHING_DECIDED, Mechanism.FULL_SIZE_LAUNCHES])
def test_a_verdict_that_says_itself_what_to_do_gets_no_other_advice(mechanism):
    text = describe(verify(exit_code=ExitCode.UNAVAILABLE, mechanism=mechanism.value).to_dict())
    assert "Nothing was executed" not in text


def test_benchmark_compares_with_baselines_and_floor():
    timings = (
        timing("kernel.py", 10.0, host_us=3.0),
        timing("eager", 25.0),
        timing("torch.compile", 0.0, error="failed: x"),
    )
    verdict = benchmark(
        10.0,
        timings=timings,
        device="NVIDIA H200",
        speedups={"eager": 2.5},
        floor_us=8.0,
        floor_kind="bytes",
        floor_percent=80.0,
        algorithmic_bytes=33_554_432,
        copy_bytes_per_second=4.2e12,
    )
    text = describe(verdict.to_dict())
    assert "kernel.py: 10.00 µs (quartiles 10.00 to 10.00, host 3.0 µs a call)" in text
    assert "eager: 25.00 µs" in text and "the kernel is 2.50 times as fast" in text
    assert "torch.compile: failed: x" in text
    assert "floor 8.00 µs (33554432 bytes at 4200 GB/s, a large copy); the kernel reaches 80.0 % of it" in text
    by_products = {
        **verdict.to_dict(),
        "floor_kind": "flops",
        "algorithmic_flops": 2e9,
        "matmul_flops_per_second": 8e14,
    }
    assert "floor 8.00 µs (2 GFLOP at 800 TFLOP/s, a large matrix product)" in describe(by_products)


PROFILE = {
    "stage": "profile",
    "status": "profiled",
    "exit_code": 0,
    "summary": "1 launch",
    "note": "",
    "advice": [
        {"kernel": "line 12", "message": "m", "metric": "sectors", "value": 31.0, "reference": "p.md#a", "weight": 0.5}
    ],
}


def test_a_measured_profile_gives_advice_first_then_every_number():
    kernel = {"name": "relu_kernel", "grid": [8, 1, 1], "block": [128, 1, 1], "duration_us": 12.5, "dram_percent": 91.2}
    kernel |= {"l2_percent": None, "occupancy_limiter": "registers", "stalls": {"long_scoreboard": 0.625}}
    text = describe({**PROFILE, "kernels": [kernel], "emulated": None})
    assert text.index("- line 12: m (sectors 31; p.md#a)") < text.index("relu_kernel: grid 8×1×1")
    assert "duration_us 12.5, dram_percent 91.2" in text and "l2_percent" not in text
    assert "limited by registers" in text and "long_scoreboard 62 %" in text


def test_a_counted_profile_gives_faults_and_the_dearest_lines():
    access = {"space": "global", "kind": "read", "bytes_per_lane": 4, "requests": 8}
    access |= {"sectors_per_request": 32.0, "ideal_sectors_per_request": 4.0}
    lines = [
        {"file": "kernel.py", "line": n, "clocks": float(n), "warp_instructions": {"load": n}, "accesses": [access]}
        for n in range(1, 31)
    ]
    fault = {"kind": "race", "message": "two writes", "where": "kernel.py:9", "other": "kernel.py:8"}
    fault |= {"thread": [1, 0, 0], "block": [0, 0, 0], "count": 1}
    launch = {"kernel": "relu_kernel", "grid": [2, 1, 1], "block": [128, 1, 1], "instructions": 6400, "waves": 1}
    launch |= {"printed": "", "faults": [fault], "profile": {"clocks": {"L2": 128.0}, "lines": lines}}
    text = describe({**PROFILE, "kernels": [], "emulated": {"launches": [launch]}})
    assert "FAULT race at kernel.py:9: two writes" in text and "the other access is at kernel.py:8" in text
    assert "kernel.py:30: warp-instructions load 30" in text and "and 18 more lines" in text
    assert "global read, 4 bytes a lane, 8 requests, 32 sectors each (ideal 4)" in text


def test_the_judges_own_frames_are_no_news_for_the_model():
    own = 'Traceback (most recent call last):\n  File "judge.py"\ncutesmith.errors.CandidateError: kernel.py:3: no tile'
    log = f"Traceback …\nRuntimeError: no tile\n\n{CHAINED}\n\n{own}"
    text = describe(verify(exit_code=ExitCode.CRASHED, log_tail=log).to_dict())
    assert "RuntimeError: no tile" in text and "judge.py" not in text


def test_of_a_traceback_the_kernels_own_frames_stay():
    frame = '  File "{}", line 5, in f\n    code()\n    ^^^^^^'
    folder = Path(judging.__file__).parent
    places = ("/venv/lib/python3.11/site-packages/dsl/op.py", "kernel.py", f"{folder}/judging.py", "kernel.py")
    frames = [frame.format(place) for place in places]
    log = "\n".join(["printed first", "Traceback (most recent call last):", *frames, "ValueError: Type mismatch"])
    text = describe(verify(exit_code=ExitCode.CRASHED, log_tail=log).to_dict())
    assert text.count('File "kernel.py"') == 2 and text.count("code()") == 2
    assert "site-packages" not in text and str(folder) not in text
    assert "printed first" in text and text.splitlines()[-1] == "  ValueError: Type mismatch"


def test_cases_that_a_kernel_declines_are_not_counted_as_passed():
    cases = (
        CaseReport(name="a", inputs="x"),
        CaseReport(name="b", inputs="y", outcome=CaseOutcome.DECLINED, remark="z"),
    )
    text = describe(verify(cases=cases, declined=1).to_dict())
    assert "passed 1 of 2 cases\n" in text and "DECLINED 1: b. A kernel that takes every case" in text
    assert "  b [y]: declined: z" in text


def test_a_pass_is_one_line_with_the_worst_error_and_remarks_once():
    def case(name, ulp, problem=""):
        output = OutputError(
            output=0, dtype="bf16", shape=(4,), max_abs=ulp / 8, max_rel=0.01, max_ulp=ulp, mismatches=0, elements=4
        )
        return CaseReport(name=name, inputs=f"{name} in", remark=problem, outputs=(output,))

    cases = [case(f"set {n}", 0.1 * n, "not reproducible" if n > 6 else "") for n in range(9)]
    lines = describe(verify(cases=tuple(cases)).to_dict()).splitlines()
    assert lines[1:] == [
        "passed 9 of 9 cases: largest error 0.1 absolute, 0.01 relative, 0.8 ulp (set 8 [set 8 in])",
        "note: set 7 (and 1 more cases): not reproducible",
    ]


def test_paths_of_this_machine_become_names():
    names = {"/long/way/judged/0123/kernel.py": "kernel.py", "/long/way/problem.py": "problem.py"}
    verdict = verify(exit_code=ExitCode.CRASHED, summary="/long/way/judged/0123/kernel.py:3 and /long/way/problem.py:4")
    assert describe(verdict.to_dict(), names=names).endswith("kernel.py:3 and problem.py:4")


def test_every_text_is_bounded_and_keeps_its_end():
    cases = tuple(failing_case(f"case {n} " + "x" * 3000) for n in range(4))
    verdict = verify(exit_code=ExitCode.WRONG_RESULT, cases=cases, log_tail="y\n" * 5000)
    text = describe(verdict.to_dict(), closing=["the last word"])
    assert len(text) <= LIMIT and text.startswith("verify: wrong_result") and text.endswith("the last word")
    assert "characters left out" in text
    assert bounded("short") == "short" and len(bounded("x" * 99999, 500)) <= 500
