"""Autotuning real kernels: on the emulated GPU every state that a tiling can end in; on a GPU the times themselves."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cutesmith.devices import current_device
from cutesmith.errors import CandidateError, ContractError, UnavailableError, UsageError
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.runtime import AutotuneResult, KernelPlan, Tiling, Trial, TuningCache, autotune
from cutesmith.runtime import tuned as tuned_kernel
from cutesmith.runtime.requests import Load, Start
from cutesmith.runtime.trial_processes import Subject, TrialProcesses
from cutesmith.runtime.trials import NOT_COMPILED, NOT_RUN, SKIPPED, TIMED, fastest
from cutesmith.runtime.tuning import remembered_results
from cutesmith.verdicts import ExitCode, strict_json
from cutesmith.verdicts.reading import read_record

PLANS = Path(__file__).parent / "plans"
SCALE = PLANS / "scale.py"


def timed(*samples: float, threads: int = 32) -> Trial:
    return Trial(tiling=Tiling(threads=threads), state=TIMED, samples_us=samples)


def test_the_lowest_median_wins():
    trials = [timed(3.0, 3.0, 3.1), timed(*[1.0] * 8, 9.0), timed(2.0, 2.0, 2.0)]
    assert fastest(trials) is trials[1]


def test_a_tie_within_the_noise_goes_to_the_first():
    trials = [timed(1.10, 1.15, 1.12), timed(1.0, 1.1, 1.2), timed(0.9, 1.0, 1.4)]
    assert fastest(trials) is trials[0]
    assert fastest([timed(1.3), *trials[1:]]) is trials[1]


def test_nothing_timed_has_no_winner():
    assert fastest([Trial(tiling=Tiling(threads=1), state=SKIPPED)]) is None
    result = AutotuneResult(trials=(), device="d", timer="t", inputs="")
    assert result.frozen_source() == "" and "none of 0" in result.summary() and not result.complete


def test_the_floor_is_the_bytes_over_the_copy_bandwidth():
    result = AutotuneResult(
        trials=(timed(2.0, 2.0),), device="d", timer="t", inputs="", bytes=4_000_000, copy_bytes_per_second=4e12
    )
    assert result.floor.us == pytest.approx(1.0) and result.floor_percent == pytest.approx(50.0)
    assert "50 % of copy bandwidth" in result.summary()
    assert replace(result, copy_bytes_per_second=None).floor_percent is None
    bound = replace(result, flops=10**9, matmul_flops_per_second=1e15)
    assert bound.floor_percent == pytest.approx(50.0)
    busy = replace(bound, flops=10**9 + 5 * 10**8)
    assert busy.floor.kind == "flops" and "75 % of a large matrix product's rate" in busy.summary()


def plan_module(name: str):
    """A file of plans as a module of this process."""
    spec = importlib.util.spec_from_file_location(name, PLANS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("state", "code", "complete"),
    [
        (NOT_COMPILED, ExitCode.DOES_NOT_COMPILE, True),
        (NOT_COMPILED, ExitCode.TIMED_OUT, False),
        (NOT_RUN, ExitCode.CRASHED, False),
    ],
)
def test_what_may_have_been_the_moments_fault_is_not_remembered(state, code, complete):
    load = Load(path=SCALE, function="plan_fn", inputs=None, seed=0)
    trying = TrialProcesses(Subject(Start("emulator", "sm_90a", ""), load, 1.0))
    trying.trials = [timed(1.0), Trial(tiling=Tiling(threads=64))]
    trying.drop(1, state, CandidateError("no", code))
    result = AutotuneResult(trials=tuple(trying.trials), device="d", timer="t", inputs="")
    assert result.complete is complete and result.trials[1].state == state
    assert read_record(AutotuneResult, json.loads(strict_json(result))) == result


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> TuningCache:
    return TuningCache(tmp_path_factory.mktemp("tuning"))


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, int, int]]:
    return []


@pytest.fixture(scope="module")
def inputs() -> list[torch.Tensor]:
    return [torch.rand(2048) + 1]


@pytest.fixture(scope="module")
def tuned(cache, steps, inputs) -> AutotuneResult:
    """Six tilings in two processes on the emulated GPU."""

    def progress(stage: str, done: int, total: int, message: str = "") -> None:
        steps.append((stage, done, total))

    return autotune(SCALE, inputs, on="emulator", cache=cache, jobs=2, progress=progress)


def test_every_tiling_ends_in_its_own_state(tuned):
    states = [trial.state for trial in tuned.trials]
    assert states == [TIMED, SKIPPED, SKIPPED, NOT_COMPILED, TIMED, NOT_COMPILED]
    reasons = [trial.reason for trial in tuned.trials]
    assert "2048 threads a block" in reasons[1] and "room for 3 stages" in reasons[2]
    assert "scale.py" in reasons[3] and "mY" in reasons[3] and tuned.trials[3].log_tail
    assert "SIGKILL" in reasons[5] and tuned.trials[5].samples_us == ()


def test_the_emulated_counts_prefer_the_kernel_without_the_wasted_work(tuned):
    wasteful, plain = tuned.trials[0].median_us, tuned.trials[4].median_us
    assert tuned.best is tuned.trials[4] and 0 < 4 * plain < wasteful
    assert tuned.bytes == 2 * 2048 * 4 and tuned.inputs == "float32[2048]"


def test_counts_are_not_called_times(tuned):
    assert not tuned.is_time and "at least" in tuned.summary() and "no measured time" in tuned.summary()
    assert "2 skipped, 2 failed to compile" in tuned.summary()


def test_progress_reaches_the_end_of_both_stages(tuned, steps):
    assert steps[0] == ("compile", 0, 4) and ("compile", 4, 4) in steps and steps[-1][0] == "time"
    assert steps[-1][1] == steps[-1][2]


def test_the_winner_is_written_down_as_code_that_stands_alone(tuned):
    text = tuned.frozen_source()
    names: dict[str, object] = {}
    exec(text, names)
    frozen = names["TILING"]
    assert isinstance(frozen, SimpleNamespace) and (frozen.threads, frozen.tile) == (128, (128,))
    assert "cutesmith" not in text and re.search(r"# best of 2: at least .* us on emulated sm_90a, 20", text)


def test_the_same_question_is_answered_from_the_cache_with_its_day(tuned, cache):
    assert tuned.kept and not tuned.cached
    again = autotune(SCALE, [torch.zeros(2048)], on="emulator", cache=cache)
    assert again.cached and again.trials == tuned.trials and again.seconds < tuned.seconds
    assert f"times from cache of {tuned.measured[:10]}" in again.summary()


@pytest.mark.skipif(current_device() is not None, reason="a kernel under development is tuned for the GPU then")
def test_what_was_tuned_is_found_for_such_inputs_alone(tuned, cache):
    plan_fn = plan_module("scale").plan_fn
    (found,) = remembered_results(plan_fn, [torch.zeros(2048)], cache)
    assert found.trials == tuned.trials
    assert list(remembered_results(plan_fn, [torch.zeros(2049)], cache)) == []


def test_what_failed_while_it_ran_may_be_tried_again(cache):
    before = set(cache.folder.iterdir()) if cache.folder.exists() else set()
    result = autotune(f"{SCALE}:raising_plan", on="emulator", cache=cache)
    (trial,) = result.trials
    assert trial.state == NOT_RUN and trial.may_pass and "ValueError: not today" in trial.reason
    assert result.inputs == "float32[4096]"
    assert result.best is None and not result.kept and set(cache.folder.iterdir()) == before
    assert result.summary().startswith("none of 1 tilings was timed, 1 failed to run; the first: scale.py:")


@pytest.mark.parametrize("options", [{"rounds": 0}, {"jobs": 0}, {"timeout": 0}, {"on": "nowhere"}, {"arch": "sm_42"}])
def test_senseless_options_are_usage_errors(options):
    with pytest.raises(UsageError):
        autotune(SCALE, **{"on": "emulator", **options})


def test_a_missing_file_and_a_function_without_one_are_told(tmp_path):
    with pytest.raises(ContractError, match="no such file"):
        autotune(tmp_path / "none.py", on="emulator")
    with pytest.raises(UsageError, match="not a function at the top level"):
        autotune(lambda x: x, on="emulator")


@pytest.mark.skipif(current_device() is not None, reason="is about a machine without a GPU")
def test_without_a_gpu_nothing_is_timed():
    with pytest.raises(UnavailableError, match="no NVIDIA GPU"):
        autotune(SCALE, on="gpu")


X = torch.ones(4)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (7, "returned int"),
        (KernelPlan(inputs=(), outputs=(X,), tilings=(), build=str, launch=str), "no tilings"),
        (KernelPlan(inputs=(), outputs=(X,), tilings=({"threads": 1},), build=str, launch=str), "no tilings"),
        (KernelPlan(inputs=(), outputs=(), tilings=(Tiling(threads=1),), build=str, launch=str), "no outputs"),
    ],
)
def test_what_is_no_plan_is_told(plan, said):
    with pytest.raises(ContractError, match=said):
        KernelPlan.for_inputs(lambda: plan, ())


def test_a_kernel_compiles_once_and_launches_into_its_outputs():
    built, y = [], torch.zeros(4)

    def build(tiling):
        built.append(tiling.threads)
        return lambda: y.copy_(2 * X)

    tilings = (Tiling(threads=64), Tiling(threads=2048))
    plan = KernelPlan(inputs=(X, 3), outputs=(y,), tilings=tilings, build=build, launch=lambda run: run(), flops=4)
    kernel = plan.kernel(tilings[0])
    assert kernel.launch() == (y,) and kernel.launch() == (y,) and built == [64]
    assert torch.equal(y, 2 * X) and (kernel.bytes, kernel.flops, kernel.tilings) == (32, 4, tilings)
    assert [bool(refused) for refused in plan.refusals("sm_90a")] == [False, True]


def doubling_plan(x, y=None):
    """Two tilings that torch plays; a GPU would not run the first."""
    outputs = tuple(torch.empty_like(x) for _ in range(1 if y is None else 2))

    def launch(factor):
        for output in outputs:
            output.copy_(x * factor)

    tilings = (Tiling(threads=4096), Tiling(threads=64), Tiling(threads=128))
    return KernelPlan(inputs=(x,), outputs=outputs, tilings=tilings, build=lambda tiling: tiling.threads, launch=launch)


def test_a_kernel_under_development_runs_in_the_first_valid_tiling_until_it_is_tuned(tmp_path):
    x = torch.arange(4.0)
    with cuda_as_cpu():
        kernel_fn = tuned_kernel(doubling_plan, cache=TuningCache(tmp_path))
        assert torch.equal(kernel_fn(x), 64 * x) and torch.equal(kernel_fn(x + 1), 64 * (x + 1))
        assert [torch.equal(output, 64 * x) for output in kernel_fn(x, x)] == [True, True]


def test_where_the_device_runs_no_tiling_that_is_told(tmp_path):
    def hopeless(x):
        return replace(doubling_plan(x), tilings=(Tiling(threads=4096),))

    hopeless.__qualname__ = "hopeless"  # as a function at the top level of this file has it
    with cuda_as_cpu(), pytest.raises(UsageError, match="no tiling of the plan runs on sm_90: 4096 threads"):
        tuned_kernel(hopeless, cache=TuningCache(tmp_path))(torch.arange(4.0))


# On a GPU


@pytest.fixture
def graph_timer():
    from cutesmith.runtime.timers import GraphTimer
    from cutesmith.sandbox.gpu_lock import gpu_lock

    with gpu_lock(exclusive=True):  # what other tests run beside it made a copy look 1.5 times as slow
        yield GraphTimer("")


def median(samples):
    return sorted(samples)[len(samples) // 2]


def copy_plan(count: int) -> KernelPlan:
    x, y = (torch.randn(count, device="cuda") for _ in range(2))
    return KernelPlan(
        inputs=(x,), outputs=(y,), tilings=(Tiling(threads=1),), build=lambda tiling: y.copy_, launch=lambda run: run(x)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1 << 24, 1 << 27])
def test_graph_replay_agrees_with_events_around_queued_launches(graph_timer, count):
    from cutesmith.timing.stopwatch import Stopwatch

    plan = copy_plan(count)
    y = plan.outputs[0]
    # A kernel: a copy becomes a memcpy node, which replays 2^27 floats in 392 us on an H200, against 256 us outside.
    negate = functools.partial(torch.neg, out=y)
    kernel = replace(plan, build=lambda tiling: negate).kernel(plan.tilings[0])
    graph_timer.prepare(kernel)
    replayed = median([sample for _ in range(5) for sample in graph_timer.round(kernel)])
    queued, _ = Stopwatch().round(negate, [(plan.inputs[0],)], launches=30, host_us=20)
    assert replayed == pytest.approx(median(queued), rel=0.1)


@pytest.mark.gpu
def test_a_copy_that_fits_the_cache_is_timed_cold(graph_timer):
    plan = copy_plan(3 << 20)  # 25 MB read and written: within the L2 of an H100 or H200
    kernel = plan.kernel(plan.tilings[0])
    graph_timer.prepare(kernel)
    cold = median(graph_timer.round(kernel) + graph_timer.round(kernel))
    warm_timer = type(graph_timer)("", cold=False)
    warm_timer.prepare(kernel)
    warm = median(warm_timer.round(kernel) + warm_timer.round(kernel))
    least = 1e6 * plan.algorithmic_bytes / 2 / graph_timer.copy_bytes_per_second()  # the reads come from memory
    assert cold > least and cold > 1.15 * warm


@pytest.mark.gpu
@pytest.mark.parametrize("in_place", [False, True])
def test_a_launch_that_the_graph_does_not_hold_is_refused(graph_timer, in_place):
    plan = copy_plan(1 << 10)
    if in_place:
        (x,) = plan.inputs
        plan = replace(plan, outputs=(x,), build=lambda tiling: lambda x: x.relu_())
    graph_timer.prepare(plan.kernel(plan.tilings[0]))
    side = torch.cuda.Stream()

    def launch(run):
        with torch.cuda.stream(side):
            run(plan.inputs[0])

    stray = replace(plan, launch=launch)
    before = [tensor.clone() for tensor in plan.outputs]
    with pytest.raises(CandidateError, match="not part of the CUDA graph"):
        graph_timer.prepare(stray.kernel(stray.tilings[0]))
    assert all(torch.equal(tensor, old) for tensor, old in zip(plan.outputs, before, strict=True))


@pytest.mark.gpu
def test_tuning_on_the_gpu_finds_the_kernel_without_the_wasted_work(tmp_path):
    cache = TuningCache(tmp_path)
    inputs = [torch.rand(1 << 24, device="cuda") + 1]
    result = autotune(SCALE, inputs, on="gpu", cache=cache)
    assert [trial.state for trial in result.trials] == [TIMED, SKIPPED, SKIPPED, NOT_COMPILED, TIMED, NOT_COMPILED]
    assert result.best is result.trials[4] and result.is_time and result.kept
    assert len(result.best.samples_us) == 50 and 10 < result.floor_percent < 110
    assert autotune(SCALE, inputs, on="gpu", cache=cache).cached
    kernel_fn = tuned_kernel(plan_module("scale").plan_fn, cache=cache)
    assert torch.equal(kernel_fn(*inputs), 2 * inputs[0])
    raising = autotune(f"{SCALE}:raising_plan", inputs, on="gpu", cache=cache)
    assert raising.trials[0].state == NOT_RUN and not raising.kept
