"""What of the benchmark needs no GPU: refusals, statistics, the floor, the lock, the plot; on a GPU, the whole."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cutesmith.commands.benchmark import main, plot, table
from cutesmith.devices import current_device
from cutesmith.errors import UnavailableError
from cutesmith.judge.kept_references import keeping_references
from cutesmith.judge.problem_process import ASKED, OWN
from cutesmith.judge.surroundings import Surroundings
from cutesmith.judge.transfer.chunks import LARGEST_FILE
from cutesmith.judge.transfer.transfer import Transfer
from cutesmith.judge.verification import verify_kernel
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.sandbox.gpu_lock import gpu_lock
from cutesmith.sandbox.worker import Limits
from cutesmith.timing.baseline_process import CACHE, baseline_process
from cutesmith.timing.benchmark import benchmark_kernel, time_candidates
from cutesmith.timing.contender import Contender
from cutesmith.timing.contest import BenchmarkOptions, Contest
from cutesmith.timing.requests import Burst, Changes, MachineRates, Prepared
from cutesmith.timing.roofline import Work
from cutesmith.timing.timed import TimedBaselines, TimedCandidates
from cutesmith.verdicts import BenchmarkVerdict, ExitCode, Timing
from cutesmith.verdicts.violations import Rule
from tests.judge.in_process import LocalWorker

ROOT = Path(__file__).parents[2]
HONEST = ROOT / "evals" / "adversarial" / "honest_plain.py"
QUICK = BenchmarkOptions(rounds=4, compiled=False)
without_gpu = pytest.mark.skipif(current_device() is not None, reason="this machine has a GPU")


def contest(**known):
    made = Contest(problem=HONEST, options=BenchmarkOptions())
    made.prepared = Prepared((), "bfloat16[32768, 1024]", 64 << 20, 64 << 20, Work(128 << 20))
    made.machine = MachineRates(4.2e12, 4.8e12, {})
    made.l2_bytes = 50 << 20
    made.timings = [timing(f"{name}", value) for name, value in known.items()]
    return made


def timing(name, median):
    return Timing(name=name, samples_us=(median,) * 4, median_us=median, q1_us=median, q3_us=median, host_us=6.0)


@without_gpu
def test_without_a_gpu_nothing_is_timed(capsys):
    verdict = benchmark_kernel(HONEST)
    assert (verdict.exit_code, verdict.timings) == (ExitCode.UNAVAILABLE, ())
    assert "no NVIDIA GPU" in verdict.summary
    assert main([str(HONEST), "--json"]) == 7
    assert '"status": "unavailable"' in capsys.readouterr().out


@without_gpu
def test_candidates_cannot_race_without_a_gpu():
    with pytest.raises(UnavailableError):
        time_candidates([HONEST], HONEST)


def test_cheats_and_broken_files_come_before_the_gpu(tmp_path):
    assert benchmark_kernel(ROOT / "evals" / "adversarial" / "w1_torch_op.py").rule == "W1"
    assert benchmark_kernel(tmp_path / "none.py").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--plot", "x.gif"], ["--timeout", "-1"]])
def test_senseless_options_are_usage_errors(arguments, capsys):
    assert main([str(HONEST), *arguments]) == ExitCode.USAGE
    assert capsys.readouterr().err


def test_quartiles_and_rates():
    contender = Contender("x", worker=None, device_us=100.0, samples=[1.0, 2.0, 3.0, 4.0, 5.0])
    made = contender.timing(3_000_000)
    assert (made.median_us, made.q1_us, made.q3_us) == (3.0, 2.0, 4.0)
    assert made.bytes_per_second == pytest.approx(1e12)
    assert contender.launches == 20
    assert replace(contender, device_us=1e6).launches == 3


def test_a_time_below_the_floor_is_impossible_unless_a_trusted_baseline_beats_it_too():
    assert "impossible" in contest(candidate=5.0)._impossible().text
    assert contest(candidate=25.0)._impossible() is None
    assert contest(candidate=5.0, eager=6.0)._impossible() is None


@pytest.mark.slow
def test_the_verdict_sets_times_beside_the_floor(tmp_path):
    verdict = contest(candidate=40.0, eager=60.0)._ended(HONEST, ExitCode.PASSED, "ok")
    assert verdict.speedups == {"eager": 1.5}
    assert verdict.floor_us == pytest.approx((128 << 20) / 4.2e6, abs=1e-3)
    assert verdict.floor_percent == pytest.approx(100 * verdict.floor_us / 40, abs=0.01)
    lines = "\n".join(table(verdict))
    assert "1.50x" in lines and "floor" in lines
    for name in ("times.png", "times.svg"):
        plot(verdict, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000


def test_products_that_take_longer_than_the_bytes_set_the_floor(tmp_path):
    made = contest(candidate=200.0, eager=400.0)
    made.prepared.work.flops["bfloat16"] = 8 * 10**10
    made.machine.matmul["bfloat16"] = 8e14
    verdict = made._ended(HONEST, ExitCode.PASSED, "ok")
    assert (verdict.floor_us, verdict.floor_kind, verdict.floor_percent) == (100.0, "flops", 50.0)
    assert (verdict.algorithmic_flops, verdict.matmul_flops_per_second) == (8 * 10**10, 8e14)
    assert "50 % of a large matrix product's rate" in made._summary()
    lines = "\n".join(table(verdict))
    assert "80 GFLOP at 800 TFLOP/s, a large matrix product" in lines and "GB/s, a large copy" not in lines
    plot(verdict, tmp_path / "times.svg")
    assert "matrix product" in (tmp_path / "times.svg").read_text()


def test_a_failed_baseline_is_listed():
    verdict = BenchmarkVerdict(
        exit_code=ExitCode.PASSED,
        summary="",
        path="k.py",
        timings=(timing("candidate", 1.0), replace(timing("torch.compile", 0.0), samples_us=(), error="no gcc\nmore")),
    )
    assert any("no gcc" in line for line in table(verdict))


PROBLEM = """
import torch
def reference_fn(x, w):
    return torch.relu(x) * w
