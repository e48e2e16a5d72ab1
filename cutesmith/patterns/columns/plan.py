"""The column-reduction pattern: reductions along a stride, where the rows lie side by side in memory.

A warp's lanes have vectors of neighbouring rows, so that its loads are whole sectors; the threads of a block take turns
at the columns, and combine their partial results by shuffles and shared memory. Later stages reuse the registers, or
read the columns again from L2. What is computed is `rows`' analysis: only where the elements lie, and who combines,
differ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cutesmith.devices import parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.columns.configuration import ColumnsConfiguration
from cutesmith.patterns.columns.spread import ENOUGH_BLOCKS, Spread, columns_tiling, spread_columns, widest_lanes
from cutesmith.patterns.columns.steps import steps_of
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.instructions import WHERE_ROUNDED, usual_instructions
from cutesmith.patterns.graph.nodes import Graph, nodes_of
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.rows.analysis import RowsAnalysis, TensorUse
from cutesmith.patterns.rows.kernel import RowsKernel, write_kernel
from cutesmith.patterns.rows.parts import ACROSS_ROWS
from cutesmith.patterns.rows.plan import analysed, bytes_of_uses, for_all_or_traced_sizes
from cutesmith.patterns.rows.proposals import HINTS
from cutesmith.patterns.rows.taken import FAR, is_taken, nodes_of_places, with_taken_inputs
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.templating import first_checks, render_template
from cutesmith.runtime.tiling import TiledShape, Tiling, power_of_two

VECTOR_BYTES = 16
FEWEST_ALIKE = 128
"""Rows of the same elements that are worth it: a warp loads an element once for so many, in vectors of four."""

HELD_BYTES = 128
"""Of rows in the registers of a thread: a softmax of bfloat16 then takes 106 registers (64 spill), as compiled. Of
results that turn in shared memory as many: 1024 threads then take 128 KB."""

DIVIDED_INSTRUCTIONS = 12
"""Of a warp for a load whose columns are several dimensions: divisions of 64 bits find its place. As sums of single
products the gradient of depthwise weights, 7 x 7 for 32 x 96 x 56 x 56, took 770 us on an H200."""

OF_A_PLACE = 4
"""Instructions of a warp for each step to a place of 64 bits: a vector's address, and whether it lies inside."""

ALONE = 512
"""Threads of a block whose rows stay in registers, 100 of each thread: another does not fit its multiprocessor, and no
loads are on their way while it computes. A norm of 192 channels took 51.0 us on an H200 so, 45.5 by blocks of 256."""


