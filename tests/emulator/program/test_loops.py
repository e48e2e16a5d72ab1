"""Which basic blocks lie in one loop."""

from __future__ import annotations

import random

import pytest

from cutesmith.emulator.program.basic_blocks import BasicBlock, Exit, Jump, Switch
from cutesmith.emulator.program.control_flow import loops
from cutesmith.emulator.ptx.syntax import Register


def blocks(edges: list[list[int]]) -> list[BasicBlock]:
    """Basic blocks with these successors."""
    ends = [Switch(Register("r"), tuple(each)) if len(each) > 1 else Jump(*each) if each else Exit() for each in edges]
    return [BasicBlock(number, (), end) for number, end in enumerate(ends)]


def reached(start: int, edges: list[list[int]]) -> set[int]:
    """All that may run after one."""
    seen, waiting = set[int](), list(edges[start])
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            waiting += edges[number]
    return seen


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ([[1], [2], []], {}),
        ([[1], [1, 2], []], {1: {1}}),
        ([[1], [2], [1, 3], []], {1: {1, 2}, 2: {1, 2}}),
        ([[1], [2], [2, 3], [1, 4], []], {1: {1, 2, 3}, 2: {1, 2, 3}, 3: {1, 2, 3}}),
    ],
    ids=["no loop", "one block", "two blocks", "a loop in a loop"],
)
def test_loops(edges, found):
    assert loops(blocks(edges)) == found


@pytest.mark.parametrize("seed", range(20))
def test_a_loop_is_what_is_reached_from_a_block_and_reaches_it(seed):
    random.seed(seed)
    edges = [random.sample(range(12), random.choice((0, 1, 1, 2))) for _ in range(12)]
    after = [reached(start, edges) for start in range(12)]
    expected = {at: {n for n in after[at] if at in after[n]} for at in range(12) if at in after[at]}
    assert loops(blocks(edges)) == expected
