"""The pattern of recurrent layers: all steps of a layer in one launch, with the weights of the states in registers.

Every row of the batch has its own steps. A cluster of blocks has some rows, and each of its blocks some units of the
layer: several threads share units, whose weights they keep in registers from the first step to the last. In each step
they multiply them by the state before, which lies in the shared memory of every block, add up by shuffles, and send the
new states to all blocks, where an mbarrier counts their bytes. A layer that no cluster holds lies over the whole GPU:
states go through global memory then, and all blocks wait for each other, as in persistent recurrent networks (Diamos et
al. 2016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Input, Recurrent
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types
from cutesmith.patterns.graph.nodes import Graph, Node
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.recurrences.analysis import Layer, RecurrenceProblem, analyse
from cutesmith.patterns.recurrences.configuration import RecurrencesConfiguration
from cutesmith.patterns.recurrences.prediction import CYCLES_PER_SECOND, cycles
from cutesmith.patterns.recurrences.proposals import is_ahead, numbers, proposals, threads, units
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS
from cutesmith.patterns.writing.templating import first_checks, launcher_key, render_template, returned, size_checks
from cutesmith.runtime.tiling import TiledShape, Tiling

CANDIDATES = 6
"""Configurations that are worth trying."""

_OWN = (
    "SmemAllocator BLOCKS LANES UNITS ROWS COPIES GATES given weights bias hidden cell states last given_1 "
    "weights_1 bias_1 hidden_1 cell_1 states_1 last_1 held full free add_products add_up sums part lane first steps "
    "rows unit own is_unit is_writer read row read_row read_weights smem k b g i j s u value now known group place "
    "of_block of_turn states_now read_states GROUPS then there peer turn turns step ahead tensors launch_recurrence "
    "recurrence_kernel compile_recurrence run_steps fakes units threads numbers memory state new low high kept "
    "passed_on half upper level slot width target is_stored reverse dtype whole warps four fours wide WEIGHTS align "
    "sizes scratch counter cells come times wait_for_all start_loading source atom block cpasync at_once "
    "clear_kernel CLEARING"
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
        found = list(proposals(self.problem, arch))
        held = [c for c in found if c.held]
        return sorted(held or found, key=lambda c: (self.cycles(c), c.blocks))[:CANDIDATES]

    def cycles(self, c: RecurrencesConfiguration) -> float:
        """Predicted, of all steps."""
        return cycles(self.problem, c)

    def seconds(self, arch: str) -> float:
        """The predicted time of the first configuration on an H200, without the launch."""
        found = self.configurations(arch)
        return self.cycles(found[0]) / CYCLES_PER_SECOND if found else math.inf

    def why(self, configuration: RecurrencesConfiguration) -> str:
        """Where the weights lie, and how long a step is expected to take."""
        c, p = configuration, self.problem
        blocks = "blocks" if c.blocks == 1 else f"clusters of {c.blocks} blocks"
        told = f"{p.rows} rows by {c.rows * c.groups} in {f'{c.blocks} blocks' if c.is_grid else blocks}, "
        told += f"{units(p, c)} of {p.units} units a block, {c.lanes} threads for {c.per} of them: "
        told += f"{p.said.gates * c.per * numbers(p, c)} weights of a thread "
        told += "stay in registers. " if c.held else "are read again in each step, as registers do not hold all. "
        if c.is_grid:
            told += "States go through global memory, and all blocks wait for each other. "
        return told + f"A step is expected to take {self.cycles(c) / p.steps / CYCLES_PER_SECOND * 1e6:.2g} µs."

    def tiled_shape(self) -> TiledShape:
        """The units of a layer; every edge is guarded."""
        return TiledShape(sizes=(self.problem.units,), element_bytes=ITEM_BYTES[self.problem.node.dtype])

    def tiling(self, configuration: RecurrencesConfiguration) -> Tiling:
        """A block's units."""
        c = configuration
        return Tiling(threads=threads(self.problem, c), tile=(units(self.problem, c),), vector=1, settings=c.to_dict())

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
            "ahead": is_ahead(p, c),
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


def match(graph: Graph) -> RecurrencesPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of a recurrent layer."""
    plan = RecurrencesPlan(graph, analyse(graph, RESERVED))
    if not plan.configurations():
        where = plan.problem.node.where
        raise UnmatchedError(f"no block has room for the units of {where}", operation=where)
    return plan
