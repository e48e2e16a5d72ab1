"""Faults of a ring of mbarriers that the file's own sizes hide are found: it is tried on both sides of its stages."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from cutesmith.judge.ring_cases import RingCases
from cutesmith.judge.verification import VerifyOptions, verify_kernel
from cutesmith.verdicts import MbarrierRing
from tests.judge.in_process import ShortJudge, verdict_here

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


KERNELS = Path(__file__).resolve().parents[2] / "examples_index" / "kernels"


@pytest.mark.slow
@pytest.mark.parametrize("count", ["CONSUMERS // 32", "CONSUMERS"], ids=["warps", "threads"])
def test_a_ring_of_a_persistent_kernel_wraps_on_a_small_gpu(tmp_path, count):
    """Each of 396 blocks has one tile of the reduced inputs at most, and 82 of the whole ones, with four stages.

    Its consumers release by warps; a ring that counts their threads waits for ever once it wraps.
    """
    text = (KERNELS / "tma_copy_pipeline_sm90.py").read_text()
    old = "pipeline.Agent.Thread, CONSUMERS // 32)"
    assert old in text
    path = tmp_path / "kernel.py"
    path.write_text(text.replace(old, f"pipeline.Agent.Thread, {count})"))
    verdict = verify_kernel(path, OPTIONS, on="emulator")
    name = "ring of mbarriers: the sizes of get_inputs() on 2 multiprocessors"
    if count == "CONSUMERS":
        assert name in verdict.summary and "still needs 124 of 128 arrivals" in verdict.summary
    else:
        assert verdict.passed, verdict.summary
        (case,) = [case for case in verdict.cases if case.name == name]
        assert int(case.remark.split()[0]) > 4 and "trips of 4 stages" in case.remark


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("start", ["i", "turn"], ids=["right", "each tile begins at the first stages"])
def test_blocks_of_a_persistent_product_have_several_tiles_on_a_small_gpu(tmp_path, start):
    """Of 66 clusters none has a third tile, which its first warpgroup would take next."""
    text = (KERNELS / "gemm_sm90_bias_gelu.py").read_text()
    smaller = ("m=8192, n=16384, k=4096", "m=512, n=4096, k=384")
    free = ("def get_input_sets", "DERIVED_SHAPES = True\n\n\ndef no_sets")
    for old, new in (("stage_of(i * k", f"stage_of({start} * k"), smaller, free):
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "kernel.py"
    path.write_text(text)
    verdict = verdict_here(path, judge=ShortJudge, quick=True, seeds=1)
    name = "longer: size 4096 on 4 multiprocessors"
    if start == "i":
        assert verdict.passed and name in [case.name for case in verdict.cases], verdict.summary
    else:
        assert not verdict.passed and f"{name}: " in verdict.summary, verdict.summary


@dataclass(frozen=True)
class Turn:
    """As much of a round as the choice of a shorter ring asks for: a product whose ring took some trips over 4096."""

    trips: int
    refuses: bool = False

    @property
    def base(self):
        step = SimpleNamespace(outputs=[SimpleNamespace(shape=(16, 32))])
        return SimpleNamespace(ring=MbarrierRing(0, 5, True, self.trips), steps=[step])

    def draw(self, key, resized=()):
        shapes = [(16, dict(resized).get(4096, 4096)), (32, 4096)]
        return SimpleNamespace(
            accepted=not (resized and self.refuses), inputs=[SimpleNamespace(shape=s) for s in shapes]
        )


@pytest.mark.parametrize(
    ("turn", "resizable", "shorter"),
    [
        (Turn(64), True, ((4096, 704),)),  # 11 trips of 64 elements
        (Turn(64), False, ()),
        (Turn(64, refuses=True), True, ()),
        (Turn(22), True, ()),  # not more than twice as many
        (Turn(63), True, ()),  # not proportional to the size
    ],
)
def test_derived_values_go_round_a_long_ring_twice_and_once_more(turn, resizable, shorter):
    assert RingCases(turn, resizable, fresh=False).shorter() == shorter
