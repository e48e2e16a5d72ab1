"""Indices that wrap at the size of `get_inputs()` fail a kernel that is right at all sizes that are executed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.judge.candidate_side.candidate import load_kernel
from cutesmith.judge.candidate_side.recorded_call import record_call
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.transfer import tensors
from cutesmith.verdicts import ExitCode
from tests.judge.in_process import LocalJudge

ADVERSARIAL = Path(__file__).parents[2] / "evals" / "adversarial"


class FullSizeOnly(LocalJudge):
    """The judge without the cases that other tests show."""

    def _load(self, *args):
        return replace(super()._load(*args), derived=(), long_sizes=())


def verdict_of(path):
    return FullSizeOnly(path=path, problem=path, options=VerifyOptions(seeds=1)).verdict("emulator")


def recorded(name):
    """The call on 2^31 + 32768 elements of which there is no memory."""
    path = ADVERSARIAL / f"{name}.py"
    shapes = ((1 << 31) // 4096 + 8, 4096), (4096,)
    layouts = [tensors.describe_layout(torch.empty(shape, dtype=torch.bfloat16, device="meta")) for shape in shapes]
    with emulated_device("sm_90a") as device:
        return record_call(device, load_kernel(path), layouts, path)


def test_an_index_of_32_bits_that_wraps_is_named_with_its_line():
    call = recorded("o11_wraps_at_32_bits")
    assert call.wraps.startswith("an index of 32 bits wraps at this size: o11_wraps_at_32_bits.py:25: thread (0, 0, 0)")
    assert "of input 0 (4,295,032,832 bytes) and accesses byte -" in call.wraps and "cutlass.Int64(row)" in call.wraps


def test_an_index_of_64_bits_is_not_and_what_was_tried_is_said():
    call = recorded("o11_honest_64_bits")
    assert not call.wraps
    assert call.remark == "the addresses of 26 blocks, the last among them, were computed: no index wraps"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code"), [("o11_wraps_at_16_bits", ExitCode.WRONG_RESULT), ("o11_honest_packed_rows", ExitCode.PASSED)]
)
def test_a_row_of_16_bits_is_told_from_one_that_is_put_together(name, code):
    verdict = verdict_of(ADVERSARIAL / f"{name}.py")
    assert verdict.exit_code == code, verdict.summary
    assert ("an index of 16 bits wraps" in verdict.cases[1].explanation) == (code != ExitCode.PASSED)
