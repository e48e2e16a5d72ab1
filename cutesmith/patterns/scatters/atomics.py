"""The scatter pattern by atomics in device memory: threads bring elements side by side and add each to its place.

The first launch writes what each place begins with, the second combines, and a third computes the results where they
are more than what was combined. Neighbouring threads have neighbouring columns of one index; on Hopper a thread adds
four float32 numbers by one instruction. What it has of one place, as of sorted indices, is combined before. Narrow
floats are summed in float32. Extremes of floats are those of integers that rise with them, NaN beyond all. Sums of
floats may differ in their last bits from run to run, as PyTorch's do on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, Operand
from cutesmith.patterns.contraction.proposals import SM_COUNT
from cutesmith.patterns.graph.attributes import Constant, Iota
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, ITEM_BYTES, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import Node, nodes_of
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.scans.operations import combined, neutral
from cutesmith.patterns.scatters.analysis import ScatterProblem, function_writer
from cutesmith.patterns.scatters.configurations import AtomicsConfiguration
from cutesmith.patterns.scatters.host_code import Passed, coordinates
from cutesmith.patterns.scatters.sums import JOINED, Sum, sums_of
from cutesmith.patterns.writing.expressions import convert, literal
from cutesmith.patterns.writing.naming import SHARED_NAMES, safe_names
from cutesmith.patterns.writing.templating import render_template
from cutesmith.runtime.tiling import TiledShape, Tiling, power_of_two

_OWN = (
    "THREADS LOADS VECTOR TABLE SmemAllocator smem turn value blocks fits combine has LAUNCHERS DIM begin_kernel "
    "combine_kernel finish_kernel launch_scatter compile_scatter begin element index_of finish place place_of "
    "vector_at ordered unordered tile row column inside own wanted rows last shift parts tiles vector combines j "
    "frame sizes shares described described_as tensor tensors columns width groups step steps aligned t e"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""

REDUCED_AS = {"Float32": "f32", "Float64": "f64", "Int32": "s32"}
"""PTX types of the atomics, but for Int64: its sums are of u64, its extremes of s64."""

NAN = {"max": "MOST", "min": "-1 - MOST"}
"""The integer that NaN is, in the order of floats."""

VECTOR_SM = 90
"""The first compute capability with atomics of four float32 numbers."""

SHAPES = ((256, 4), (256, 2), (128, 4), (256, 1), (512, 2), (256, 8))
"""(threads, tiles that a thread loads before the first is added)."""

FEW_BLOCKS = 64
"""With fewer, a thread loads less: 32768 sums into 131072 places took 10.0, 8.0 and 8.6 us on an H200 by 32, 64 and 128
blocks of 256 threads."""

SECTOR_INSTRUCTIONS = 6
"""Instructions of warps that an H200 starts while its L2 adds to a sector of 32 bytes: 64 million float32 numbers that
rows of a graph send each other take 108 us."""

BYTE_INSTRUCTIONS = 0.11
"""The same while its memory moves a byte."""

L2_BYTES = 32 << 20
"""Of buffers that one launch leaves in L2 for the next: two thirds of an H200's."""

PLACE_INSTRUCTIONS = 460
"""The same while it adds to one sector again and again, 1 ns each time. Not measured."""

UNIT_INSTRUCTIONS = 75
"""Of a warp whose threads look up an index each and load what it counts, with a gathered row; counted in SASS."""

PRIVATE_INSTRUCTIONS = 16
"""Those of a warp that takes as long as an atomic of 32 places in shared memory, two of which meet. Not measured."""

SHARED_PLACES = 8192
"""Of 32 bits that a block keeps in shared memory."""

PRIVATE_BLOCKS = 2 * SM_COUNT
"""Of tables in shared memory: each costs an atomic for each place in the end."""

LAUNCH_INSTRUCTIONS = 926_000
"""Those of 2 us, which a launch takes."""


@dataclass(frozen=True)
class Row:
    """A row of a tensor that neighbouring columns read: `given` to the element, from where `places` is."""

    name: str
    dtype: str
    tensor: Operand
    places: Epilogue


