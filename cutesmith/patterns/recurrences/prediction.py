"""How long the steps of a recurrent layer take on an H200: cycles of what a multiprocessor does, and of waiting."""

from __future__ import annotations

import math

from cutesmith.devices import parse_arch
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.recurrences.analysis import RecurrenceProblem
from cutesmith.patterns.recurrences.configuration import RecurrencesConfiguration
from cutesmith.patterns.recurrences.proposals import is_ahead, numbers, threads, units

SM = parse_arch("sm_90a").sm
CYCLES_PER_SECOND = 1.755e9

STEP_CYCLES, CLUSTER_CYCLES, GRID_CYCLES, TURN_CYCLES = 400, 330, 1350, 650
"""From the new states of a step to the next one's sums, without work of many warps; what it takes more until all blocks
of a cluster have them, or all of a grid; and of each turn of a grid."""

OTHER_INSTRUCTIONS = 1.15
"""Times what is counted: addresses, and what waits."""

FMA_LATENCY, READ_LATENCY = 4, 30
"""Cycles from one product of a sum to its next, and until a number of a state is there."""

GATE_INSTRUCTIONS = 35
"""Of a thread for each gate, an exponential and a division."""

BYTES_A_CYCLE, ALL_BYTES_A_CYCLE = 48, 3600
"""That a block reads of what lies in the second-level cache, and all blocks together."""


def cycles(problem: RecurrenceProblem, c: RecurrencesConfiguration) -> float:
    """Of all steps. Nine of ten of 152 configurations of 13 layers took 0.84 to 1.24 of this on an H200."""
    step, rows = float(STEP_CYCLES), c.rows * c.groups
    if c.is_grid:
        a_byte = max(1 / BYTES_A_CYCLE, c.blocks * len(problem.layers) / ALL_BYTES_A_CYCLE)
        loads = 4 * rows * numbers(problem, c) * c.lanes * a_byte
        turns = math.ceil(problem.rows / rows)
        return problem.steps * (step + GRID_CYCLES + loads + turns * (max(_turn(problem, c), loads) + TURN_CYCLES))
    step += _turn(problem, c) + (CLUSTER_CYCLES if c.blocks > 1 else 0)
    if not c.held:
        of_weights = problem.said.gates * units(problem, c) * problem.units * ITEM_BYTES[problem.node.dtype]
        step += of_weights / BYTES_A_CYCLE
    clusters = len(problem.layers) * math.ceil(problem.rows / rows)
    at_once = SM.multiprocessors * 10 // 11 // c.blocks  # 30 clusters of 4 fit on an H200, not 33
    return problem.steps * step * math.ceil(clusters / at_once)


def _turn(problem: RecurrenceProblem, c: RecurrencesConfiguration) -> float:
    """Of a block's rows: their products, sums over threads, and gates."""
    gates, warps, each, slots = problem.said.gates, threads(problem, c) / 32, numbers(problem, c), c.per * c.rows
    of_a_quarter = max(1, warps / 4)
    products = each * max(gates * slots * of_a_quarter, FMA_LATENCY)  # few sums wait for themselves
    reads = each * c.rows * warps  # 16 bytes of a thread for 4 numbers, 128 bytes a cycle
    late = 0 if is_ahead(problem, c) else each / 4 * READ_LATENCY / of_a_quarter
    shuffles = gates * (slots - 1 + math.log2(c.lanes // slots)) * warps
    counted = max(products, reads) + min(products, reads) / 4 + shuffles + gates * GATE_INSTRUCTIONS * of_a_quarter
    return OTHER_INSTRUCTIONS * counted + late
