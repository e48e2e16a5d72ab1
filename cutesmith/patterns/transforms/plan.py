"""The transform pattern: Fourier transforms of lines of float32 in one pass over memory, with pointwise work around.

Threads of a line have butterflies of 2 to 16 numbers in registers, and exchange what comes of them in shared memory
(Stockham's order: neighbouring threads read and write neighbours). The first round reads memory, and the last stores.
Real numbers of an even length are half as many complex ones, whose spectrum the last step takes apart in pairs. Where
a transform is made of others, those stay in shared memory, and a function of them is transformed in the same launch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutesmith.devices import parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.instructions import WHERE_ROUNDED, usual_instructions
from cutesmith.patterns.graph.nodes import Graph, nodes_of
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.transforms.analysis import TransformProblem, analyse
from cutesmith.patterns.transforms.configuration import TransformsConfiguration
from cutesmith.patterns.transforms.context import RESERVED, context, held, turn_places
from cutesmith.patterns.transforms.radices import best_gap, conflicts, stages, ways
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.templating import render_template
from cutesmith.runtime.tiling import TiledShape, Tiling

BLOCKS = (128, 256, 64)
"""Threads of a block, about: what lines leave of it is idle. Of the first three choices an H200 took the
first fastest in six of eight cases, within 4 % in the others (evals/results/h200/patterns)."""

WAYS = 4
"""Radices and threads of a line that are tried."""

SMEM_OF_BLOCK = 1024
"""Bytes that a block takes beside its own."""

FEWEST, OF_NUMBER = 24, 4.5
"""Registers of a thread, and more for each complex number that it holds: compiled kernels that hold 8 have 48 to 58,
and up to 94 those that hold 16. Blocks go along lines, and none of them may wait for another one to end."""

MULTIPROCESSORS = 132
"""Of an H200, whose times are predicted."""

NUMBER_INSTRUCTIONS, PAIR_INSTRUCTIONS = 16, 24
"""Of a thread for each complex number in each round, and for two numbers of a spectrum of real ones: counted in machine
code for sm_90a of 8 x 8 x 8, whose loop has some 500 beside the magnitude."""


@dataclass(frozen=True)
class TransformsPlan(GraphPlan):
    """A matched transform, ready to be rendered in any of its configurations."""

    problem: TransformProblem
    pattern: str = "transforms"

    @property
    def blocks(self) -> float:
        """As many as lines fill."""
        return max(1, math.ceil(math.prod(self.problem.leading) / self.configurations()[0].lines))

    @property
    def lines(self) -> float:
        """Lines of the batch, those included that busier multiprocessors keep the others waiting for."""
        return (
            math.prod(self.problem.leading) * MULTIPROCESSORS * math.ceil(self.blocks / MULTIPROCESSORS) / self.blocks
        )

    @property
    def warp_instructions(self) -> int:
        """Of the first configuration, counted at the rate that the machine takes these for."""
        p, c = self.problem, self.configurations()[0]
        work = NUMBER_INSTRUCTIONS * sum(c.threads * s.rounds(c.threads) * s.radix for s in stages(c.radices))
        work *= len(p.lines)
        work += PAIR_INSTRUCTIONS * (p.count // 2 + 1) * sum(line.in_pairs or line.to_pairs for line in p.lines)
        again = {
            id(node): math.prod(p.leading) / math.prod(line.node.shape[:-1])
            for line in p.spectra
            for node in nodes_of(line.node.inputs)
        }  # what a batch shares is computed for each of its lines
        pointwise = [node for node in self.graph.nodes() if node.is_pointwise]
        fast = is_fast(self.graph)
        around = sum(again.get(id(n), 1) * math.prod(n.shape) * usual_instructions([n], fast=fast) for n in pointwise)
        return int((self.lines * work + around) * WHERE_ROUNDED / 32)

    @property
    def shared_bytes(self) -> int:
        """What goes through shared memory in the first configuration, bank conflicts included."""
        p, c = self.problem, self.configurations()[0]
        rounds, of_pairs = len(c.radices) - 1, p.line.in_pairs or p.line.to_pairs
        exchanges = len(p.lines) * rounds + len(p.spectra) + of_pairs  # in each a number is written once and read once
        turns = len(p.lines) * sum(p.count * (s.radix - 1) // s.radix for s in stages(c.radices)[1:])
        turns += of_pairs * p.count // 2
        return int(8 * self.lines * (2 * p.count * exchanges * conflicts(c.radices, c.threads, c.gap) + turns))

    def configurations(self, arch: str = "sm_90a") -> list[TransformsConfiguration]:
        """Radices and sizes of a block, the best guess first; none where no block holds a line of each transform."""
        sm, count, buffers = parse_arch(arch).sm, self.problem.count, max(1, len(self.problem.spectra))
        found = list[TransformsConfiguration]()
        for radices, threads in ways(count)[:WAYS]:
            gap, turns = best_gap(radices, threads), turn_places(self.problem, radices)[-1]
            of_line = held(count, gap) * buffers
            for block in BLOCKS:
                most = max(1, min(block // threads, (sm.smem_per_block // 8 - turns) // of_line))
                lines = max(range(1, most + 1), key=lambda n: (n * threads / (32 * math.ceil(n * threads / 32)), n))
                room = 8 * (lines * of_line + turns) + SMEM_OF_BLOCK
                registers = FEWEST + OF_NUMBER * max(stage.radix * stage.rounds(threads) for stage in stages(radices))
                most = sm.registers_per_sm // (8 * math.ceil(registers / 8) * threads * lines)
                resident = max(1, min(sm.smem_per_sm // room, most))
                if room - SMEM_OF_BLOCK <= sm.smem_per_block:
                    found.append(TransformsConfiguration(radices, threads, lines, gap, resident))
        return list(dict.fromkeys(found))

    def why(self, configuration: TransformsConfiguration) -> str:
        """The rounds, where the numbers lie between them, and what bank conflicts cost."""
        c, p = configuration, self.problem
        told = f"{math.prod(p.leading)} lines of {p.line.form.length}: {p.count} complex numbers are transformed in "
        told += f"{len(c.radices)} rounds of butterflies of {' x '.join(map(str, c.radices))} by {c.threads} threads."
        if len(c.radices) == 1:
            return told
        times = conflicts(c.radices, c.threads, c.gap)
        gap = f"with a gap behind every {c.gap}, " if c.gap else ""
        return f"{told} Between rounds they lie in shared memory, {gap}at {times:.3g} times the time without conflicts."

    def tiled_shape(self) -> TiledShape:
        """The numbers of a line."""
        sizes = [ITEM_BYTES[node.dtype] for node in self.graph.outputs]
        return TiledShape(sizes=(self.problem.line.form.wanted,), element_bytes=min(sizes))

    def tiling(self, configuration: TransformsConfiguration) -> Tiling:
        """Whole lines."""
        c = configuration
        return Tiling(
            threads=c.threads * c.lines, tile=(self.problem.line.form.wanted,), vector=1, settings=c.to_dict()
        )

    def render(self, configuration: TransformsConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        return render_template("transforms.py.j2", context(self.problem, configuration))


def match(graph: Graph) -> TransformsPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of a transform's kernel."""
    plan = TransformsPlan(graph, analyse(graph, RESERVED))
    if not plan.configurations():
        where = plan.problem.node.where
        raise UnmatchedError(f"no block holds a line of each transform of {where}", operation=where)
    return plan