@dataclass(frozen=True)
class AtomicsPlan(GraphPlan):
    """A matched scatter, ready to be rendered in any of its configurations."""

    problem: ScatterProblem
    arguments: tuple[str, ...]
    sums: tuple[Sum, ...]
    index: Epilogue
    rows: tuple[Row, ...]
    element: Epilogue
    begin: Epilogue
    finish: Epilogue
    private: bool = False
    """Whether each block combines in shared memory, and adds what that comes to."""
    pattern: str = "scatters"

    def in_shared_memory(self) -> AtomicsPlan | None:
        """The plan whose blocks have all places in shared memory, where those are few and of 32-bit integers."""
        added = all(each.operation in JOINED and each.memory == "Int32" for each in self.sums)
        fits = all(math.prod(each.scatter.shape) <= self.table for each in self.sums)
        return replace(self, private=True) if added and fits else None

    @property
    def table(self) -> int:
        """Places of each sum in shared memory."""
        return power_of_two(SHARED_PLACES // len(self.sums) + 1) // 2

    @property
    def is_direct(self) -> bool:
        """Whether the buffers are the results."""
        kinds = {each.name: each.memory for each in self.sums if not (each.is_ordered or each.ones)}
        results = zip(self.finish.results, self.finish.outputs, strict=True)
        same = all(kinds.get(result) == output.storage for result, output in results)
        return same and sorted(self.finish.results) == sorted(each.name for each in self.sums)

    @property
    def is_filled(self) -> bool:
        """Whether places begin with a number, in vectors as wide as those that are added."""
        whole_lines = len(self.problem.frame) - 1 in self.problem.columns
        return self.is_direct and whole_lines and not any(each.is_begun for each in self.sums)

    @property
    def warp_instructions(self) -> int:
        """Of the three launches, or as many as a GPU starts while its L2 adds."""
        problem, last = self.problem, len(self.problem.frame) - 1
        vector, launches = self.vector("sm_90a"), 1 if self.is_direct else 2
        units = math.ceil(math.prod(problem.frame) / vector / 32)
        if self.private:
            return launches * LAUNCH_INSTRUCTIONS + units * (UNIT_INSTRUCTIONS + PRIVATE_INSTRUCTIONS * len(self.sums))
        side_by_side = last in problem.columns
        sectors, hottest = 0, 0.0
        for each in self.sums:
            added = math.prod(1 if dim in each.ones else size for dim, size in enumerate(problem.frame))
            wide = max(1, 32 // (8 if "64" in each.memory else 4)) if side_by_side and last not in each.ones else 1
            places = math.ceil(math.prod(each.scatter.shape) * (8 if "64" in each.memory else 4) / 32)
            sectors += math.ceil(added / wide)
            hottest = max(hottest, added / wide / max(1, places))
        around, between = self._bytes
        busiest = max(units * UNIT_INSTRUCTIONS, sectors * SECTOR_INSTRUCTIONS, int(hottest * PLACE_INSTRUCTIONS))
        busiest = max(busiest, int(between * BYTE_INSTRUCTIONS))
        return launches * LAUNCH_INSTRUCTIONS + busiest + int(around * BYTE_INSTRUCTIONS)

    @property
    def _bytes(self) -> tuple[int, int]:
        """What the first launch and the last move, and what the one between them does.

        A buffer that L2 does not hold goes to memory in each of them; what is added reads and writes its part.
        """
        sizes = [(each, 8 if "64" in each.memory else 4) for each in self.sums]
        begun = sum(math.prod(each.scatter.shape) * size for each, size in sizes)
        added = sum(math.prod(self.problem.frame) * size for _, size in sizes)
        read = [each.base for each in self.sums if each.base is not None]
        bases = sum(math.prod(base.shape) * ITEM_BYTES[base.dtype] for base in read)
        results = sum(math.prod(node.shape) * ITEM_BYTES[node.dtype] for node in self.graph.outputs)
        again = begun if begun > L2_BYTES else 0
        around = begun + bases + (0 if self.is_direct else results + again)
        return around, self.graph.moved_bytes - results - bases + 2 * min(again, added)

    def vector(self, arch: str) -> int:
        """Columns of a thread, which are of one index, so that it adds them at once."""
        last = len(self.problem.frame) - 1
        wide = [each for each in self.sums if each.memory == "Float32" and last not in each.ones]
        return 4 if wide and last in self.problem.columns and parse_arch(arch).sm.number >= VECTOR_SM else 1

    def configurations(self, arch: str = "sm_90a") -> list[AtomicsConfiguration]:
        """Sizes of a block, and columns of a thread, the best guess first; every one is right for every size."""
        vector = self.vector(arch)
        found = [AtomicsConfiguration(*shape, vector) for shape in SHAPES]
        few = math.prod(self.problem.frame) / FEW_BLOCKS
        found.sort(key=lambda c: c.loads > 1 and c.threads * c.loads * c.vector > few)
        return found if vector == 1 else [found[0], replace(found[0], vector=1), *found[1:]]

    def why(self, configuration: AtomicsConfiguration) -> str:
        """Why threads add by atomics, and how many columns at once."""
        c, count = configuration, math.prod(self.problem.frame)
        places = ", ".join(str(math.prod(each.scatter.shape)) for each in self.sums)
        first = "in the shared memory of each block first, then " if self.private else ""
        told = f"{count} elements go to {places} places {first}by atomics, which is predicted to take less time"
        wide = f"{c.vector} columns by one atomic" if c.vector > 1 else "one element an atomic"
        loads = f"{c.loads} loads before the first is added" if c.loads > 1 else "one load at a time"
        return f"{told} than blocks that walk over all indices: {wide}, {loads}, {c.threads} threads a block."

    def tiled_shape(self) -> TiledShape:
        """What is combined; every edge is guarded."""
        sizes = [ITEM_BYTES[node.dtype] for node in self.graph.outputs]
        return TiledShape(sizes=(math.prod(self.problem.frame),), element_bytes=min(sizes))

    def tiling(self, configuration: AtomicsConfiguration) -> Tiling:
        """A block's elements."""
        c = configuration
        tile = (c.threads * c.loads * c.vector,)
        return Tiling(threads=c.threads, tile=tile, vector=c.vector, settings=c.to_dict())

    def render(self, configuration: AtomicsConfiguration) -> str:
        """The kernel section: imports, device functions, kernels, launch, cached compile and `kernel_fn`."""
        return render_template("scatters_atomics.py.j2", _context(self, configuration))


def _context(plan: AtomicsPlan, configuration: AtomicsConfiguration) -> dict[str, object]:
    problem, rows = plan.problem, plan.rows
    combines = (plan.index, *(row.places for row in rows), plan.element)
    late = (plan.begin,) if plan.is_direct else (plan.begin, plan.finish)
    tensors = tuple(row.tensor for row in rows)
    outputs = plan.finish.outputs
    passed = Passed(problem, plan.arguments, combines, late, outputs, tensors)
    rank, buffers = len(problem.frame), [] if plan.is_direct else [each.memory.lower() for each in plan.sums]
    return {
        **passed.context({*_reserved(problem)}, buffers),
        "c": configuration,
        "sums": [_written(each, rank) for each in plan.sums],
        "is_direct": plan.is_direct,
        "is_filled": plan.is_filled,
        "private": plan.private,
        "merges": rank > 1 and not problem.is_alone,
        "table": plan.table,
        "blocks": PRIVATE_BLOCKS,
        "results": _buffers_of(plan),
        "functions": {"index_of": plan.index, "element": plan.element, "begin": plan.begin, "finish": plan.finish},
        "rows": [_row(row) for row in rows],
        "begin_kernel": _parameters(plan.begin),
        "combine_kernel": _parameters(*combines, tensors=tensors),
        "finish_kernel": _parameters(plan.finish),
        "index_value": _call(plan.index, "index_of"),
        "begun": ", ".join(f"first_{each.name}" for each in plan.sums if each.is_begun),
        "values": ", ".join(f"v_{each.name}" for each in plan.sums),
        "wide": [operand for operand in plan.element.operands if operand.varies[-1]],
        "element_value": _element_call(plan),
        "begin_value": _call(plan.begin, "begin"),
        "finish_value": _finish_call(plan),
        "outer_places": list(coordinates(range(rank - 1), "row")),
        "last": rank - 1,
        "sizes": [f"size_of_{dim}" for dim in range(1, rank - 1)],
    }


def _parameters(*functions: Epilogue, tensors: Sequence[Operand] = ()) -> dict[str, list[object]]:
    """What a kernel that calls these takes, each once."""
    return {
        "whole": list(dict.fromkeys((*tensors, *(each for function in functions for each in function.taken)))),
        "aligned": list(dict.fromkeys(each for function in functions for each in function.operands)),
        "numbers": list(dict.fromkeys(each for function in functions for each in function.numbers)),
    }


def _written(each: Sum, rank: int) -> dict[str, object]:
    """Codes of one buffer for the template."""
    kind, first = each.state, "" if each.is_begun else _first(each)

    def code(value: str) -> str:
        return f"ordered({value}, {NAN[each.operation]})" if each.is_ordered else value

    extreme = ("u64" if each.operation == "sum" else "s64") if each.memory == "Int64" else REDUCED_AS.get(each.memory)
    return {
        "name": each.name,
        "state": kind,
        "memory": each.memory,
        "ordered": each.is_ordered,
        "combined": "" if each.operation == "last" else combined(each.operation, each.memory),
        "begins": first,
        "neutral": code("" if each.operation == "last" else neutral(each.operation, each.scatter.dtype)),
        "code": code,
        "operation": {"sum": "add", "last": ""}.get(each.operation, each.operation),
        "reduced_as": extreme,
        "ones": each.ones,
        "is_single": " and ".join(f"at_{dim} == 0" for dim in each.ones if dim != rank - 1),
        "at_first": rank - 1 in each.ones,
    }


def _first(each: Sum) -> str:
    """The number that each place begins with, as a literal."""
    if each.base is not None:
        return literal(Constant.of(each.base).value, each.state)
    return literal(0, each.state) if each.operation == "last" else neutral(each.operation, each.scatter.dtype)


def _buffers_of(plan: AtomicsPlan) -> dict[str, str]:
    """The name of the buffer of each sum: an output's where that is all."""
    if not plan.is_direct:
        return {each.name: each.name for each in plan.sums}
    pairs = zip(plan.finish.results, plan.finish.outputs, strict=True)
    return {result: output.name for result, output in pairs}


def _row(row: Row) -> dict[str, object]:
    """Codes of what is read side by side: where, and an element of it."""
    zero, found = literal(0, COMPUTE_TYPE[row.dtype]), [f"place_{at}" for at in range(len(row.places.results))]
    sizes = [f"t_{row.tensor.name}.shape[{at}]" for at in range(len(found))]
    element = convert(f"r_{row.name}[e]", STORAGE_TYPE[row.dtype], COMPUTE_TYPE[row.dtype])
    return {
        "name": row.name,
        "tensor": row.tensor.name,
        "function": row.places,
        "places": _call(row.places, f"place_of_{row.name}"),
        "found": found,
        "has": " and ".join(f"{at} >= 0 and {at} < {size}" for at, size in zip(found, sizes, strict=True)),
        "element": f"{element} if has_{row.name}[j] == 1 else {zero}",
    }


def _call(function: Epilogue, name: str) -> str:
    """The call of a function at a place, with what is loaded there."""
    operands = [operand.loaded(f"m_{operand.name}[place]") for operand in function.operands]
    return function.call("", operands, list(function.coordinates), name)


def _element_call(plan: AtomicsPlan) -> str:
    element = plan.element
    operands = [
        operand.loaded(f"r_{operand.name}[e]" if operand.varies[-1] else f"r_{operand.name}")
        for operand in element.operands
    ]
    given = ", ".join(f"v_{row.name}" for row in plan.rows)
    return element.call(given, operands, list(element.coordinates), "element")


def _finish_call(plan: AtomicsPlan) -> str:
    finish = plan.finish
    given = [f"unordered(b_{each.name}[place])" if each.is_ordered else f"b_{each.name}[place]" for each in plan.sums]
    operands = [operand.loaded(f"m_{operand.name}[place]") for operand in finish.operands]
    return finish.call(", ".join(given), operands, list(finish.coordinates), "finish")


def _reserved(problem: ScatterProblem) -> set[str]:
    return {*RESERVED, *(each.name for each in problem.combined)}


def planned(problem: ScatterProblem) -> AtomicsPlan | None:
    """The plan of this form, or None where elements are multiplied, or the last of several stays.

    Raises UnmatchedError naming the first operation in the way.
    """
    sums = sums_of(problem)
    if any(each.operation not in JOINED and not (each.operation == "last" and problem.is_alone) for each in sums):
        return None
    graph = problem.graph
    names = safe_names([argument.name for argument in graph.arguments], _reserved(problem))
    writer = function_writer(problem, names, _reserved(problem))
    index = writer.function([problem.index], {})
    rows = tuple(_rows(problem, sums, writer))
    given = {id(take): Given.of(take, row.name) for take, row in rows}
    element = writer.function([each.scatter.inputs[1] for each in sums], given)
    writer.move(problem.coordinates)
    begin = writer.function([each.base for each in sums if each.base is not None and each.is_begun], {})
    finish = writer.epilogue(graph.outputs, {id(each.node): Given.of(each.node, each.name) for each in sums})
    plain = tuple(row for _, row in rows)
    return AtomicsPlan(graph, problem, tuple(names), sums, index, plain, element, begin, finish)


def _rows(problem: ScatterProblem, sums: Sequence[Sum], writer: FunctionWriter) -> Iterator[tuple[Node, Row]]:
    """What the elements read along whole rows of a tensor, at places that all columns share."""
    last = len(problem.frame) - 1
    takes = [node for node in nodes_of(tuple(each.scatter.inputs[1] for each in sums)) if node.op == "take"]
    if last not in problem.columns:
        return
    tensors: dict[int, Operand] = {}
    for number, take in enumerate(takes):
        source, *places, along = take.inputs
        whole = along.op == "iota" and along.shape[Iota.of(along).dim] == source.shape[-1] == problem.frame[-1]
        if whole and places and all(not place.shape or place.shape[-1] == 1 for place in places):
            if id(source) not in tensors:
                tensors[id(source)] = writer.read(source)
            yield take, Row(f"row_{number}", take.dtype, tensors[id(source)], writer.function(places, {}))
