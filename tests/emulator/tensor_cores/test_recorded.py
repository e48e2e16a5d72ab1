"""Warp-wide instructions against what an H200 wrote: exchange and agreement, matrices, multiplications."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from evals.studies.emulator.emulated import execute
from evals.studies.emulator.mma_inputs import SETS
from evals.studies.emulator.record_mma import RECORDING, compare, run
from evals.studies.emulator.warp_forms import FORMS


@pytest.fixture(scope="module")
def recording():
    with np.load(RECORDING) as arrays:
        yield {name: arrays[name] for name in arrays.files}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_result_is_that_of_the_h200(form, recording):
    found = [compare(form, kind, run(form, kind, execute), recording) for kind in form.kinds]
    assert not [one.line() for one in found if one.differing]


@pytest.mark.parametrize("name", ["m16n8k16.row.col.f32.bf16.bf16.f32", "m16n8k8.row.col.f32.tf32.tf32.f32"])
def test_the_recording_tells_generations_apart(name, recording):
    form = next(form for form in FORMS if form.name == f"mma.sync.aligned.{name}")
    for sm in (80, 75, 70):
        wrong = compare(form, "spread", run(form, "spread", partial(execute, tensor_core_sm=sm)), recording)
        assert len(wrong.differing) > SETS // 2, sm
