"""The pattern of attention: a block keeps a tile of queries and goes over the keys once, with an online softmax.

The scores of a tile never leave the registers of the warp that made them, and become the operand of the second product
as they lie (FlashAttention-2, arXiv 2307.08691). Tiles of keys outside the mask's band are left out.

Of the two templates, `attention.py.j2` uses mma.sync and cp.async, with one buffer for keys and one for values: the
next keys are copied while the values are multiplied, the next values while the scores are. `attention_sm90.py.j2` is
for Hopper: a warp loads by TMA into rings, and warpgroups multiply by wgmma, the softmax of one beside the products of
the other (FlashAttention-3, arXiv 2407.08608).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cutesmith.devices import SmVersion, parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention import hopper
from cutesmith.patterns.attention.analysis import AttentionProblem, analyse
from cutesmith.patterns.attention.band import seen_share
from cutesmith.patterns.attention.configurations import AttentionConfiguration, HopperAttentionConfiguration
from cutesmith.patterns.attention.hopper import SM_COUNT, padded
from cutesmith.patterns.attention.kernel import RESERVED, Form, KernelContext
from cutesmith.patterns.attention.shared_keys import with_heads_as_rows
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.writing.templating import render_template
from cutesmith.runtime.tiling import TiledShape, Tiling

TILES = ((128, 64, 8), (64, 64, 4), (128, 32, 8), (128, 128, 8), (64, 128, 4), (64, 32, 4), (32, 64, 2))
"""(queries, keys, warps): each warp has 16 rows of queries. FlashAttention-2 takes the first for widths to 128."""

REGISTERS = 190
"""A thread has 255: what is left holds the operands of an instruction, addresses and the scores' function."""

STEP_KEYS = 24
"""What a step of sm_90a's kernel costs beside its keys: barriers, and scores that wait for each other."""

ENOUGH = 64
"""Multiprocessors that read as much together as the memory gives."""

PARTS_SECONDS = 13e-6
"""Keys that are read in parts take so much longer than their bytes: 8 x 16384 keys of 128 take 34 us on an H200, where
as one part each they take 131; 8 x 131072 take 137 and 1002."""

FLOPS_PER_SECOND = 275e12
"""Of the form by mma.sync on an H200, at 8192 queries and keys: 263 with heads of 64, 291 with heads of 128."""

HOPPER_FLOPS, HOPPER_FLOPS_OF_WIDTH = 710e12, 7.9e12
"""Of sm_90a's form: of long rows with heads of 128, and by width with narrower ones, where exponentials take longer."""

EDGE_KEYS = 190
"""More for each row of queries: the first loads, the last stores, the mask's edge. With the rates above it is fitted to
16 sizes on an H200 (evals/results/h200/patterns)."""

INSTRUCTIONS = 132 * 128 * 1.755e9
"""Of single lanes, a second."""

READ_INSTRUCTIONS = 2
"""To read what a score has an element of, and to convert it."""

READ_APART = 1.1e-12
"""Seconds more where each lane loads an element of another row: with a mask of 16 bits 64 heads of 64, 4096 queries and
keys took an H200 1808 µs, where 584 are predicted without it."""

L2_BYTES = 5.5e12
"""A second."""

BYTES_OF_ONE = 66e9
"""A second that one multiprocessor of an H200 reads: 8 heads of 16384 keys take 131 µs, of 131072 keys 1002."""


