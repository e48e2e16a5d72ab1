"""`wgmma` against what an H200 wrote: types, shapes, signs, layouts, base offsets, chains; A from both sources."""

from __future__ import annotations

import numpy as np
import pytest

from evals.studies.emulator.emulated import execute
from evals.studies.emulator.record_wgmma import RECORDINGS, compare, run
from evals.studies.emulator.warpgroup_cases import CASES, MORE_CASES


@pytest.fixture(scope="module")
def recording():
    found = {}
    for path in RECORDINGS:
        with np.load(path) as arrays:
            found |= {name: arrays[name] for name in arrays.files}
    return found


@pytest.mark.sampled(7)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("wgmma.mma_async.sync.aligned."))
def test_every_result_is_that_of_the_h200(case, recording):
    found = compare(case, run(case, execute), recording)
    assert not found.differing, found.line()


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_CASES, ids=lambda case: case.name.removeprefix("wgmma.mma_async.sync.aligned."))
def test_every_further_result_is_that_of_the_h200(case, recording):
    found = compare(case, run(case, execute), recording)
    assert not found.differing, found.line()


def test_the_recording_covers_every_type_shape_and_source():
    names = [case.opcode for case in CASES]
    assert {case.form.product.n for case in CASES} == set(range(8, 257, 8))
    assert len({(case.form.product.a, case.form.product.b, case.form.product.result) for case in CASES}) == 17
    assert {case.in_registers for case in CASES if case.opcode == names[0]} == {True, False}
    assert sum(case.sets * len(case.kinds) for case in CASES) == 1800
