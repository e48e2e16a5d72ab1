"""Further cases against what an H100 wrote: chains of `wgmma`, copies, mbarriers, atomics, `mma`, our own kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evals.studies.emulator import record_copies
from evals.studies.emulator.copy_cases import CASES as COPIES
from evals.studies.emulator.interleave_cases import INTERLEAVE_CASES
from evals.studies.emulator.record_further import (
    EXPLAINED,
    INTERLEAVED,
    RECORDING,
    SPARSE,
    cases,
    differences,
    emulated,
    load,
    sparse_cases,
)

RECORDED = load(RECORDING)
CASES = list(cases(kernels=False))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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


FEW = ("load interleaved 16 f32", "load interleaved 32 im2col 4d", "reduce interleaved add 32", "load im2col 5d 64B")
LATER = {case.name: case for case in cases(kernels=False, again=True)}


@pytest.mark.parametrize(
    "name",
    [
        name if name in FEW else pytest.param(name, marks=pytest.mark.slow)
        for name in (c.name for c in INTERLEAVE_CASES)
    ],
)
def test_an_interleaved_copy_is_that_of_the_h100(name):
    assert not differences(emulated(LATER[name]), load(INTERLEAVED)[name])


@pytest.mark.sampled(23)
@pytest.mark.parametrize("case", list(sparse_cases()), ids=lambda case: case.name)
def test_a_product_with_a_sparse_matrix_is_that_of_the_h100(case):
    assert not differences(emulated(case), load(SPARSE)[case.name])


@pytest.mark.parametrize(
    "name", ["load interleave 16 rank 3", "load interleave 32 rank 3", "load interleave 32 rank 4"]
)
def test_a_box_holds_one_slice_of_channels_though_it_is_asked_for_more(name):
    """The first recordings told their mbarriers of other bytes than came: what came is compared."""
    case = next(case for case in COPIES if case.name == name)
    map = replace(case.map, expected=0)
    right = replace(case, body=case.body.replace(f"[%full], {case.map.expected};", f"[%full], {map.tile_bytes};"))
    assert right.body != case.body
    assert (record_copies.run(right)[: case.tile] == RECORDED[name]["whole"][0][: case.tile]).all()
    said = str(emulated(LATER[name])["error"])
    assert "deadlock" in said and "bytes" in said


def test_the_recording_has_every_case():
    kernels = [name for name in RECORDED if name.startswith("own/")]
    assert {*RECORDED} == {*kernels, *(case.name for case in CASES)}
    assert (len(CASES), len(kernels)) == (431, 18)
    ended = {name for name, fields in RECORDED.items() if "error" in fields}
    assert len(ended) == 34 and all("CUDA error 7" in str(RECORDED[name]["error"]) for name in ended)