@dataclass(frozen=True)
class AttentionPlan(GraphPlan):
    """A matched attention, ready to be rendered in any of its configurations."""

    problem: AttentionProblem
    pattern: str = "attention"

    def configurations(self, arch: str = "sm_90a") -> list[AttentionConfiguration] | list[HopperAttentionConfiguration]:
        """Tiles that the architecture can run, the best guess first; of sm_90a's own form where that serves."""
        sm, problem = parse_arch(arch).sm, self.problem
        if not any(hopper.obstacles(problem, sm)):
            served = [c for c in hopper.CONFIGURATIONS if not any(hopper.refusals(problem, c, sm))]
            if served:
                return sorted(served, key=lambda c: _predicted_cost(problem, c))
        found = [AttentionConfiguration(*tile) for tile in TILES]
        fitting = [c for c in found if not any(refusals(problem, c, sm))]
        return sorted(fitting, key=lambda c: _predicted_cost(problem, c))

    def seconds(self, arch: str = "sm_90a") -> float:
        """The time of what no mask lets the kernel leave out: products, scores, keys and masks from L2."""
        on_hopper = any(isinstance(c, HopperAttentionConfiguration) for c in self.configurations(arch))
        rate = min(HOPPER_FLOPS, self.problem.width * HOPPER_FLOPS_OF_WIDTH) if on_hopper else FLOPS_PER_SECOND
        queries, keys = self.problem.queries, self.problem.keys
        seen = seen_share(self.problem.band, queries, keys)
        share = seen + EDGE_KEYS / max(1, keys)
        in_parts = on_hopper and hopper.reads_in_parts(self.problem)
        busy, more = (ENOUGH, PARTS_SECONDS) if in_parts else (min(ENOUGH, self._tiles), 0.0)
        arithmetic = self.algorithmic_flops * share / rate + seen * self._scores * self._seconds_of_a_score(on_hopper)
        return max(arithmetic, seen * self._l2_bytes / L2_BYTES, self.algorithmic_bytes / busy / BYTES_OF_ONE + more)

    def _seconds_of_a_score(self, on_hopper: bool) -> float:
        """What the function of a score takes, and what it reads."""
        read = [operand for operand in self.problem.score_inside.operands if operand.varies[-1]]
        tiled = hopper.tiled_operands(self.problem) if on_hopper else []
        apart = sum(operand not in tiled and operand.varies[-2] for operand in read)
        return (self.problem.instructions + READ_INSTRUCTIONS * len(read)) / INSTRUCTIONS + apart * READ_APART

    @property
    def _scores(self) -> int:
        return math.prod(self.problem.batch) * self.problem.queries * self.problem.keys

    @property
    def _l2_bytes(self) -> int:
        """Of keys, values and masks, which each tile of queries reads."""
        problem = self.problem
        of_a_key = ITEM_BYTES[problem.dtype] * (problem.width + problem.value_width)
        of_a_score = sum(ITEM_BYTES[o.dtype] for o in problem.score_inside.operands if all(o.varies[-2:]))
        return self._tiles * problem.keys * of_a_key + self._scores * of_a_score

    @property
    def _tiles(self) -> int:
        return max(1, math.prod(self.problem.batch) * math.ceil(self.problem.queries / hopper.MOST_QUERIES))

    def why(self, configuration: Form) -> str:
        """The tiles that waves of blocks decided by, and who has the registers."""
        c, problem = configuration, self.problem
        blocks = math.prod(problem.batch) * math.ceil(problem.queries / c.queries)
        told = (
            f"{blocks} tiles of {c.queries} queries, on {SM_COUNT} multiprocessors, go over the keys {c.keys} at a time"
        )
        if not isinstance(c, HopperAttentionConfiguration):
            return (
                f"{told}: of those that fit registers and shared memory, these leave the least of the last wave idle."
            )
        told += f", {c.stages} steps in shared memory. The registers of {c.warpgroups} warpgroups hold scores and sums"
        told += ", and products of one go beside the softmax of the other." if c.turns else "."
        return told + (" Several blocks share the keys of a tile." if hopper.reads_in_parts(problem) else "")

    def tiled_shape(self) -> TiledShape:
        """Queries and keys; every edge is guarded."""
        return TiledShape(sizes=(self.problem.queries, self.problem.keys))

    def tiling(self, configuration: Form) -> Tiling:
        """A block's tile and what it takes."""
        c = configuration
        if isinstance(c, HopperAttentionConfiguration):
            smem = hopper.shared_bytes(self.problem, c)
            return Tiling(threads=c.threads, tile=(c.queries, c.keys), smem_bytes=smem, settings=c.to_dict())
        return Tiling(
            threads=32 * c.warps,
            tile=(c.queries, c.keys),
            smem_bytes=shared_bytes(self.problem, c),
            settings=c.to_dict(),
        )

    def render(self, configuration: Form) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        on_hopper = isinstance(configuration, HopperAttentionConfiguration)
        template = "attention_sm90.py.j2" if on_hopper else "attention.py.j2"
        context = KernelContext(self.problem).of(configuration) | {"hopper": on_hopper}
        if isinstance(configuration, HopperAttentionConfiguration):
            context["query_stages"] = hopper.query_stages(self.problem, configuration)
        context["widest"] = widest(self.problem, configuration)
        return render_template(template, context)


