"""Faults of a ring of mbarriers that the file's own sizes hide are found: it is tried on both sides of its stages."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cutesmith.judge.candidate_side.requests import ExecutedCode, Launched, Ran
from cutesmith.judge.derived import _decides_more
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Draw as DrawInputs
from cutesmith.judge.reference_side.requests import Load, Plan
from cutesmith.judge.ring_cases import RingCases, not_wrapped
from cutesmith.judge.transfer.requests import Start
from cutesmith.judge.verification import VerifyOptions, verify_kernel
from cutesmith.verdicts import ExitCode, MbarrierRing
from tests.judge.in_process import ShortJudge, verdict_here

FAULTS = Path(__file__).resolve().parents[2] / "evals" / "planted_faults"
OPTIONS = VerifyOptions(quick=True, seeds=1)
LAUNCHED = Launched("gemm", "a", (128, 1, 1), (1, 1, 1))


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


SHARED_ROWS = """
import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

COLUMNS = 512
WARP = 32


@cute.kernel
def sums_kernel(x: cute.Tensor, y: cute.Tensor):
    lane, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    total = cutlass.Float32(0.0)
    for row in range(block, x.shape[0], blocks):
        for column in range(lane, COLUMNS, WARP):
            total += x[row, column]
        total = cute.arch.warp_reduction(total, lambda a, b: a + b)
        if lane == 0:
            y[row] = total


@cute.jit
def sums_host(x: cute.Tensor, y: cute.Tensor, blocks: cutlass.Int32):
    sums_kernel(x, y).launch(grid=(blocks, 1, 1), block=(WARP, 1, 1))


@functools.cache
def compiled():
    rows = cute.sym_int()
    x = make_fake_compact_tensor(cutlass.Float32, (rows, COLUMNS), stride_order=(1, 0))
    y = make_fake_compact_tensor(cutlass.Float32, (rows,))
    return cute.compile(sums_host, x, y, cutlass.Int32(1), options="--enable-tvm-ffi")


def kernel_fn(x):
    if x.ndim != 2 or x.shape[1] != COLUMNS or x.numel() == 0:
        raise ValueError(f"a matrix of {COLUMNS} columns is wanted")
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    compiled()(x, y, min(x.shape[0], multiprocessors))
    return y


def reference_fn(x):
    return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(64, 512, device="cuda")]


def get_input_sets():
    yield [torch.randn(3, 512, device="cuda")]
"""


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["total = cutlass.Float32(0.0)", "pass"], ids=["right", "sums go on"])
def test_blocks_that_share_rows_have_several_on_a_small_gpu(tmp_path, reset):
    """Of 132 blocks none has a second one of 64 rows, nor of 129 that are drawn; it declines other columns."""
    first = "    for row in range(block, x.shape[0], blocks):\n"
    assert first in SHARED_ROWS
    path = tmp_path / "kernel.py"
    path.write_text(SHARED_ROWS.replace(first, f"{first}        {reset}\n"))
    verdict = verify_kernel(path, OPTIONS, on="emulator")
    name = "more tiles for each block: the sizes of get_inputs() on 2 multiprocessors"
    if reset == "pass":
        assert verdict.exit_code == ExitCode.WRONG_RESULT and name in verdict.summary, verdict.summary
    else:
        assert verdict.passed, verdict.summary
        assert "2 blocks" in next(case.remark for case in verdict.cases if case.name == name)


def test_a_ring_that_never_wrapped_is_named_where_that_is_sure():
    rings = [MbarrierRing(0, 3, True, trips) for trips in range(6)]
    assert not_wrapped([]) == "" and not_wrapped(rings) == "" and not_wrapped(rings[4:]) == ""
    assert not_wrapped(rings[3:4]) == "", "each of three mbarriers served once"
    assert not_wrapped(rings[1:3]) == "used a stage of its ring of 3 mbarriers again (2 trips at most)"


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


def test_layouts_of_one_input_and_sizes_of_1_come_beside_the_shorter_size(tmp_path):
    """Unless it is that size that a draw is for, or they are asked for at the sizes of `get_inputs()`."""
    path = tmp_path / "problem.py"
    inputs = "[torch.ones(8, 4096), torch.ones(16, 4096)]"
    path.write_text(f"import torch\ndef reference_fn(x, w): return x @ w.T\ndef get_inputs(): return {inputs}\n")
    reference = Reference()
    reference.start(Start("cpu"))
    reference.load(Load("cpu", str(path), 1))
    reference.plan(Plan(True, quick=False))
    asked = {"key": "derived", "seed": 1, "folder": str(tmp_path)}

    def drawn(name, **more):
        found = reference.draw(DrawInputs(derive=name, **asked, **more))
        return found.shorter, [value.shape for value in found.inputs]

    short = {"resized": ((4096, 704),)}
    assert drawn("large offset", **short) == (True, [(8, 704), (16, 704)])
    assert drawn("`x` transposed", **short) == (True, [(8, 704), (16, 704)])
    assert drawn("size 1 for 8", **short) == (True, [(1, 704), (16, 704)])
    assert drawn("size 1 for 4096", **short) == (False, [(8, 1), (16, 1)])
    assert drawn("odd sizes", **short)[0] is False
    assert drawn("all inputs transposed", **short) == (False, [(24, 48), (4, 48)])
    assert drawn("all inputs transposed", **short, own_sizes=True) == (True, [(8, 704), (16, 704)])
    assert drawn("`x` transposed", own_sizes=True) == (False, [(8, 4096), (16, 4096)])
    assert drawn("size 1 for 8", own_sizes=True) == (False, [(1, 4096), (16, 4096)])


@pytest.mark.parametrize(
    ("code", "wrapped", "more"),
    [
        (ExecutedCode(((1, 4),), (LAUNCHED,)), True, False),
        (ExecutedCode(((1, 4),), (LAUNCHED,)), False, True),  # the size does not decide the trips
        (ExecutedCode(((7, 4),), (LAUNCHED,)), True, True),  # another branch of host code
        (ExecutedCode(((1, 4),), (replace(LAUNCHED, opcodes="b"),)), True, True),
        (ExecutedCode(((1, 4),), (replace(LAUNCHED, constants=(("K", "704"),)),)), True, True),
        (ExecutedCode(((1, 4),), ()), True, True),
    ],
)
def test_a_shorter_size_that_decides_more_than_trips_is_given_up(code, wrapped, more):
    base = Ran(code=ExecutedCode(((1, 4), (2, 4)), (LAUNCHED,)), ring=MbarrierRing(0, 5, True, 64))
    assert _decides_more(Ran(code=code, ring=MbarrierRing(0, 5, wrapped, 11 if wrapped else 3)), base) is more
