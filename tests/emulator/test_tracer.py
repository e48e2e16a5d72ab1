"""Traces of one warp: every instruction with its lanes and values, through loops, suspension points and divergence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.ptx.printer import format_instruction
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.tracer import Tracer, format_value, merge
from cutesmith.problems.loading import load_file

PATH = Path(__file__).parent / "kernels" / "memory_patterns.py"
LINES = {match[1]: n for n, line in enumerate(PATH.read_text().splitlines(), 1) if (match := re.search(r"# pattern: (.*)", line))}  # noqa: E501  # fmt: skip


def trace(**where):
    tracer = Tracer(where.pop("block", 0), where.pop("warp", 0), **where)
    with emulated_device("sm_90a", observer=tracer):
        loaded = load_file(PATH)
        loaded.kernel_fn(*loaded.get_inputs())
    return tracer


@pytest.fixture(scope="module")
def second_warp():
    return trace(block=1, warp=1, lane=3)


def at(tracer, pattern, opcode):
    return [s for s in tracer.steps if s.instruction.location.line == LINES[pattern] and s.instruction.opcode == opcode]


def test_a_loop_is_shown_as_it_runs(second_warp):
    """Lane l of the warp takes 32 + l turns; it leaves and waits for the others."""
    turns = at(second_warp, "divergent loop", "ld")
    assert [step.mask.bit_count() for step in turns] == [32] * 32 + list(range(31, 0, -1))
    assert [step.mask & 1 for step in turns] == [1] * 32 + [0] * 31
    assert [bool(step.values) for step in turns] == [True] * 35 + [False] * 28  # lane 3


def test_lanes_meet_again_after_a_loop(second_warp):
    steps = second_warp.steps
    after = [s.mask for s in steps if s.instruction.location.line == LINES["32-way conflict"]]
    assert after
    assert set(after) == {0xFFFF_FFFF}
    barriers = [s for s in steps if s.instruction.opcode == "bar"]
    assert len(barriers) == 5
    assert {s.mask for s in barriers} == {0xFFFF_FFFF}


def test_values_are_those_of_the_lane(second_warp):
    thread, block = 35, 1
    (x,) = [s for s in second_warp.steps if "%tid.x" in format_instruction(s.instruction)]
    assert [bits for _, bits in x.values] == [thread]
    assert at(second_warp, "coalesced", "ld")[0].values[0][1] == 0x3F80_0000
    vector = at(second_warp, "vectors", "ld")[0]
    assert [bits for _, bits in vector.values] == [0x3F80_0000] * 4
    (product,) = at(second_warp, "vectors", "shl")
    assert product.values[0][1] == 4 * (64 * block + thread)
    (point,) = [s for s in second_warp.steps if s.instruction.opcode == "shfl"]
    assert [bits for _, bits in point.values] == [1024]  # the base of shared memory, written by a handler


def test_the_end_and_what_is_not_there(second_warp):
    assert second_warp.found
    assert second_warp.steps[-1].instruction.opcode == "atom"
    assert not trace(block=2).found
    assert trace(launch=1).steps == []


def test_bounded_steps_are_the_first_ones(second_warp):
    short = trace(block=1, warp=1, lane=3, most_steps=50).steps
    assert len(short) == 50
    assert [(s.instruction, s.mask) for s in short] == [(s.instruction, s.mask) for s in second_warp.steps[:50]]


def test_courses_are_merged_at_the_first_next_instruction():
    left, right = [0, 1, 2, 5, 6], [0, 3, 4, 5, 6]
    merged = [(0, [0, 1]), (1, [0]), (2, [0]), (3, [1]), (4, [1]), (5, [0, 1]), (6, [0, 1])]
    assert list(merge([left, right])) == merged
    assert list(merge([[], [7]])) == [(7, [1])]


@pytest.mark.parametrize(
    ("opcode", "bits", "text"),
    [
        ("add.rn.ftz.f32", 0x3FC0_0000, "1.5"),
        ("fma.rn.bf16x2", 0xBF80_3F80, "{1, -1}"),
        ("cvt.rn.f16.f32", 0x3C00, "1"),
        ("add.s32", 0xFFFF_FFFE, "-2"),
        ("add.s64", 7, "7"),
        ("setp.lt.f32", 1, "true"),
        ("ld.global.b32", 0x3FC0_0000, "0x3fc00000 (1.5 as f32)"),
        ("mov.b64", 0x7F00_0000_0000, "0x7f0000000000"),
        ("mul.f64", 0x4000_0000_0000_0000, "2"),
        ("add.f32", 0x7FC0_0000, "nan"),
    ],
)
def test_values_in_the_type_of_their_instruction(opcode, bits, text):
    name, *modifiers = opcode.split(".")
    assert format_value(Instruction(name, tuple(modifiers), ()), bits) == text
