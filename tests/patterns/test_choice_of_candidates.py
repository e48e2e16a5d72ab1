"""Which candidate the generator keeps: its decisions on made-up verdicts, as a GPU and the stages would give them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cutesmith.commands.generate import summary_lines
from cutesmith.devices import Device
from cutesmith.patterns.elementwise.configuration import ElementwiseConfiguration
from cutesmith.patterns.generation.candidates import Candidate
from cutesmith.patterns.generation.drafting import Cover, Draft, Drafted
from cutesmith.patterns.generation.generate import Generation
from cutesmith.patterns.generation.output_folder import OutputFolder
from cutesmith.patterns.generation.target import Target
from cutesmith.report.generate_page import render_report
from cutesmith.runtime.tiling import Tiling
from cutesmith.verdicts import (
    BenchmarkVerdict,
    CaseOutcome,
    CaseReport,
    ExitCode,
    GenerateVerdict,
    LintVerdict,
    Mechanism,
    Timing,
    VerifyVerdict,
)
from tests.report.sample import compiled

H200 = Device(0, "NVIDIA H200", (9, 0), "580.0")


@dataclass
class ScriptedStages:
    """Gives each candidate the verdicts of a script: medians, and which are wrong; `stop` interrupts at a stage."""

    medians: list[float]
    wrong: tuple[int, ...] = ()
    broken: tuple[int, ...] = ()
    too_large: tuple[int, ...] = ()  # for the memory that there is
    stop: str = ""
    benchmarked: ExitCode = ExitCode.PASSED
    verified: list[int] = field(default_factory=list)
    remembered: str = ""  # the day of the race that the medians are from
    failing: tuple[str, ...] = ()  # the case in which each candidate is wrong
    spilling: tuple[int, ...] = ()
    compiled: list[int] = field(default_factory=list)

    def lint(self, candidates: list[Candidate], report: Callable[[int], None]) -> None:
        self._enter("lint")
        for candidate in candidates:
            candidate.verdicts.append(LintVerdict(exit_code=ExitCode.PASSED, summary="clean", path="k"))

    def compile(self, candidates: list[Candidate], report: Callable[[int], None]) -> None:
        self._enter("compile")
        for candidate in candidates:
            self.compiled.append(candidate.number)
            code = ExitCode.DOES_NOT_COMPILE if candidate.number in self.broken else ExitCode.PASSED
            verdict = compiled(32, registers=255 if candidate.number in self.spilling else 32)
            verdict = replace(verdict, exit_code=code, summary=f"compile {code.name}")
            candidate.verdicts.append(verdict)

    def verify(self, candidate: Candidate) -> VerifyVerdict:
        self.verified.append(candidate.number)
        code = ExitCode.WRONG_RESULT if candidate.number in self.wrong else ExitCode.PASSED
        mechanism = ""
        if candidate.number in self.too_large:
            code, mechanism = ExitCode.CRASHED, Mechanism.MEMORY_LIMIT.value
        cases = ()
        if self.failing and candidate.number in self.wrong:
            cases = (CaseReport(name=self.failing[candidate.number - 1], inputs="", outcome=CaseOutcome.WRONG_RESULT),)
        told = f"{cases[0].name}: verify {code.name}" if cases else f"verify {code.name}"
        verdict = VerifyVerdict(exit_code=code, summary=told, path="k", ran_on="gpu", mechanism=mechanism, cases=cases)
        candidate.verdicts.append(verdict)
        return verdict

    def time(self, candidates: list[Candidate]) -> str:
        self._enter("time")
        for candidate in candidates:
            median = self.medians[candidate.number - 1]
            candidate.timing = Timing(name="k", samples_us=(median,), median_us=median, q1_us=median, q3_us=median)
        return self.remembered

    def benchmark(self, path: Path) -> BenchmarkVerdict:
        self._enter("benchmark")
        return BenchmarkVerdict(
            exit_code=self.benchmarked, summary=f"benchmark {self.benchmarked.name}", path=str(path)
        )

    def _enter(self, stage: str) -> None:
        if stage == self.stop:
            raise KeyboardInterrupt


REFUSAL = "4096 threads a block: at most 1024"
SKIPPED = (Drafted(ElementwiseConfiguration(4096, 8, 1), Tiling(threads=4096), refusals=(REFUSAL,)),)


def play(
    tmp_path: Path,
    stages: ScriptedStages,
    *,
    benchmark: bool = True,
    passed: int = 0,
    covers: tuple[Cover, ...] = (),
    device: Device | None = H200,
) -> tuple[GenerateVerdict, str]:
    """What a run over candidates of these medians gives; several covers have as many of them each."""
    counts = [32 * number for number in range(1, len(stages.medians) + 1)]
    covers = covers or (Cover("elementwise", passed_bytes=passed),)
    kernels = tuple(
        Drafted(
            ElementwiseConfiguration(threads, 8, 1),
            Tiling(threads=threads),
            f"# candidate {number}\n",
            cover=(number - 1) * len(covers) // len(counts),
        )
        for number, threads in enumerate(counts, start=1)
    )
    draft, folder = Draft(kernels, 1, 1, covers, SKIPPED), OutputFolder(tmp_path / "out")
    target = Target("sm_90a", device, emulated=device is None)
    run = Generation(Path("problem.py"), target, draft, stages, folder, lambda *_: None, 0.0, benchmark, render_report)
    verdict = run.run()
    kernel = tmp_path / "out" / "kernel.py"
    return verdict, kernel.read_text() if kernel.exists() else ""


def test_two_candidates_that_fail_in_the_same_way_end_it(tmp_path: Path) -> None:
    """The fault is in what all share; another case that fails says nothing of those left."""
    same, different = ("NaN elsewhere",) * 4, ("NaN elsewhere", "zeros", "offsets", "NaN elsewhere")
    for failing, verified in ((same, [1, 2]), (different, [1, 2, 3, 4])):
        stages = ScriptedStages(medians=[40.0, 10.0, 20.0, 30.0], wrong=(1, 2, 3, 4), failing=failing)
        verdict, kernel = play(tmp_path, stages)
        assert (verdict.exit_code, kernel, stages.verified) == (ExitCode.WRONG_RESULT, "", verified)
        assert ("2 more not verified" in verdict.summary) == (failing is same)


def test_each_way_to_fail_is_told_once(tmp_path: Path) -> None:
    failing = ("NaN elsewhere", "zeros", "offsets")
    verdict, _ = play(tmp_path, ScriptedStages(medians=[10.0, 20.0, 30.0], wrong=(1, 2, 3), failing=failing))
    assert [verdict.summary.count(case) for case in failing] == [1, 1, 1], verdict.summary
    assert "verify of candidate 2: zeros" in verdict.summary and verdict.exit_code == ExitCode.WRONG_RESULT


RACES = {
    "the fastest": (ScriptedStages(medians=[30.0, 10.0, 20.0]), 2, [1, 2]),
    "not a fast one that is wrong": (ScriptedStages(medians=[30.0, 10.0, 20.0], wrong=(2,)), 3, [1, 2, 3]),
    "the first guess": (ScriptedStages(medians=[10.0, 30.0]), 1, [1]),
    "not a first guess that is wrong": (ScriptedStages(medians=[10.0, 30.0], wrong=(1,)), 2, [1, 2]),
}


@pytest.mark.parametrize("name", RACES)
def test_the_fastest_verified_candidate_is_kept(tmp_path: Path, name: str) -> None:
    stages, best, verified = RACES[name]
    verdict, kernel = play(tmp_path, stages)
    assert (verdict.status, verdict.state, kernel) == ("verified", "verified", f"# candidate {best}\n")
    assert verdict.configuration["threads"] == 32 * best and stages.verified == verified
    states = ["verified" if number in verified else "compiled" for number in range(1, len(stages.medians) + 1)]
    for number in stages.wrong:
        states[number - 1] = "wrong_result"
    assert [candidate["status"] for candidate in verdict.tried] == [*states, "skipped"]
    assert [stage["stage"] for stage in verdict.stages] == ["lint", "compile", "verify", "benchmark"]


WITHOUT_TIMES = {
    "the first guess": (ScriptedStages([0.0] * 3), 1, [1], [1]),
    "what does not spill": (ScriptedStages([0.0] * 3, spilling=(1,)), 2, [1, 2], [2]),
    "what spills, where all do": (ScriptedStages([0.0] * 3, spilling=(1, 2, 3)), 1, [1, 2, 3], [1]),
    "what compiles": (ScriptedStages([0.0] * 3, broken=(1, 2)), 3, [1, 2, 3], [3]),
    "what is right": (ScriptedStages([0.0] * 3, spilling=(1,), wrong=(2, 3)), 1, [1, 2, 3], [2, 3, 1]),
    "one of another cover": (
        ScriptedStages([0.0] * 6, wrong=(1, 2, 3), failing=("zeros",) * 6),
        4,
        [1, 2, 4],
        [1, 2, 4],
    ),
}


@pytest.mark.parametrize("name", WITHOUT_TIMES)
def test_without_times_candidates_are_compiled_until_one_holds(tmp_path: Path, name: str) -> None:
    stages, best, compiled, verified = WITHOUT_TIMES[name]
    covers = (FUSED, UNFUSED) if stages.failing else ()
    verdict, kernel = play(tmp_path, stages, covers=covers, device=None)
    assert (kernel, stages.compiled, stages.verified) == (f"# candidate {best}\n", compiled, verified)
    drafted = [row["number"] for row in verdict.tried if row["status"] == "drafted"]
    assert drafted == [number for number in range(1, 1 + len(stages.medians)) if number not in compiled]


def test_what_was_skipped_is_told_with_its_reason_in_every_report(tmp_path: Path) -> None:
    verdict, _ = play(tmp_path, ScriptedStages(medians=[30.0, 10.0]))
    row = verdict.tried[-1]
    assert (row["number"], row["status"], row["tiling"]) == (3, "skipped", {"threads": 4096})
    reason = "4096 threads a block: at most 1024"
    assert row["summary"] == reason and reason in (tmp_path / "out" / "report.html").read_text()
    assert json.loads((tmp_path / "out" / "result.json").read_text())["tried"][-1]["summary"] == reason
    assert any("skipped" in line and "4096" in line for line in summary_lines(verdict))


def test_times_from_the_cache_are_called_so_and_what_they_chose_is_verified(tmp_path: Path) -> None:
    stages = ScriptedStages(medians=[30.0, 10.0, 20.0], wrong=(2,), remembered="2026-11-20")
    verdict, kernel = play(tmp_path, stages)
    assert kernel == "# candidate 3\n" and stages.verified == [1, 2, 3]
    assert "ordered by times from cache of 2026-11-20" in verdict.summary


@pytest.mark.parametrize(
    ("stages", "code", "reason"),
    [
        (ScriptedStages(medians=[1.0, 2.0], wrong=(1, 2)), ExitCode.WRONG_RESULT, "verify WRONG_RESULT"),
        (ScriptedStages(medians=[1.0], broken=(1,)), ExitCode.DOES_NOT_COMPILE, "compile DOES_NOT_COMPILE"),
        (ScriptedStages(medians=[1.0], too_large=(1,)), ExitCode.UNAVAILABLE, "has too little memory"),
    ],
)
def test_no_kernel_that_held_has_its_exit_code(
    tmp_path: Path, stages: ScriptedStages, code: ExitCode, reason: str
) -> None:
    verdict, kernel = play(tmp_path, stages)
    assert (verdict.exit_code, verdict.state, verdict.kernel, kernel) == (code, "", "", "")
    assert reason in verdict.summary
    assert json.loads((tmp_path / "out" / "result.json").read_text())["exit_code"] == code


def test_an_interrupt_keeps_the_best_so_far(tmp_path: Path) -> None:
    verdict, kernel = play(tmp_path, ScriptedStages(medians=[30.0, 10.0], stop="time"))
    assert kernel == "# candidate 1\n" and verdict.status == "verified" and "interrupted" in verdict.summary
    assert (tmp_path / "out" / "report.html").exists()


def test_an_interrupt_with_nothing_to_keep_passes_through(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, ScriptedStages(medians=[30.0], stop="compile"))
    assert not (tmp_path / "out" / "kernel.py").exists()


def test_a_benchmark_that_rejects_decides(tmp_path: Path) -> None:
    verdict, _ = play(tmp_path, ScriptedStages(medians=[30.0], benchmarked=ExitCode.REJECTED))
    assert verdict.exit_code == ExitCode.REJECTED


def test_without_benchmark_the_last_stage_is_verify(tmp_path: Path) -> None:
    verdict, _ = play(tmp_path, ScriptedStages(medians=[30.0, 10.0]), benchmark=False)
    assert verdict.stages[-1]["stage"] == "verify" and "10.0 µs" in verdict.summary


def test_the_summary_tells_what_launches_write_for_each_other(tmp_path: Path) -> None:
    told = "its launches write and read 900 MB for each other"
    assert told in play(tmp_path / "several", ScriptedStages(medians=[30.0]), passed=900_000_000)[0].summary
    assert "for each other" not in play(tmp_path / "one", ScriptedStages(medians=[30.0]))[0].summary


FUSED = Cover("contraction", ("contraction",), seconds=41e-6)
UNFUSED = Cover("cut", ("product", "pointwise"), seconds=47e-6)
COVER_RACES = {
    "the fused one": ([30.0, 20.0, 40.0, 50.0], (), 2, "1 launch (contraction), 41 µs predicted, 20 taken"),
    "the unfused one": ([30.0, 20.0, 15.0, 50.0], (), 3, "2 launches (product, pointwise), 47 µs predicted, 15 taken"),
    "not a fast one that is wrong": ([30.0, 20.0, 15.0, 50.0], (3,), 2, "1 launch (contraction), 41 µs predicted"),
}


@pytest.mark.parametrize("name", COVER_RACES)
def test_of_two_covers_that_of_the_fastest_verified_candidate_is_kept(tmp_path: Path, name: str) -> None:
    medians, wrong, best, told = COVER_RACES[name]
    verdict, kernel = play(tmp_path, ScriptedStages(medians=medians, wrong=wrong), covers=(FUSED, UNFUSED))
    assert kernel == f"# candidate {best}\n"
    assert verdict.pattern == (FUSED, UNFUSED)[best > 2].pattern
    assert f"kept of 2 covers: {told}" in verdict.summary
    assert [row["cover"] for row in verdict.tried[:4]] == [FUSED.told] * 2 + [UNFUSED.told] * 2
    rows = list(summary_lines(verdict))[1:5]
    assert all(cover.told in row for row, cover in zip(rows, [FUSED, FUSED, UNFUSED, UNFUSED], strict=True))
    assert UNFUSED.told in (tmp_path / "out" / "report.html").read_text()


def test_a_cover_that_fails_in_one_way_leaves_the_other(tmp_path: Path) -> None:
    stages = ScriptedStages(medians=[10.0, 20.0, 15.0, 50.0, 25.0, 30.0], wrong=(1, 2, 3), failing=("zeros",) * 6)
    verdict, kernel = play(tmp_path, stages, covers=(FUSED, UNFUSED))
    assert stages.verified == [1, 3, 5] and kernel == "# candidate 5\n" and verdict.pattern == UNFUSED.pattern
