"""The scatter pattern in the elements' order: what is combined of the elements that have one index, in one launch.

A block has some places of the result, and walks all indices. It lists those that are its own in their order, brings the
elements of the listed ones to shared memory together, and then each thread combines those of its places one after the
other: the result is the same in every run. Integers of one element an index need no order, and are combined by atomics
in shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutesmith.patterns.contraction.epilogue import Epilogue, Given
from cutesmith.patterns.contraction.proposals import SM_COUNT
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.scans.operations import combined, neutral
from cutesmith.patterns.scatters.analysis import Combined, ScatterProblem, function_writer
from cutesmith.patterns.scatters.configurations import ScattersConfiguration
from cutesmith.patterns.scatters.host_code import Passed, coordinates
from cutesmith.patterns.writing.expressions import literal
from cutesmith.patterns.writing.naming import SHARED_NAMES, safe_names
from cutesmith.patterns.writing.templating import render_template
from cutesmith.runtime.tiling import TiledShape, Tiling, power_of_two

_OWN = (
    "SmemAllocator THREADS WARPS LOADS CHUNK TILE STAGED DIM LINES COLUMNS LAUNCHERS index_of element epilogue lane "
    "warp item part line first column group smem places members counts rows wanted mine total hits hit before start "
    "member row count frame sizes layout_of power_of_two entry staged entries values e r scatter_kernel "
    "launch_scatter compile_scatter owner found number own shares at READ RESULTS tensors length width lines columns "
    "parts turn chunk batch begin most"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""

SHARES = ("count", "length", "rows", "width", "lines", "columns", "parts")
"""Of blocks: `count` places lie along the index's dimension, `length` indices; a block has `rows` places of `width`
columns of one line; there are `lines`, and `columns` of each in `parts`."""

SHAPES = ((256, 4, 4096, 2048), (128, 4, 2048, 2048), (512, 4, 4096, 4096), (256, 8, 4096, 2048), (256, 4, 2048, 4096))
"""(threads, loads, tile, staged): no GPU has ordered them yet."""

FEW_BLOCKS = 2 * SM_COUNT
"""Fewer leave multiprocessors idle: blocks then have fewer places."""

INDEX_INSTRUCTIONS, UNORDERED_INSTRUCTIONS = 60, 21
"""Of a warp for 32 indices, its own in their order or combined by atomics; like the two below counted on the emulated
GPU, for 4096 rows of 32 numbers that are added to 256, and for a histogram of 16384 numbers."""

BLOCK_INSTRUCTIONS = 100
"""Of a warp that begins and ends, an estimate: a function with 16384 blocks that count two numbers each took 112 us on
an H200, 67 where it counts by atomics."""

PLACE_INSTRUCTIONS = 90
"""Of a warp that stores 32 places of the result with what it reads there: a cache of 33.5 million places took 204 us on
an H200, the bytes alone 32."""

WALK_INSTRUCTIONS, ELEMENT_INSTRUCTIONS = 8, 35
"""Of every warp of a block for an element that is its own, and of a warp that brings and combines 32 columns of it."""


@dataclass(frozen=True)
class WalkPlan(GraphPlan):
    """A matched scatter, ready to be rendered in any of its configurations.

    `index` and `element` are functions of a place in the frame; `epilogue` is that of what is combined, at a place of
    the result.
    """

    problem: ScatterProblem
    arguments: tuple[str, ...]
    index: Epilogue
    element: Epilogue
    epilogue: Epilogue
    pattern: str = "scatters"

    @property
    def warp_instructions(self) -> int:
        """Of each block's walk over all indices, and of its walk over the elements that are its own."""
        problem, (threads, _, tile, _) = self.problem, SHAPES[0]
        columns, lines = (math.prod(problem.frame[dim] for dim in dims) for dims in (problem.columns, problem.lines))
        count, length = problem.shape[problem.dim], problem.frame[problem.dim]
        width = min(threads, power_of_two(columns))
        parts, groups = -(-columns // width), threads // width
        rows = min(tile * (2 if problem.is_orderless else 1) // width, max(groups, power_of_two(count)))
        while rows > groups and parts * lines * -(-count // rows) < FEW_BLOCKS:
            rows //= 2
        blocks = parts * lines * -(-count // rows)
        scans = blocks * math.ceil(length / 32)
        if problem.is_orderless:
            whole = scans * UNORDERED_INSTRUCTIONS
        else:
            element = WALK_INSTRUCTIONS * threads // 32 + ELEMENT_INSTRUCTIONS * math.ceil(width / 32)
            whole = scans * INDEX_INSTRUCTIONS + parts * lines * length * element
        whole += blocks * threads // 32 * BLOCK_INSTRUCTIONS
        whole += math.ceil(math.prod(problem.shape) / 32) * PLACE_INSTRUCTIONS
        return whole * max(SM_COUNT, blocks) // max(1, blocks)  # few blocks leave multiprocessors idle

    def configurations(self, arch: str = "sm_90a") -> list[ScattersConfiguration]:
        """Sizes of a block and of what it keeps, the best guess first; every one is right for every size and layout."""
        return [ScattersConfiguration(*shape) for shape in SHAPES]

    def why(self, configuration: ScattersConfiguration) -> str:
        """Why blocks walk over all indices."""
        c, problem = configuration, self.problem
        told = f"A block has up to {c.tile} places of {math.prod(problem.shape)} in shared memory"
        walks = f"walks over {problem.frame[problem.dim]} indices, {c.loads} of a thread at a time"
        order = "in whatever order" if problem.is_orderless else "in their order, the same in every run"
        return f"{told} and {walks}, {order}: {self.warp_instructions / 1e6:.3g} million instructions of warps."

    def tiled_shape(self) -> TiledShape:
        """The places along the dimension of the index; every edge is guarded."""
        sizes = [ITEM_BYTES[node.dtype] for node in self.graph.outputs]
        return TiledShape(sizes=(self.problem.shape[self.problem.dim],), element_bytes=min(sizes))

    def tiling(self, configuration: ScattersConfiguration) -> Tiling:
        """A block's part of the result."""
        c = configuration
        return Tiling(threads=c.threads, tile=(c.tile,), settings=c.to_dict())

    def render(self, configuration: ScattersConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        return render_template("scatters_walk.py.j2", _context(self, configuration))


def _context(plan: WalkPlan, configuration: ScattersConfiguration) -> dict[str, object]:
    problem, index, element, epilogue = plan.problem, plan.index, plan.element, plan.epilogue
    sized = sorted({*problem.lines[1:], *problem.columns[1:]})  # whose coordinates are found by a remainder
    passed = Passed(problem, plan.arguments, (index, element), (epilogue,), epilogue.outputs)
    return {
        **passed.context({*RESERVED}),
        "c": configuration,
        "index": index,
        "element": element,
        "epilogue": epilogue,
        "few_blocks": FEW_BLOCKS,
        "sums": [_written(each) for each in problem.combined],
        "values": ", ".join(f"value_{at}" for at in range(len(problem.combined))),
        "index_value": _call(index, "index_of", "s"),
        "element_value": _call(element, "element", "s"),
        "epilogue_value": _epilogue_call(epilogue),
        "line_places": list(coordinates(problem.lines, "line")),
        "column_places": list(coordinates(problem.columns, "column")),
        "shares": [*SHARES, *(f"size_of_{dim}" for dim in sized)],
        "sized": sized,
    }


def _written(each: Combined) -> dict[str, str]:
    """Codes of one scatter for the template."""
    kind = each.state
    last = each.operation == "last"
    return {
        "name": each.name,
        "state": kind,
        "neutral": literal(0, kind) if last else neutral(each.operation, each.dtype),
        "combined": "b" if last else combined(each.operation, kind),
        "atomic": {"sum": "atomic_add", "max": "atomic_max", "min": "atomic_min"}.get(each.operation, ""),
    }


def _call(function: Epilogue, name: str, prefix: str) -> str:
    """The call of a function at a place, with what is loaded there; of one operand alone, that."""
    operands = [operand.loaded(f"{prefix}_{operand.name}[place]") for operand in function.operands]
    return function.call("", operands, list(function.coordinates), name)


def _epilogue_call(epilogue: Epilogue) -> str:
    given = [f"{parameter.name}[r * width + column_at]" for parameter in epilogue.given]
    operands = [operand.loaded(f"m_{operand.name}[place]") for operand in epilogue.operands]
    return epilogue.call(", ".join(given), operands, list(epilogue.coordinates))


def planned(problem: ScatterProblem) -> WalkPlan:
    """The plan of this form, or UnmatchedError naming the first operation in the way."""
    graph = problem.graph
    names = safe_names([argument.name for argument in graph.arguments], RESERVED)
    writer = function_writer(problem, names, RESERVED)
    index, element = writer.function([problem.index], {}), writer.function(problem.elements, {})
    given = {id(node): Given.of(node, e.name) for node, e in zip(problem.scatters, problem.combined, strict=True)}
    writer.move(problem.coordinates)
    return WalkPlan(graph, problem, tuple(names), index, element, writer.epilogue(graph.outputs, given))