def get_inputs():
    return [torch.randn(64, 32, device="cuda"), torch.rand(32, device="cuda")]
def kernel_fn(x, w):
    y = torch.empty_like(x)
    y.copy_(torch.relu(x) * w)  # stands for a launch: torch's own work does not matter here
    return y
"""


class UnconfinedCandidates(TimedCandidates):
    """In this process there is nothing to bring up and nothing to confine."""

    def start(self, request):
        self.surroundings, self.transfer = Surroundings(), Transfer(request.largest_file)


class Bursts:
    """A worker by whose clock bursts of launches take the seconds that it is told, one after the other; the last stays.

    The clock is not a real one: on a busy machine even nothing can take as long as twenty launches.
    """

    def __init__(self, *seconds):
        self.seconds, self.asked, self.closed, self.now = list(seconds), [], False, 0.0

    def call(self, request):
        self.asked.append(request)
        self.now += self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]

    def close(self):
        self.closed = True

    def contender(self, name):
        return Contender(name, self, host_us=300.0, samples=[1000.0, 900.0, 1100.0], clock=lambda: self.now)


IN_TIME, LATE = 0.0319, 0.0321  # 1.4 times what 20 launches of 1000 us take, and 4 ms


@pytest.mark.parametrize(
    ("seconds", "late", "bursts"),
    [([IN_TIME], False, 1), ([LATE], True, 2), ([LATE, IN_TIME], False, 3), ([LATE, IN_TIME, LATE], True, 3)],
)
def test_launches_may_not_take_longer_by_the_parent_s_clock_than_they_report(seconds, late, bursts):
    worker = Bursts(*seconds)
    found = worker.contender("candidate").late()
    assert worker.asked == [Burst("candidate", 20)] * bursts
    assert found == ("20 launches took 1605.0 us each by the parent's clock, not 1000.0" if late else "")


def test_on_a_gpu_that_others_use_times_say_nothing_against_a_kernel(tmp_path):
    """The control is the baseline, with the kernel's process gone: that one may hog the GPU itself (rule T7)."""
    made, kernel, quiet, crowded = contest(), Bursts(LATE), Bursts(IN_TIME), Bursts(LATE)
    made._require_quiet(kernel, [quiet.contender("eager")])
    assert kernel.closed and not kernel.asked and quiet.asked
    with pytest.raises(UnavailableError, match=r"another process uses this GPU.* 20 launches took .*") as caught:
        made._require_quiet(kernel, [Contender("eager", quiet, error="not installed"), crowded.contender("other")])
    assert "nvidia-smi" in caught.value.hint
    made._require_quiet(kernel, [])