@dataclass(frozen=True)
class ColumnsPlan(GraphPlan):
    """A matched graph of column reductions, ready to be rendered in any of its configurations."""

    analysis: RowsAnalysis
    kernel: RowsKernel
    pattern: str = "columns"

    @property
    def algorithmic_bytes(self) -> int:
        """Bytes that must cross device memory once: what is read of arguments, and outputs, in the traced shapes."""
        return bytes_of_uses(self.graph, self.analysis)

    def configurations(self, arch: str = "sm_90a") -> list[ColumnsConfiguration]:
        """Ways to spread rows over threads, the best guess first.

        By design every one has 16 bytes a lane in flight for at least four columns, 32 KB an SM and more, which is what
        4.2 TB/s of an H200 need at 800 ns: the predicted time is that of a copy of as many bytes.
        """
        elements = HELD_BYTES // max(2, self._smallest, power_of_two(self._turned_bytes))
        vector = max(1, VECTOR_BYTES // max(2, self._smallest))
        base = ColumnsConfiguration(vector=vector, resident_elements=elements, reload_elements=elements)
        narrow, wide = replace(base, lanes=8), replace(base, threads=512)
        full = min(2048, parse_arch(arch).sm.threads_per_sm)
        found = [base, narrow, wide, replace(base, lanes=16), replace(base, threads_per_sm=full // 2)]
        if self._is_read_again:
            lasting = replace(narrow, hints="last")
            is_alone = self.tiling(base).threads >= ALONE > self.tiling(narrow).threads
            found[1:1] = [replace(base, hints="last"), lasting]
            found = [lasting, *(each for each in found if each is not lasting)] if is_alone else found
        return [*found, replace(base, threads=128), replace(base, reload_elements=elements // 2)]

    @property
    def blocks(self) -> float:
        """One for each tile of rows."""
        _, rows = self.tiling(self.configurations()[0]).tile
        return max(1, math.ceil(self.analysis.rows / rows))

    @property
    def warp_instructions(self) -> int:
        """Of the functions, for each element of each row, and of the loads, for each vector of rows.

        Lanes beyond the rows that are neighbours count, too. A load whose columns do not follow each other in steps of
        one size takes divisions.
        """
        analysis, c = self.analysis, self.configurations()[0]
        neighbours, fast = _neighbours(analysis), is_fast(self.graph)
        vector = math.gcd(neighbours, c.vector)
        wide = [use for use in analysis.uses if use.role in ("element", "column")]
        apart = sum(use.role == "element" and _are_several(analysis, use) for use in wide)
        places = nodes_of_places(use.node for use in wide)
        work = [each for each in nodes_of(analysis.outputs) if each.is_reduction or analysis.is_element(each, "full")]
        work = [each for each in work if not any(each is place for place in places)]
        count = usual_instructions(work, fast=fast) + sum(each.is_reduction for each in work)
        loads = len(wide) + apart * DIVIDED_INSTRUCTIONS + len(places) * OF_A_PLACE
        each = count * (1 if fast else WHERE_ROUNDED) + loads / vector
        lanes = self._spread(c).lanes
        idle = math.ceil(neighbours / (vector * lanes)) * vector * lanes / neighbours
        return int(each * idle * analysis.rows * analysis.columns / 32)

    def render(self, configuration: ColumnsConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        *steps, ending = steps_of(self.kernel)
        elements = {t.name for t in self.kernel.stores}
        context = {
            **vars(self.kernel),
            "c": configuration,
            "first_checks": first_checks(self.kernel.arguments, self.graph, self.kernel.whole or ""),
            "again": self._is_read_again,
            "enough": widest_lanes(self.analysis.rows, configuration.vector),
            "steps": steps,
            "ending": ending,
            "turned": self._turned_bytes > 0,
            "inputs": len(self.kernel.tensors) - len(self.graph.outputs),
            "row_outputs": [t for t in self.kernel.tensors[-len(self.graph.outputs) :] if t.name not in elements],
            "last_stores": {o.name for stage in self.kernel.stages if not stage.accumulators for o in stage.stores},
        }
        return render_template("columns.py.j2", context)

    def why(self, configuration: ColumnsConfiguration) -> str:
        """How wide a block is, where rows wait between visits, and how many blocks there are."""
        c, spread, visits = configuration, self._spread(configuration), len(self.kernel.stages)
        _, rows = self.tiling(c).tile
        blocks = math.ceil(self.analysis.rows / rows)
        told = (
            f"A block is {spread.lanes} lanes of {rows // spread.lanes} neighbouring rows, and {spread.parts} threads"
        )
        told += f" share the {self.analysis.columns} columns of each:"
        held = f"rows stay in their registers for {visits} visits" if visits > 1 else "their registers hold a row"
        again = f"{visits} visits read them, from L2 after the first" if visits > 1 else "a row is read once"
        told += f" {held if spread.blocks == 1 else again}, {spread.chunks} loads of a thread on their way at once."
        told += f" {self.analysis.rows} rows are {blocks} blocks for {ENOUGH_BLOCKS // 2} multiprocessors."
        if c.hints in HINTS:
            told += f" {HINTS[c.hints]}"
        return told

    def tiled_shape(self) -> TiledShape:
        """Columns and rows; every edge is guarded."""
        return TiledShape(sizes=(self.analysis.columns, self.analysis.rows), element_bytes=self._smallest)

    def tiling(self, configuration: ColumnsConfiguration) -> Tiling:
        """How the traced rows are spread over threads."""
        vector = math.gcd(_neighbours(self.analysis), configuration.vector)
        spread = self._spread(configuration)
        tiling = columns_tiling(spread, self.analysis.columns, vector, self._smallest, configuration)
        return replace(tiling, smem_bytes=self._turned_bytes * spread.lanes * vector * spread.held)

    def _spread(self, configuration: ColumnsConfiguration) -> Spread:
        """How its threads and blocks share the columns."""
        neighbours, columns = _neighbours(self.analysis), self.analysis.columns
        enough = widest_lanes(self.analysis.rows, configuration.vector)
        vector, again = math.gcd(neighbours, configuration.vector), self._is_read_again
        return spread_columns(columns, neighbours // vector, vector, enough, configuration, again=again)

    @property
    def stays_in_registers(self) -> bool:
        """Whether a visit reads rows from the registers of threads, so that it costs less than what it spares.

        A mean and squared deviations of one visit are four numbers for each row of a thread, combined by 12 shuffles or
        more and joined about a pivot; apart they are two sums.
        """
        return self._spread(self.configurations()[0]).blocks == 1

    @property
    def _turned_bytes(self) -> int:
        """Of results in shared memory for each element of a row, so that whole lines of columns are stored; else 0.

        Results are allocated in the order of their dimensions. Where their columns lie side by side, each lane would
        store 2 or 4 bytes of a sector of its own: a layer norm of 192 channels, whose result has the channels last,
        took 155 us on an H200 so.
        """
        last = max((dim for dim, size in enumerate(self.analysis.shape) if size > 1), default=0)
        total = sum(t.bytes for t in self.kernel.stores)
        return total if last in self.analysis.reduced and total <= VECTOR_BYTES else 0

    @property
    def _is_read_again(self) -> bool:
        return bool(self.kernel.kept)

    @property
    def _smallest(self) -> int:
        """Bytes of an element of the tensors that change along both."""
        uses = [use for use in self.analysis.uses if use.role == "element"]
        return min((ITEM_BYTES[use.node.dtype] for use in uses), default=4)


def match(graph: Graph) -> ColumnsPlan:
    """A plan, or UnmatchedError where the columns lie side by side in memory, or rows would not take the graph."""
    return for_all_or_traced_sizes(_match, graph)


def _match(graph: Graph) -> ColumnsPlan:
    taken = with_taken_inputs(graph)
    analysis = analysed(taken)
    if analysis.partial_sums:
        raise UnmatchedError("rows that lie side by side are not summed up", operation="partial_sums")
    if _neighbours(analysis) < 2:
        raise UnmatchedError("the rows do not lie side by side in memory", operation="")
    plan = ColumnsPlan(graph, analysis, write_kernel(taken, analysis, ACROSS_ROWS))
    if not analysis.partners or not plan.stays_in_registers:
        return plan
    apart = analysed(taken, among=("max",))
    return ColumnsPlan(graph, apart, write_kernel(taken, apart, ACROSS_ROWS))


def _neighbours(analysis: RowsAnalysis) -> int:
    """How many rows lie side by side in the largest tensor, or have the same elements; 1 where its columns do."""
    uses = [use for use in analysis.uses if use.role == "element"]
    wide = [dim for dim in range(analysis.rank) if analysis.shape[dim] > 1]
    if analysis.columns == 1 or not wide:
        return 1
    if (alike := _rows_alike(analysis, uses)) >= FEWEST_ALIKE or not uses:
        return alike if alike >= FEWEST_ALIKE else 1
    whole = max(uses, key=lambda use: math.prod(use.node.shape))
    steps = _steps(analysis, whole)
    nearest = min(wide, key=lambda dim: steps[dim])
    if nearest in analysis.reduced:
        return 1
    count, step = 1, steps[nearest]
    for dim in reversed(analysis.kept):
        if steps[dim] == count * step and analysis.shape[dim] > 1:
            count *= analysis.shape[dim]
    return count


def _rows_alike(analysis: RowsAnalysis, uses: Sequence[TensorUse]) -> int:
    """How many neighbouring rows are made of the same elements: those of pairs, which differ by a value a row."""
    count = 1
    for dim in reversed(analysis.kept):
        if any(analysis.sizes(use.node.shape, [dim]) != (1,) for use in uses):
            break
        count *= analysis.shape[dim]
    return count


def _steps(analysis: RowsAnalysis, use: TensorUse) -> list[int]:
    """The strides of a tensor in all dimensions; where it does not change, as if it were far apart."""
    given = zip(use.node.shape, Input.of(use.node).stride, strict=True)
    strides = [stride if size != 1 and stride else FAR for size, stride in given]
    return [FAR] * (analysis.rank - len(strides)) + strides


def _are_several(analysis: RowsAnalysis, use: TensorUse) -> bool:
    """Whether the columns of a tensor are several dimensions in memory."""
    steps = _steps(analysis, use)
    dims = [dim for dim in analysis.reduced if analysis.shape[dim] > 1]
    pairs = itertools.pairwise(dims)
    return not is_taken(use.node) and any(
        steps[outer] != steps[inner] * analysis.shape[inner] for outer, inner in pairs
    )
