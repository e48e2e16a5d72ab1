"""Faults of a ring of mbarriers that the file's own sizes hide are found: it is tried on both sides of its stages."""

from pathlib import Path

import pytest

from cutesmith.judge.verification import VerifyOptions, verify_kernel

FAULTS = Path(__file__).resolve().parents[2] / "evals" / "planted_faults"
OPTIONS = VerifyOptions(quick=True, seeds=1)


def verified(tmp_path, name, *changes):
    """The verdict on a planted fault that its own two trips do not show."""
    text = (
        (FAULTS / f"{name}.py")
        .read_text()
        .replace("STAGES, TILE, TRIPS = 4, 256, 9", "STAGES, TILE, TRIPS = 4, 256, 2")
    )
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    return verify_kernel(path, OPTIONS, on="emulator")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "word"),
    [
        ("ring_phase_never_flips", "size 512 as 2048", "missing wait"),
        ("ring_release_missing", "size 512 as 2048", "deadlock"),
        ("ring_lapped_waiter", "size 512 as 2048", "first warps"),
    ],
)
def test_a_fault_that_shows_beyond_the_stages_alone_is_found(tmp_path, name, size, word):
    verdict = verified(tmp_path, name)
    assert not verdict.passed
    assert size in verdict.summary
    assert word in verdict.summary


@pytest.mark.slow
def test_a_right_ring_passes_with_trips_on_both_sides(tmp_path):
    verdict = verified(tmp_path, "ring_release_missing", ("run(x, False)", "run(x, True)"))
    assert verdict.passed, verdict.summary
    remarks = [case.remark for case in verdict.cases if case.name.startswith("ring of mbarriers")]
    assert [int(remark.split()[0]) for remark in remarks] == [4, 8, 5, 9]