def test_what_times_alone_say_is_told_by_rule():
    tried, made = Bursts().contender("candidate"), contest(kernel=100.0)
    assert made._suspected(tried, "") is None
    late = made._suspected(tried, "late")
    assert late is not None and (late.rule, late.text, late.reject) == (Rule.T4, "late", True)
    slow = made._suspected(replace(tried, device_us=10_000.0), "late")
    assert slow is not None and slow.rule == Rule.T6


@pytest.mark.gpu
def test_beside_nine_processes_an_honest_kernel_is_not_accused(crowded_gpu):
    verdict = benchmark_kernel(ROOT / "evals" / "adversarial" / "t8_honest_current_stream.py", QUICK)
    assert verdict.passed or verdict.exit_code == ExitCode.UNAVAILABLE, verdict.summary
    assert verdict.passed or "another process uses this GPU" in verdict.summary


def test_what_is_compiled_for_an_untrusted_problem_is_not_kept(tmp_path):
    found = {}
    for why in (None, OWN, ASKED):
        with baseline_process(tmp_path, Limits(), "sm_90a", why=why, compiled=True) as process:
            found[why] = Path(process.environment["TRITON_CACHE_DIR"])
            assert found[why].is_dir() or why is None
    assert found[None].is_relative_to(CACHE.expanduser())
    for why in (OWN, ASKED):
        assert not found[why].exists() and not found[why].is_relative_to(CACHE.expanduser())


@pytest.mark.slow
@without_gpu
@pytest.mark.parametrize("largest", [LARGEST_FILE, 0])
def test_the_whole_contest_on_stand_ins_for_cuda(tmp_path, largest):
    """Every request of a benchmark; the clock stands still, as nothing runs on a GPU."""
    kernel, other = tmp_path / "kernel.py", tmp_path / "other.py"
    kernel.write_text(PROBLEM)
    other.write_text("import torch\ndef f(x, w):\n    return torch.relu(x) * w\ndef g(x, w):\n    return x * w\n")
    (tmp_path / "inplace.py").write_text("import torch\ndef f(x, w):\n    return x.relu_() * w\n")
    (tmp_path / "absent.py").write_text("import no_such_library\ndef f(x, w):\n    return x\n")
    files = (f"{other}:f", f"{other}:g", f"{tmp_path / 'inplace.py'}:f", f"{tmp_path / 'absent.py'}:f")
    options = BenchmarkOptions(compiled=False, rounds=4, baselines=files, largest_file=largest)
    made = Contest(problem=kernel, options=options)
    with cuda_as_cpu(arch="sm_86"):  # its L2 cache, which is flushed before each launch, is the smallest
        candidates = UnconfinedCandidates()
        reference, candidate = LocalWorker(TimedBaselines()), LocalWorker(candidates)
        made._start(tmp_path / "exchange", reference, candidate)
        tried = made._enter(candidate, "candidate", kernel)
        others = made._baselines(reference)
        kept = made._rounds([tried, *others], reference, candidate)
        made._host_times([tried, *others])
        for worker, name in ((candidate, "candidate"), (reference, "eager")):
            assert worker.call(Burst(name, 10)) is None
        assert made._judge(tmp_path, reference, candidate, kept) is None
        candidates.bench.functions["candidate"] = lambda x, w: torch.zeros_like(x)
        kept = made._rounds([tried], reference, candidate)
        # the copies have been rolled since, so that the rolls of this second contest alone give other inputs
        assert "out of tolerance" in made._judge(tmp_path, reference, candidate, kept).text
        assert candidate.call(Changes()) == ()
    assert [contender.name for contender in others] == ["eager", *files]
    errors = [contender.error for contender in others]
    assert errors[:2] == ["", ""] and errors[2].startswith("no baseline: output 0: ")
    assert errors[3] == "no baseline: it changes input 0, on which the others run too"
    assert errors[4] == "absent.py cannot be imported here: ModuleNotFoundError: No module named 'no_such_library'"
    assert [bool(contender.samples) for contender in others] == [True, True, False, False, False]
    assert made.prepared.read_bytes == 64 * 32 * 4 + 32 * 4
    assert made.prepared.written_bytes == 64 * 32 * 4
    assert made.work == Work(2 * 64 * 32 * 4 + 32 * 4, {})
    assert len(made.prepared.copies) == 4
    moved = {path.name for path in (tmp_path / "exchange").rglob("*") if path.is_file()}
    assert moved == ({"0", "1"} if largest else {"chunk0"})


