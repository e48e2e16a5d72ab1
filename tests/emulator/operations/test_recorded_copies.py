"""The copy engine against what an H200 wrote: edges and fills, swizzles, multicast, stores, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from evals.studies.emulator.copy_cases import CASES
from evals.studies.emulator.record_copies import RECORDING, compare, run

with np.load(RECORDING) as arrays:
    RECORDED = {name: arrays[name] for name in arrays.files}
SEEN = [case for case in CASES if f"{case.name} whole" in RECORDED]
REFUSED = {  # recorded, not executed: NaN fills of wide types, tf32, flushed subnormals, rows narrower than the swizzle
    *("load f32 edges NaN", "load f64 edges NaN", "load f32_ftz edges", "load f32_ftz edges NaN"),
    *("load tf32 edges", "load tf32 edges NaN", "load tf32_ftz edges", "load tf32_ftz edges NaN"),
    *("load 64B rows of 32 u8", "load 128B rows of 96 u8", "load 128B rows of 64 f16", "load 128B rows of 32 f32"),
    *("store 128B rows of 64", "store 64B rows of 32"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SEEN, ids=lambda case: case.name)
def test_every_byte_is_that_of_the_h200(case):
    if case.name in REFUSED:
        with pytest.raises(UnsupportedInstruction):
            run(case)
        return
    found = compare(case, run(case), RECORDED)
    assert not found.differing, found.line()


def test_the_recording_covers_types_swizzles_multicast_and_stores():
    assert len(SEEN) == 39 and {case.name for case in SEEN} > REFUSED
