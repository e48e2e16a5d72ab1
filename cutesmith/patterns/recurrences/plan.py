"""The pattern of recurrent layers: all steps of a layer in one launch, with the weights of the states in registers.

Every row of the batch has its own steps. A cluster of blocks has some rows, and each of its blocks some units of the
layer: several threads share units, whose weights they keep in registers from the first step to the last. In each step
they multiply them by the state before, which lies in the shared memory of every block, add up by shuffles, and send the
new states to all blocks, where an mbarrier counts their bytes. A layer that no cluster holds lies over the whole GPU:
states go through global memory then, and all blocks wait for each other, as in persistent recurrent networks (Diamos et
al. 2016).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.devices import SmVersion, parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Input, Recurrent
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types
from cutesmith.patterns.graph.nodes import Graph, Node
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.recurrences.analysis import Layer, RecurrenceProblem, analyse
from cutesmith.patterns.recurrences.configuration import MOST_OF_A_CLUSTER, RecurrencesConfiguration
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS
from cutesmith.patterns.writing.templating import first_checks, launcher_key, render_template, returned, size_checks
from cutesmith.runtime.tiling import TiledShape, Tiling

CLUSTERS, LANES, PER, ROWS = (1, 2, 4, 8), (4, 8, 16, 32), (1, 2, 4), (1, 2, 4, 8)
"""Blocks of a cluster, threads that share sums, units whose sums they share, rows that are summed at once."""

MOST_WARPS = 16
"""Of a block of a grid."""

CANDIDATES = 6
"""Configurations that are worth trying."""

OTHER_REGISTERS = 48
"""Of a thread, beside its weights and sums."""

MULTIPROCESSORS, CYCLES_PER_SECOND = 132, 1.755e9
"""Of an H200, whose times are predicted."""

STEP_CYCLES, CLUSTER_CYCLES, GRID_CYCLES, TURN_CYCLES = 500, 300, 3000, 300
"""From the new states of a step to the next one's sums, without work of many warps; what it takes more until all blocks
of a cluster have them, or all of a grid; and of each turn of a grid: estimated."""

FMA_LATENCY = 4
"""Cycles from one product of a sum to its next."""

GATE_INSTRUCTIONS = 60
"""Of a thread for each gate, an exponential and a division: estimated."""

BYTES_A_CYCLE, ALL_BYTES_A_CYCLE = 48, 2800
"""That a block reads of what lies in the second-level cache, and all blocks together: estimated."""

_OWN = (
    "SmemAllocator BLOCKS LANES UNITS ROWS COPIES GATES given weights bias hidden cell states last given_1 weights_1 "
    "bias_1 hidden_1 cell_1 states_1 last_1 held full free add_products add_up sums part lane rank first steps rows "
    "unit own is_unit is_writer read row is_row read_row read_weights smem k b g i j s u value now then there peer "
    "turn turns step ahead tensors launch_recurrence recurrence_kernel compile_recurrence run_steps fakes units threads "
    "numbers memory state new low high kept passed_on half upper level slot width target is_stored reverse dtype whole "
    "warps four fours wide WEIGHTS align sizes scratch counter cells come times wait_for_all start_loading source atom block "
    "cpasync at_once clear_kernel CLEARING"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""


@dataclass(frozen=True)
class RecurrencesPlan(GraphPlan):
    """A matched recurrent layer, ready to be rendered in any of its configurations."""

    problem: RecurrenceProblem
    pattern: str = "recurrences"

    @property
    def algorithmic_flops(self) -> int:
        """Both results of a layer are made of the same products."""
        p = self.problem
        return 2 * len(p.layers) * p.steps * p.rows * p.said.gates * p.units**2

    def configurations(self, arch: str = "sm_90a") -> list[RecurrencesConfiguration]:
        """How units lie over threads, the best guess first."""
        sm = parse_arch(arch).sm
        found = [c for c in _all(self.problem, arch) if self._fits(c, sm)]
        held = [c for c in found if c.held]
        return sorted(held or found, key=lambda c: (self.cycles(c), c.blocks))[:CANDIDATES]

    def _fits(self, c: RecurrencesConfiguration, sm: SmVersion) -> bool:
        """Whether registers and shared memory suffice, and no row is computed for nothing where fewer would do."""
        p, threads, numbers = self.problem, self.threads(c), self.numbers(c)
        registers = p.said.gates * c.per * (numbers * c.held + c.rows) + 4 * c.rows + OTHER_REGISTERS
        of_a_quarter = 128 * math.ceil(threads / 128)  # a quarter of the warps, and of the registers
        enough = threads <= 1024 and registers <= min(255, sm.registers_per_sm // of_a_quarter // 8 * 8)
        return enough and 8 * numbers * c.lanes * c.rows <= sm.smem_per_block and c.rows < 2 * p.rows

    def units(self, c: RecurrencesConfiguration) -> int:
        """Those of a block: as many as fill whole warps."""
        per_warp = 32 // c.lanes * c.per
        return per_warp * math.ceil(self.problem.units / c.blocks / per_warp)

    def threads(self, c: RecurrencesConfiguration) -> int:
        """Of a block."""
        return self.units(c) // c.per * c.lanes

    def numbers(self, c: RecurrencesConfiguration) -> int:
        """Weights of a thread for each gate of a unit, in fours."""
        return 4 * math.ceil(self.problem.units / (4 * c.lanes))

    def cycles(self, c: RecurrencesConfiguration) -> float:
        """Predicted, of all steps."""
        p, warps, numbers = self.problem, self.threads(c) / 32, self.numbers(c)
        chains = p.said.gates * c.per * c.rows
        products = numbers * max(chains * warps / 4, FMA_LATENCY)  # few chains wait for themselves
        reads = numbers * c.rows * warps  # 16 bytes a thread for 4 numbers, 128 bytes a cycle
        slots = c.per * c.rows
        shuffles = p.said.gates * (slots - 1 + math.log2(c.lanes // slots)) * warps
        gates = p.said.gates * GATE_INSTRUCTIONS * warps / 4
        turn = max(products, reads) + min(products, reads) / 2 + shuffles + gates
        if c.is_grid:
            loads = (
                4 * c.rows * numbers * c.lanes * max(1 / BYTES_A_CYCLE, c.blocks * len(p.layers) / ALL_BYTES_A_CYCLE)
            )
            turns = math.ceil(p.rows / c.rows)
            return p.steps * (STEP_CYCLES + GRID_CYCLES + loads + turns * (max(turn, loads) + TURN_CYCLES))
        step = STEP_CYCLES + turn + (CLUSTER_CYCLES if c.blocks > 1 else 0)
        if not c.held:
            of_weights = p.said.gates * self.units(c) * p.units * ITEM_BYTES[p.node.dtype]
            step += of_weights / BYTES_A_CYCLE
        clusters = len(p.layers) * math.ceil(p.rows / c.rows)
        at_once = MULTIPROCESSORS * 10 // 11 // c.blocks  # 30 clusters of 4 fit on an H200, not 33
        return p.steps * step * math.ceil(clusters / at_once)

    def seconds(self, arch: str) -> float:
        """The predicted time of the first configuration on an H200, without the launch."""
        found = self.configurations(arch)
        return self.cycles(found[0]) / CYCLES_PER_SECOND if found else math.inf

    def why(self, configuration: RecurrencesConfiguration) -> str:
        """Where the weights lie, and how long a step is expected to take."""
        c, p = configuration, self.problem
        blocks = "blocks" if c.blocks == 1 else f"clusters of {c.blocks} blocks"
        told = f"{p.rows} rows by {c.rows} in {f'{c.blocks} blocks' if c.is_grid else blocks}, "
        told += f"{self.units(c)} of {p.units} units a block, {c.lanes} threads for {c.per} of them: "
        told += f"{p.said.gates * c.per * self.numbers(c)} weights of a thread "
        told += "stay in registers. " if c.held else "are read again in each step, as no GPU holds all. "
        if c.is_grid:
            told += "States go through global memory, and all blocks wait for each other. "
        return told + f"A step is expected to take {self.cycles(c) / p.steps / CYCLES_PER_SECOND * 1e6:.2g} µs."

    def tiled_shape(self) -> TiledShape:
        """The units of a layer; every edge is guarded."""
        return TiledShape(sizes=(self.problem.units,), element_bytes=ITEM_BYTES[self.problem.node.dtype])

    def tiling(self, configuration: RecurrencesConfiguration) -> Tiling:
        """A block's units."""
        c = configuration
        return Tiling(threads=self.threads(c), tile=(self.units(c),), vector=1, settings=c.to_dict())

    def render(self, configuration: RecurrencesConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        return render_template("recurrences.py.j2", self._context(configuration))

    def _context(self, c: RecurrencesConfiguration) -> dict[str, object]:
        p, graph = self.problem, self.graph
        views = ViewNames({*p.arguments, *RESERVED})
        layers = [_written(layer, f"_{at}" if at else "", p, views) for at, layer in enumerate(p.layers)]
        names = {id(node): name for layer in layers for name, node in layer.results.items()}
        inputs = [name for layer in layers for name in layer.inputs.values()]
        return {
            "c": c,
            "p": p,
            "said": p.said,
            "dtype": p.node.dtype,
            "layers": layers,
            "outputs": list(names.values()),
            "helpers": [SPECIAL_FUNCTIONS["sigmoid_float32"].strip("\n")] if p.said.gates > 1 else [],
            "types": stored_types([p.node.dtype]),
            "views": views.lines,
            "checks": size_checks(p.arguments, graph, graph.checked),
            "first_checks": first_checks(p.arguments, graph),
            "passed": [name for layer in layers for name in (*layer.inputs.values(), *layer.results)],
            "key": launcher_key(list(dict.fromkeys(inputs))),
            "returns": returned([names[id(node)] for node in graph.outputs], as_tuple=graph.returns_tuple),
        }


@dataclass(frozen=True)
class _Written:
    """A layer as the template writes it: the code of its inputs by what they are, and its results by their names."""

    said: Recurrent
    inputs: dict[str, str]
    results: dict[str, Node]
    end: str

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of all that a launch takes of it."""
        return (*(f"{role}{self.end}" for role in self.inputs), *self.results)

    def passed(self, role: str) -> str:
        """The tensor of that role in the kernel, None where there is none."""
        name = f"{role}{self.end}"
        return f"m_{name}" if name in self.tensors else "None"


def _written(layer: Layer, end: str, problem: RecurrenceProblem, views: ViewNames) -> _Written:
    inputs = {role: views.name(Input.of(node).code(problem.arguments)) for role, node in layer.inputs.items()}
    results = {("last" if Recurrent.of(node).cell else "states") + end: node for node in layer.results}
    return _Written(layer.said, inputs, results, end)


def _all(problem: RecurrenceProblem, arch: str) -> Iterator[RecurrencesConfiguration]:
    """Clusters, and grids of as many blocks as whole warps make of the units and the GPU has at once."""
    sm = parse_arch(arch).sm
    clusters = CLUSTERS if sm.capability >= (9, 0) else CLUSTERS[:1]
    for lanes, per, rows in itertools.product(LANES, PER, ROWS):
        if per * rows > lanes:
            continue
        for blocks in clusters:
            yield RecurrencesConfiguration(blocks, lanes, per, rows, held=True)
        yield RecurrencesConfiguration(clusters[-1], lanes, per, rows, held=False)
        for warps in range(1, MOST_WARPS + 1):
            blocks = math.ceil(problem.units / (32 // lanes * per * warps))
            if MOST_OF_A_CLUSTER < blocks <= sm.multiprocessors // len(problem.layers):
                yield RecurrencesConfiguration(blocks, lanes, per, rows, held=True)


def match(graph: Graph) -> RecurrencesPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of a recurrent layer."""
    plan = RecurrencesPlan(graph, analyse(graph, RESERVED))
    if not plan.configurations():
        where = plan.problem.node.where
        raise UnmatchedError(f"no block has room for the units of {where}", operation=where)
    return plan
