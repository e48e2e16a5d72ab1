"""A file whose inputs' sizes belong together says of which sizes its smaller inputs for the emulated GPU are."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutesmith.errors import ContractError
from cutesmith.verdicts import ExitCode
from tests.judge.in_process import verdict_here

KERNEL = Path(__file__).parents[1] / "kernels" / "first_of_segments.py"
DECLARED = 'EMULATED_SIZES = {"segments": 50}'


def test_get_inputs_runs_with_the_sizes_that_the_file_declares():
    verdict = verdict_here(KERNEL, on="emulator")
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    assert verdict.reduced == "39999x64 as 99x64"
    own, whole = verdict.cases[:2]
    assert own.inputs == "float32[99, 64], int64[51] for float32[39999, 64], int64[20001]"
    assert whole.name == "launches at full size" and whole.explanation == "recorded, not executed: 20,000 blocks"
    assert [case.name for case in verdict.cases if not case.name.startswith("derived")] == [own.name, whole.name]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("EMULATED_SIZES = 50", "EMULATED_SIZES is 50, no dict"),
        ('EMULATED_SIZES = {"rows": 50}', "get_inputs(**EMULATED_SIZES) raised TypeError"),
    ],
)
def test_what_cannot_be_sizes_breaks_the_contract(write_file, text, complaint):
    verdict = verdict_here(write_file(KERNEL.read_text().replace(DECLARED, text)), on="emulator")
    assert verdict.exit_code == ContractError.exit_code and complaint in verdict.summary
