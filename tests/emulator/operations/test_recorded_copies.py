"""The copy engine against what an H200 wrote: edges and fills, swizzles, multicast, stores, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest

from evals.studies.emulator.copy_cases import CASES
from evals.studies.emulator.record_copies import RECORDING, compare, run

with np.load(RECORDING) as arrays:
    RECORDED = {name: arrays[name] for name in arrays.files}
SEEN = [case for case in CASES if f"{case.name} whole" in RECORDED]


@pytest.mark.slow
@pytest.mark.parametrize("case", SEEN, ids=lambda case: case.name)
def test_every_byte_is_that_of_the_h200(case):
    found = compare(case, run(case), RECORDED)
    assert not found.differing, found.line()


def test_the_recording_covers_types_swizzles_multicast_and_stores():
    assert len(SEEN) == 39