def holder(folder, exclusive, seconds):
    code = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from cutesmith.sandbox.gpu_lock import gpu_lock
with gpu_lock(exclusive={exclusive}, folder=Path({str(folder)!r})):
    print("held", flush=True)
    time.sleep({seconds})
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_sharers_share_and_the_exclusive_waits(tmp_path):
    with holder(tmp_path, False, 0.6) as process:
        with gpu_lock(exclusive=False, folder=tmp_path, timeout=0.1):
            pass
        with pytest.raises(UnavailableError, match="in use"), gpu_lock(exclusive=True, folder=tmp_path, timeout=0.1):
            pass
        begin = time.monotonic()
        with gpu_lock(exclusive=True, folder=tmp_path, timeout=10):
            assert time.monotonic() - begin > 0.1
        process.wait()


@pytest.mark.gpu
def test_a_whole_benchmark_on_the_gpu(tmp_path):
    verdict = benchmark_kernel(
        ROOT / "evals" / "adversarial" / "t8_honest_current_stream.py", BenchmarkOptions(rounds=4)
    )
    assert verdict.passed, verdict.summary
    assert [t.name for t in verdict.timings] == ["candidate", "eager", "torch.compile"]
    assert [t.error for t in verdict.timings] == ["", "", ""]
    assert all(len(t.samples_us) >= 12 and t.host_us > 0 for t in verdict.timings)
    assert 10 < verdict.floor_percent < 115
    assert verdict.own_problem and verdict.summary.endswith(" (the file's own reference)")
    assert verdict.problem_confinement and all(verdict.problem_confinement.values()), "and torch.compile worked in it"


@pytest.mark.gpu
def test_a_kernel_that_reads_8_bit_floats_is_timed(tmp_path):
    """Its inputs change between launches, by operations that PyTorch has not written for them on a GPU."""
    verdict = benchmark_kernel(ROOT / "evals" / "adversarial" / "honest_from_fp8.py", QUICK)
    assert verdict.passed, verdict.summary


@pytest.mark.gpu
def test_one_process_of_the_reference_verifies_and_times_again_and_again(tmp_path):
    problem = tmp_path / "problem.py"  # another file, which is trusted
    problem.write_bytes(HONEST.read_bytes())
    processes, verdicts = [], []
    with keeping_references() as kept:
        for _ in range(3):
            verdicts.append(verify_kernel(HONEST, problem=problem, on="gpu"))
            processes.append(kept.process)
            verdicts.append(benchmark_kernel(HONEST, QUICK, problem=problem))
            processes.append(kept.process)
    assert all(verdict.passed for verdict in verdicts), [verdict.summary for verdict in verdicts]
    assert None not in processes and len(set(processes)) == 2, "that which times verifies too"
    assert not any("not kept" in phase for verdict in verdicts for phase in verdict.phases)


@pytest.mark.gpu
def test_a_race_of_candidates_on_the_gpu(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text(HONEST.read_text().replace("y = torch.empty_like(x)", "raise ValueError(1)"))
    twin = tmp_path / "twin.py"
    twin.write_text(HONEST.read_text())
    first, second, third = time_candidates([HONEST, broken, twin], HONEST)
    assert first.median_us > 0 and third.median_us > 0
    assert "ValueError" in second.error
