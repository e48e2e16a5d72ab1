"""Configurations of a recurrent layer that its architecture has room for, and how units lie over threads in them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from cutesmith.devices import SmVersion, parse_arch
from cutesmith.patterns.recurrences.analysis import RecurrenceProblem
from cutesmith.patterns.recurrences.configuration import MOST_OF_A_CLUSTER, RecurrencesConfiguration

CLUSTERS, LANES, PER, ROWS, GROUPS = (1, 2, 4, 8), (4, 8, 16, 32), (1, 2, 4), (1, 2, 4, 8), (1, 2, 4)
"""Blocks of a cluster, threads that share sums, units whose sums they share, rows that are summed at once, groups."""

MOST_WARPS = 16
"""Of a group of a grid."""

REGISTERS = parse_arch("sm_90a").sm.registers_per_sm
"""Of a multiprocessor, on every architecture."""

OTHER_REGISTERS = 48
"""Of a thread, beside its weights, its sums and the states that it multiplies."""


def proposals(problem: RecurrenceProblem, arch: str) -> Iterator[RecurrencesConfiguration]:
    """All that fit, in no order."""
    sm = parse_arch(arch).sm
    for lanes, per, rows, groups in itertools.product(LANES, PER, ROWS, GROUPS):
        for blocks, held in _blocks(problem, lanes, per, sm):
            configuration = RecurrencesConfiguration(blocks, lanes, per, rows, groups, held)
            if per * rows <= lanes and _fits(problem, configuration, sm):
                yield configuration


def _blocks(problem: RecurrenceProblem, lanes: int, per: int, sm: SmVersion) -> Iterator[tuple[int, bool]]:
    """Clusters, and grids of as many blocks as whole warps make of the units and the GPU has at once."""
    clusters = CLUSTERS if sm.capability >= (9, 0) else CLUSTERS[:1]
    yield from ((blocks, True) for blocks in clusters)
    yield clusters[-1], False
    for warps in range(1, MOST_WARPS + 1):
        blocks = math.ceil(problem.units / (32 // lanes * per * warps))
        if MOST_OF_A_CLUSTER < blocks <= sm.multiprocessors // len(problem.layers):
            yield blocks, True


def _fits(problem: RecurrenceProblem, c: RecurrencesConfiguration, sm: SmVersion) -> bool:
    """Whether registers and shared memory suffice, and no row is computed for nothing where fewer would do."""
    rows = c.rows * c.groups
    enough = threads(problem, c) <= 1024 and _registers(problem, c, parts=1) <= _most_registers(problem, c)
    return enough and 8 * numbers(problem, c) * c.lanes * rows <= sm.smem_per_block and rows < 2 * problem.rows


def is_ahead(problem: RecurrenceProblem, c: RecurrencesConfiguration) -> bool:
    """Whether registers suffice to read the next numbers of states while some are multiplied."""
    return c.held and _registers(problem, c, parts=2) <= _most_registers(problem, c)


def _registers(problem: RecurrenceProblem, c: RecurrencesConfiguration, parts: int) -> int:
    """Of a thread, which has four numbers of its rows so many times at once."""
    weights_and_sums = problem.said.gates * c.per * (numbers(problem, c) * c.held + c.rows)
    return weights_and_sums + 4 * c.rows * parts + OTHER_REGISTERS


def _most_registers(problem: RecurrenceProblem, c: RecurrencesConfiguration) -> int:
    of_a_quarter = 128 * math.ceil(threads(problem, c) / 128)  # a quarter of the warps, and of the registers
    return min(255, REGISTERS // of_a_quarter // 8 * 8)


def units(problem: RecurrenceProblem, c: RecurrencesConfiguration) -> int:
    """Those of a block: as many as fill whole warps."""
    per_warp = 32 // c.lanes * c.per
    return per_warp * math.ceil(problem.units / c.blocks / per_warp)


def threads(problem: RecurrenceProblem, c: RecurrencesConfiguration) -> int:
    """Of a block."""
    return units(problem, c) // c.per * c.lanes * c.groups


def numbers(problem: RecurrenceProblem, c: RecurrencesConfiguration) -> int:
    """Weights of a thread for each gate of a unit, in fours."""
    return 4 * math.ceil(problem.units / (4 * c.lanes))
