"""Random control flow, irreducible rings included: basic block by basic block a thread does what the body says."""

from __future__ import annotations

import random

import pytest

from tests.emulator.program.graphs import program_of
from tests.emulator.program.interpreter import BasicBlocks, run_as_written

BLOCKS = 9
VALUES = 6  # %r0 … %r5, all set at the start
PREDICATES = 3


def random_body(chance: random.Random) -> str:
    """A body of BLOCKS labelled blocks with branches to anywhere."""
    lines = [f"mov.b32 %r{n}, {chance.randrange(9)};" for n in range(VALUES)]
    lines += [f"setp.lt.u32 %p{n}, %r{n}, 4;" for n in range(PREDICATES)]
    lines.append("T: .branchtargets " + ", ".join(f"L{chance.randrange(BLOCKS)}" for _ in range(4)) + ";")
    for block in range(BLOCKS):
        lines.append(f"L{block}:")
        lines += [random_line(chance) for _ in range(chance.randrange(5))]
        lines.append(random_end(chance))
    return "\n".join([*lines, "ret;"])


def guard(chance: random.Random, often: float) -> str:
    return f"@{chance.choice('! ').strip()}%p{chance.randrange(PREDICATES)} " if chance.random() < often else ""


def random_line(chance: random.Random) -> str:
    a, b, c = (f"%r{chance.randrange(VALUES)}" for _ in range(3))
    return guard(chance, 0.4) + chance.choice([
        f"add.s32 {a}, {b}, {c};",
        f"xor.b32 {a}, {b}, {chance.randrange(99)};",
        f"mov.b32 {a}, {b};",
        f"setp.lt.u32 %p{chance.randrange(PREDICATES)}, {a}, {b};",
        f"st.global.b32 [%rd0], {a};",
        f"shfl.sync.idx.b32 {a}, {b}, 0, 31, -1;",
        f"shfl.sync.idx.b32 {a}, {b}, 0, 31, -1;",
    ])  # fmt: skip


def random_end(chance: random.Random) -> str:
    target = f"L{chance.randrange(BLOCKS)}"
    return chance.choice([
        "",
        f"bra {target};",
        f"{guard(chance, 1)}bra {target};",
        f"{guard(chance, 1)}bra {target};",
        f"{guard(chance, 1)}ret;",
        f"and.b32 %r30, %r{chance.randrange(VALUES)}, 3; {guard(chance, 0.5)}brx.idx %r30, T;",
    ])  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_basic_blocks_do_what_the_body_says(seed):
    chance = random.Random(seed)
    ended = loops = 0
    for _ in range(40):
        program = program_of(random_body(chance))
        events, ends = run_as_written(program.function, 600)
        machine = BasicBlocks(program, chance)
        assert machine.run(len(events)) or not ends
        assert machine.events[: len(events)] == events
        assert not ends or len(machine.events) == len(events)
        ended += ends
        loops += any(region.back_edges for region in program.regions.values())
    assert 5 < ended < 40 and loops > 5
