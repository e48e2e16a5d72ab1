"""Matrices between shared memory and registers: spaces, broken warps, refusals (test_recorded.py has the rest)."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.operations.by_hand import Hand, Rows


def scattered(warps, seed=0):
    """Shared memory with random halves, and a row of 16 bytes for each lane, no two the same."""
    generator = np.random.default_rng(seed)
    memory = Rows(warps, 1024)
    memory.data[:] = generator.integers(0, 256, memory.data.shape)
    rows = np.stack([generator.permutation(64)[:32] for _ in range(warps)]).astype(np.uint64)
    return memory, rows


def vector(count, first=0):
    return "{" + ", ".join(f"%r{first + index}" for index in range(count)) + "}"


@pytest.mark.parametrize("space", [".shared::cta", ""])
def test_rows_are_found_in_every_space_and_at_an_offset(space):
    memory, rows = scattered(3)
    values = {f"%r{register}": np.zeros((3, 32)) for register in range(8)}
    values |= {"%r9": rows * np.uint64(16), "%rd9": rows * np.uint64(16) - 32}
    code = f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {vector(4)}, [%r9];"
    code += f"ldmatrix.sync.aligned.m8n8.x4{space}.b16 {vector(4, 4)}, [%rd9+32];"
    hand = Hand(code, values, memory=memory).run()
    assert all((hand[f"%r{register}"] == hand[f"%r{register + 4}"]).all() for register in range(4))


def test_transposing_twice_is_nothing():
    a = np.random.default_rng(3).integers(0, 2**32, (4, 32), np.uint64)
    move = "movmatrix.sync.aligned.m8n8.trans.b16"
    hand = Hand(f"{move} %r1, %r0; {move} %r2, %r1;", {"%r0": a, "%r1": a * 0, "%r2": a * 0}).run()
    assert (hand["%r2"] == a).all() and not (hand["%r1"] == a).all()
    assert hand["%r1"][0, 1] & np.uint64(0xFFFF) == hand["%r0"][0, 8] & np.uint64(0xFFFF)  # (0, 2) is (2, 0)


def test_a_broken_warp_is_reported_and_touches_nothing():
    memory, rows = scattered(1)
    before = memory.data.copy()
    active = np.ones((1, 32), bool)
    active[0, 31] = False
    code = (
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%r0}; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r9];"
    )
    values = {"%r0": np.full((1, 32), 5), "%r9": rows * np.uint64(16)}
    hand = Hand(code, values, memory=memory).run(active)
    assert (memory.data == before).all() and (hand["%r0"] == 5).all()
    assert [finding.kind for finding in hand.wave.findings.all] == ["invalid_operand"] * 2


@pytest.mark.parametrize(
    "code",
    [
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%r9];",
        "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {%r0}, [%r9];",
        "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r0, %r1, %r2}, [%r9];",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [%r9];",
        "ldmatrix.sync.aligned.m8n8.x1.global.b16 {%r0}, [%r9];",
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r9], {%r0};",
        "movmatrix.sync.aligned.m8n8.b16 %r0, %r1;",
    ],
)
def test_other_forms_are_refused_by_name(code):
    used = {name: np.zeros((1, 32)) for name in ("%r0", "%r1", "%r2", "%r9") if name in code}
    with pytest.raises(UnsupportedInstruction) as caught:
        Hand(code, used).run()
    assert f"`{code.split()[0]}`" in str(caught.value)