def match(graph: Graph) -> AttentionPlan:
    """A plan, or UnmatchedError where the graph is not one attention of arguments whose rows are contiguous."""
    problem = with_heads_as_rows(analyse(graph, RESERVED))
    for matrix, dim in problem.matrices.values():
        if matrix.strides[dim] != 1 and matrix.shape[dim] != 1:
            raise UnmatchedError(f"the rows of {matrix.code.name} are not contiguous", operation="")
        if matrix.shape[dim] % 2 or any(step % 2 for step in matrix.strides[:-2]):
            raise UnmatchedError(f"a row of {matrix.code.name} does not begin at 4 bytes", operation="")
    if not AttentionPlan(graph, problem).configurations():
        raise UnmatchedError(f"heads of {problem.width} and {problem.value_width} elements do not fit", operation="")
    return AttentionPlan(graph, problem)


def shared_bytes(problem: AttentionProblem, c: AttentionConfiguration) -> int:
    """The tiles of queries, keys and values."""
    return 2 * ((c.queries + c.keys) * padded(problem.width) + c.keys * padded(problem.value_width))


def refusals(problem: AttentionProblem, c: AttentionConfiguration, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why the template would not run so."""
    if c.queries != 16 * c.warps:
        yield f"{c.warps} warps do not have 16 of {c.queries} rows each"
    registers = padded(problem.value_width) // 2 + c.keys // 2 + c.keys // 4
    if registers > REGISTERS:
        yield f"{registers} registers a thread for sums, scores and weights: more than {REGISTERS} spill"
    if (needed := shared_bytes(problem, c)) > sm.smem_per_block:
        yield f"{needed} bytes of shared memory: sm_{sm.number} has {sm.smem_per_block} bytes a block"


def _predicted_cost(problem: AttentionProblem, c: Form) -> float:
    """Of all waves of blocks: scores, edges of tiles included, and keys and values that each block reads again."""
    blocks = math.prod(problem.batch) * math.ceil(problem.queries / c.queries)
    if isinstance(c, HopperAttentionConfiguration):
        favoured = 0.999 if c.turns else 1
        return favoured * math.ceil(blocks / SM_COUNT) * _steps(problem, c) * (c.keys + STEP_KEYS) * (c.queries + 48)
    resident = max(1, 8 // c.warps)
    waves = math.ceil(blocks / (SM_COUNT * resident))
    return waves * resident * math.ceil(problem.keys / c.keys) * c.keys * (c.queries + 48)


def _steps(problem: AttentionProblem, c: HopperAttentionConfiguration) -> float:
    """Of a tile of queries, on average. A mask's edge crosses one step where tiles end with steps, else two."""
    if not (problem.band.lower or problem.band.upper):
        return math.ceil(problem.keys / c.keys)
    seen = problem.keys * seen_share(problem.band, problem.queries, problem.keys) + c.queries / 2
    return seen / c.keys + (c.queries % c.keys != 0)


def widest(problem: AttentionProblem, c: Form) -> tuple[int, int]:
    """Elements of a query's and of a value's head up to which the tiles fit registers and shared memory."""
    width, value_width = padded(problem.width), padded(problem.value_width)
    while width == value_width and _fits(replace(problem, width=width + 16, value_width=width + 16), c):
        width = value_width = width + 16
    return width, value_width


def _fits(problem: AttentionProblem, c: Form) -> bool:
    if isinstance(c, HopperAttentionConfiguration):
        return not any(hopper.refusals(problem, c, parse_arch("sm_90a").sm))
    return not any(refusals(problem, c, parse_arch("sm_80").sm))
