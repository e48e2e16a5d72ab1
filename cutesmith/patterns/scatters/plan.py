"""The scatter pattern: what is combined of the elements that have one index, in one launch, in the elements' order.

A block has some places of the result, and walks all indices. It lists those that are its own in their order, brings the
elements of the listed ones to shared memory together, and then each thread combines those of its places one after the
other: the result is the same in every run. Integers of one element an index need no order, and are combined by atomics
in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.patterns.configurations import ScattersConfiguration
from cutesmith.patterns.contraction.epilogue import Epilogue, Operand
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.nodes import Graph, nodes_of
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.size_laws import size_code
from cutesmith.patterns.graph.takes import with_takes
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.scans.operations import combined, neutral
from cutesmith.patterns.scatters.analysis import Combined, ScatterProblem, analyse
from cutesmith.patterns.writing.expressions import literal
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames
from cutesmith.patterns.writing.templating import first_checks, render_template, returned, size_checks
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

FEW_BLOCKS = 264
"""Fewer leave multiprocessors idle: blocks then have fewer places."""

INDEX_INSTRUCTIONS, UNORDERED_INSTRUCTIONS = 60, 21
"""Of a warp for 32 indices, its own in their order or combined by atomics; like the two below counted on the emulated
GPU, for 4096 rows of 32 numbers that are added to 256, and for a histogram of 16384 numbers."""

WALK_INSTRUCTIONS, ELEMENT_INSTRUCTIONS = 8, 35
"""Of every warp of a block for an element that is its own, and of a warp that brings and combines 32 columns of it."""


@dataclass(frozen=True)
class ScattersPlan(GraphPlan):
    """A matched scatter, ready to be rendered in any of its configurations."""

    problem: ScatterProblem
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
        scans = parts * lines * -(-count // rows) * math.ceil(length / 32)
        if problem.is_orderless:
            return scans * UNORDERED_INSTRUCTIONS
        element = WALK_INSTRUCTIONS * threads // 32 + ELEMENT_INSTRUCTIONS * math.ceil(width / 32)
        return scans * INDEX_INSTRUCTIONS + parts * lines * length * element

    def configurations(self, arch: str = "sm_90a") -> list[ScattersConfiguration]:
        """Sizes of a block and of what it keeps, the best guess first; every one is right for every size and layout."""
        return [ScattersConfiguration(*shape) for shape in SHAPES]

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
        return render_template("scatters.py.j2", _context(self.problem, configuration))


def _context(problem: ScatterProblem, configuration: ScattersConfiguration) -> dict[str, object]:
    index, element, epilogue = problem.index, problem.element, problem.epilogue
    read: list[Operand] = list(dict.fromkeys((*index.operands, *element.operands)))
    functions = (index, element, epilogue)
    whole = list(dict.fromkeys(tensor for function in functions for tensor in function.taken))
    operands = [*whole, *read, *epilogue.operands]
    made = [output.name for output in epilogue.outputs]
    views = ViewNames({*problem.arguments, *RESERVED, *(o.name for o in operands), *made})
    inputs = {o.name: views.name(o.passed) for o in operands}
    passed = [*(inputs[o.name] for o in operands), *made]
    rank = len(problem.frame)
    return {
        "c": configuration,
        "p": problem,
        "few_blocks": FEW_BLOCKS,
        "title": "scatter: " + ", ".join(dict.fromkeys(each.operation for each in problem.combined)),
        "sums": [_written(each) for each in problem.combined],
        "values": ", ".join(f"value_{at}" for at in range(len(problem.combined))),
        "helpers": list(dict.fromkeys(helper for function in functions for helper in function.helpers)),
        "whole": whole,
        "read": read,
        "late": list(epilogue.operands),
        "outputs": list(epilogue.outputs),
        "numbers": list(dict.fromkeys(number for function in functions for number in function.numbers)),
        "index_value": _call(index, "index_of", "s"),
        "element_value": _call(element, "element", "s"),
        "epilogue_value": _epilogue_call(problem),
        "place": ", ".join(f"at_{dim}" for dim in range(rank)),
        "line_places": list(_places(problem.lines, "line")),
        "column_places": list(_places(problem.columns, "column")),
        "views": [*views.lines, *dict.fromkeys(law for function in functions for law in function.laws)],
        "frame": _frame(problem, read, inputs),
        "count": _count_code(problem, inputs),
        "device": passed[0],
        "checks": size_checks(problem.arguments, problem.graph, problem.graph.checked),
        "first_checks": first_checks(problem.arguments, problem.graph),
        "passed": passed,
        "dtypes": [f"{name}.dtype" for name in dict.fromkeys(inputs.values())],
        "shares": [*SHARES, *(f"size_of_{dim}" for dim in range(rank))],
        "returns": returned(
            [_returned(o.name, o.dtype) for o in epilogue.outputs], as_tuple=problem.graph.returns_tuple
        ),
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


def _epilogue_call(problem: ScatterProblem) -> str:
    epilogue = problem.epilogue
    given = [f"{parameter.name}[r * width + column_at]" for parameter in epilogue.given]
    operands = [operand.loaded(f"m_{operand.name}[place]") for operand in epilogue.operands]
    return epilogue.call(", ".join(given), operands, list(epilogue.coordinates))


def _places(dims: tuple[int, ...], name: str) -> Iterator[str]:
    """Statements for the coordinates of a line or a column, of which the last dimension runs fastest."""
    for at, dim in enumerate(dims):
        inner = "".join(f" // size_of_{other}" for other in dims[at + 1 :])
        yield f"at_{dim} = {name}{inner} % size_of_{dim}"


def _frame(problem: ScatterProblem, read: list[Operand], inputs: dict[str, str]) -> str:
    """Code of the shape of what is combined; a size that nothing but a tensor read anywhere has follows from laws."""
    names = list(dict.fromkeys(inputs[operand.name] for operand in read))
    if read and broadcast([operand.shape[-operand.rank :] for operand in read]) == problem.frame:
        return f"tuple(torch.broadcast_shapes({', '.join(f'{name}.shape' for name in names)}))"
    given = nodes_of(tuple(each for node in problem.scatters for each in node.inputs))
    sizes = next((each.sizes for each in given if each.shape == problem.frame and each.sizes), problem.frame)
    return f"({', '.join(size_code(size, list(problem.arguments)) for size in sizes)},)"


def _count_code(problem: ScatterProblem, inputs: dict[str, str]) -> str:
    """Code of the number of places along the dimension of the index."""
    dim, rank = problem.dim, len(problem.shape)
    for operand in problem.epilogue.operands:
        if operand.shape[dim] == problem.shape[dim] != 1 and operand.rank >= rank - dim:
            return f"{inputs[operand.name]}.shape[{dim - rank}]"
    sizes = problem.scatters[0].sizes
    return size_code(sizes[dim] if sizes else problem.shape[dim], list(problem.arguments))


def _returned(name: str, dtype: str) -> str:
    return f"{name}.view(torch.bool)" if dtype == "bool" else name


def match(graph: Graph) -> ScattersPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not pointwise work around a scatter."""
    graph = with_takes(graph)
    return ScattersPlan(graph, analyse(graph, RESERVED))
