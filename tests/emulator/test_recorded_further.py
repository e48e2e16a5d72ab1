"""Further cases against what an H100 wrote: chains of `wgmma`, copies, mbarriers, atomics, `mma`, our own kernels."""

from __future__ import annotations

import pytest

from evals.studies.emulator.record_further import EXPLAINED, RECORDING, cases, differences, emulated, load

RECORDED = load(RECORDING)
CASES = list(cases(kernels=False))
SOME = CASES[::24]


@pytest.mark.parametrize(
    "case",
    [case if case in SOME else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
    ids=lambda case: case.name,
)
def test_a_case_is_that_of_the_h100(case):
    said = differences(emulated(case), RECORDED[case.name])
    assert bool(said) == (case.name in EXPLAINED), said


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECORDED if name.startswith("own/")])
def test_a_kernel_is_that_of_the_h100(name):
    said = differences(emulated(next(case for case in cases() if case.name == name)), RECORDED[name])
    if said.startswith("inputs"):
        pytest.skip("the inputs are products of matrices, which this CPU rounds otherwise than the recording's")
    assert not said


def test_the_recording_has_every_case():
    kernels = [name for name in RECORDED if name.startswith("own/")]
    assert {*RECORDED} == {*kernels, *(case.name for case in CASES)}
    assert (len(CASES), len(kernels)) == (431, 18)
    ended = {name for name, fields in RECORDED.items() if "error" in fields}
    assert len(ended) == 34 and all("CUDA error 7" in str(RECORDED[name]["error"]) for name in ended)
