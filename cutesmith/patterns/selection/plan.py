"""The selection pattern: each line sorted along one dimension, or its first elements in that order, and their places.

A block has a line. Where the whole line is wanted, it is sorted in shared memory, or in a scratch of global memory
where it is too long: by a bitonic network, or by eight bits of the keys a turn from the lowest (radix), where equal
digits keep their order. Where few elements of a long line are wanted, the block reads the line once and keeps those
that come before the last of the best so far; when the buffer is full the network sorts it. Elements are ordered by
their value, then their place, so that no two are equal and the result does not depend on who comes first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutesmith.devices import parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Input, Sort
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, STORAGE_TYPE, is_float, stored_dtype, stored_types
from cutesmith.patterns.graph.nodes import Graph, Node
from cutesmith.patterns.graph.size_laws import size_code
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.selection.configuration import SelectionConfiguration
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames, as_stored, safe_names
from cutesmith.patterns.writing.templating import first_checks, launcher_key, render_template, returned, size_checks
from cutesmith.runtime.tiling import TiledShape, Tiling

_OWN = (
    "SmemAllocator THREADS LOADS DIM SHARED_BYTES LAST_KEY LAUNCHERS key_of exchange sort_buffer select_kernel "
    "Key DIGITS WARPS digit_of lanes_with rank keep kept starts_of_digits start_warps clear move_in_place move_on "
    "count_of count_of_line move_to_peers place_at scratch_size CLUSTER numbers store_to_peer cluster_barrier "
    "store_result launch_selection compile_selection is_shared place_type x_lines values_lines places_lines keys "
    "places counter count sizes values scratch line length row_layout"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""

SHAPES = ((512, 4), (256, 4), (128, 4), (64, 4), (32, 4), (1024, 4), (512, 8), (1024, 8))
"""(threads, loads): predicted times order them, no GPU has yet."""

RADIX_SHAPES = ((1024, 32, 1), (512, 63, 1), (256, 63, 1), (512, 63, 2), (512, 63, 4), (512, 63, 8))
"""(threads, loads, blocks of a cluster) that sort by digits: registers hold a key, a place and a rank of each element,
and 64 loads are too many to unroll."""

PASS_INSTRUCTIONS, GROUP_INSTRUCTIONS = 6, (28, 85, 220)
"""Of a warp in a pass over the buffer, and beside those for 32 groups of 2, 4 and 8 elements, which take one, two and
three steps of the network at once. Eight were counted in machine code for sm_90a; the others are estimates by it."""

TURN_INSTRUCTIONS, ELEMENT_INSTRUCTIONS, DIGITS_INSTRUCTIONS, WARP_INSTRUCTIONS = 40, 30, 700, 56
"""Of a warp for 32 elements that are sorted by eight bits, and what loads and stores them; of a block for the sums of
256 digits, and for each warp that counts them. 8192 lines of 4096 floats take 512 us on an H200."""
SCATTERED_INSTRUCTIONS = 147
"""Beside those of a turn where it goes through global memory (64 lines of 128256 take 1.7 ms on an H200)."""
ALONE = 8
"""Of a block's instructions one in so many is waited for where a multiprocessor has no other block: all warps rank, or
all move elements (64 lines of 32000 floats take 118 us on an H200, of bfloat16 59 to 62)."""

PEER_INSTRUCTIONS, CLUSTER_INSTRUCTIONS = 23, 1500
"""Beside those of a turn whose elements go to other blocks of a cluster, and of its barriers: 64 lines of 128256 floats
take 440 us on an H200 by eight blocks each, of which a multiprocessor holds one."""

CLUSTERED = {1: 132, 2: 132, 4: 120, 8: 112}
"""Multiprocessors of an H200 that are at work where so many blocks share a line; 4 are measured, 8 are a guess."""

MEMORY_PASSES = 2
"""Times that a block waits longer for passes of the network over global memory (an estimate)."""

COUNTER_BYTES = 1024
"""Of a block's shared memory beside its buffer, and what its alignment takes."""

LOOK_INSTRUCTIONS = 30
"""Of a warp for 32 elements that are compared with the last of the best so far."""

REGISTERS, MOST_REGISTERS, PEER_REGISTERS = 40, 128, 2
"""Of a thread beside a key and a rank of each of its elements; a block of 512 threads leaves it no more than 128. Of
each element more where it goes to another block, as its address there has 64 bits."""

PLACE_BYTES = 2
"""Of a place in shared memory where lines are sorted by digits; what is more is in the key."""

CLOCK = 1.755e9
"""Cycles of an H200 a second."""

SM = parse_arch("sm_90a").sm
ISSUED_AT_ONCE, LATENCY = 2, 8
"""Instructions that a multiprocessor issues in a cycle, integers at half the rate; cycles of a warp for one."""


@dataclass(frozen=True)
class SelectionPlan(GraphPlan):
    """A matched sort, ready to be rendered in any of its configurations."""

    arguments: tuple[str, ...]
    pattern: str = "selection"

    @property
    def sorts(self) -> tuple[Node, ...]:
        """The outputs: sorted elements, their places, or both in any order."""
        return self.graph.outputs

    @property
    def source(self) -> Node:
        """What is sorted, an argument seen through views."""
        return self.sorts[0].inputs[0]

    @property
    def warp_instructions(self) -> int:
        """What all multiprocessors could issue in the predicted time of the first configuration."""
        return int(self._cycles(self.configurations()[0]) * ISSUED_AT_ONCE * SM.multiprocessors) if self._lines else 0

    @property
    def _length(self) -> int:
        return self.source.shape[Sort.of(self.sorts[0]).dim]

    @property
    def _lines(self) -> int:
        return math.prod(self.source.shape) // max(1, self._length)

    def _work(self, shape: SelectionConfiguration) -> tuple[int, int]:
        """Instructions of all warps of a block, and of one of them, one after the other.

        A pass has those of all warps for the loop, and those of warps that have groups to exchange. A line that is
        longer than the buffer sorts that twice or more, of random elements twice.
        """
        count, warps = self.sorts[0].shape[Sort.of(self.sorts[0]).dim], shape.threads // 32
        if self._length == 0:
            return 0, 0
        if shape.radix:
            return self._radix_work(shape)
        whole, some = (1 << (n - 1).bit_length() for n in (self._length, 2 * max(count, shape.threads * shape.loads)))
        size = min(whole, some)
        looks = math.ceil(max(0, self._length - size) / 32)
        most = max(1, min(len(GROUP_INSTRUCTIONS), (size // shape.threads).bit_length() - 1))
        work = alone = 0
        for run in range(1, size.bit_length()):
            for steps in [most] * (run // most) + [run % most] * (run % most > 0):
                groups, each = max(1, size >> steps), GROUP_INSTRUCTIONS[steps - 1]
                work += PASS_INSTRUCTIONS * warps + each * math.ceil(groups / 32)
                alone += PASS_INSTRUCTIONS + each * math.ceil(groups / shape.threads)
        if 33 * size // 32 * (ITEM_BYTES[self.source.dtype] + 2) > shape.shared_bytes:
            alone *= MEMORY_PASSES
        sorts = 2 if looks else 1
        return (
            sorts * work + LOOK_INSTRUCTIONS * looks,
            sorts * alone + LOOK_INSTRUCTIONS * math.ceil(looks / warps),
        )

    def _radix_work(self, shape: SelectionConfiguration) -> tuple[int, int]:
        """Instructions of all warps of a block that sorts by digits, and of one of them."""
        key_bytes, warps = ITEM_BYTES[self.source.dtype], shape.threads // 32
        fits, blocks = self._radix_room(shape), shape.cluster if self._radix_room(shape) else 1
        turn = TURN_INSTRUCTIONS + PEER_INSTRUCTIONS * (blocks > 1) + (0 if fits else SCATTERED_INSTRUCTIONS)
        work = math.ceil(self._length / (32 * blocks)) * (key_bytes * turn + ELEMENT_INSTRUCTIONS)
        work += key_bytes * (DIGITS_INSTRUCTIONS + WARP_INSTRUCTIONS * warps + CLUSTER_INSTRUCTIONS * (blocks > 1))
        return work, work // min(ALONE, 1 + warps // 2)

    def _radix_room(self, shape: SelectionConfiguration) -> int:
        """How many blocks that sort by digits a multiprocessor holds; none where a line goes through global memory."""
        loads = min(shape.loads, math.ceil(self._length / (shape.threads * shape.cluster)))
        held = shape.threads * loads * (ITEM_BYTES[self.source.dtype] + PLACE_BYTES) + 32 * (shape.threads + 4)
        held += 1024 * (shape.cluster + 1) * (shape.cluster > 1) + COUNTER_BYTES
        each = 2 + PEER_REGISTERS * (shape.cluster > 1)
        registers = shape.threads * min(MOST_REGISTERS, REGISTERS + each * loads)
        room = min(SM.smem_per_sm // held, max(1, SM.registers_per_sm // registers))
        return room if self._length <= shape.threads * loads * shape.cluster else 0

    def _cycles(self, shape: SelectionConfiguration) -> float:
        """Predicted on an H200: many blocks wait for the issue of instructions, few for each instruction's result."""
        work, alone = self._work(shape)
        at_once = min(SM.blocks_per_sm, SM.threads_per_sm // shape.threads)
        blocks = self._lines
        if shape.radix and (room := self._radix_room(shape)):
            at_once, blocks = min(at_once, room), blocks * shape.cluster
        at_work = CLUSTERED[shape.cluster]
        issued = max(blocks / at_work, 1) * work / ISSUED_AT_ONCE
        return max(issued, math.ceil(blocks / (at_work * at_once)) * alone * LATENCY)

    def configurations(self, arch: str = "sm_90a") -> list[SelectionConfiguration]:
        """Sizes of a block, the best guess first; every one is right for every size and layout."""
        sm = parse_arch(arch).sm
        room = sm.smem_per_block - COUNTER_BYTES
        shapes = [SelectionConfiguration(threads, loads, room) for threads, loads in SHAPES]
        shapes += [
            SelectionConfiguration(threads, loads, room, radix=True, cluster=cluster)
            for threads, loads, cluster in RADIX_SHAPES
            if cluster <= sm.max_cluster
        ]
        return sorted(shapes, key=self._cycles)

    def tiled_shape(self) -> TiledShape:
        """The length of a line; every edge is guarded."""
        return TiledShape(sizes=(self.source.shape[Sort.of(self.sorts[0]).dim],))

    def tiling(self, configuration: SelectionConfiguration) -> Tiling:
        """A block's part of a line."""
        c = configuration
        return Tiling(threads=c.threads, tile=(c.threads * c.loads,), settings=c.to_dict())

    def why(self, configuration: SelectionConfiguration) -> str:
        """What sorts a line, by the predicted times of both forms, and where it lies meanwhile."""
        c, microseconds = configuration, self._cycles(configuration) / CLOCK * 1e6
        told = f"{self._lines} lines of {self._length}: {microseconds:.3g} µs are predicted of {c.threads} threads each"
        if c.radix:
            turns, room = ITEM_BYTES[self.source.dtype], self._radix_room(c)
            where = (
                "a scratch in memory holds them" if not room else f"registers hold them, up to {c.loads} of a thread"
            )
            where += f" in each of {c.cluster} blocks" if c.cluster > 1 else ""
            return f"{told} that sort by eight bits of the keys in {turns} turns, while {where}."
        others = [self._cycles(other) for other in self.configurations() if other.radix]
        count = self.sorts[0].shape[Sort.of(self.sorts[0]).dim]
        whole = "the whole line" if count == self._length else f"the first {count}"
        return f"{told} that sort {whole} by a network; by digits it would be {min(others) / CLOCK * 1e6:.3g}."

    def render(self, configuration: SelectionConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        return render_template("selection.py.j2", self._context(configuration))

    def _context(self, configuration: SelectionConfiguration) -> dict[str, object]:
        node, source = self.sorts[0], self.source
        sort, views = Sort.of(node), ViewNames({*self.arguments, *RESERVED})
        given = Input.of(source)
        passed = views.name(as_stored(given.code(self.arguments), source.dtype))
        kinds = ["places" if Sort.of(each).places else "values" for each in self.sorts]
        key = f"Int{8 * ITEM_BYTES[source.dtype]}"
        scratch = (key.lower(), "int32")  # keys and places
        wide = source.dtype in ("int64", "float64")
        codes = ["values.view(torch.bool)" if k == "values" and source.dtype == "bool" else k for k in kinds]
        return {
            "c": configuration,
            "sort": sort,
            "kinds": kinds,
            "arguments": self.arguments,
            "x": passed,
            "views": views.lines,
            "count": self._count_code(passed),
            "dim": sort.dim - len(source.shape),
            "storage": STORAGE_TYPE[source.dtype],
            "torch_dtype": stored_dtype(source.dtype),
            "types": stored_types([source.dtype, *(each.dtype for each in self.sorts), *scratch]),
            "is_float": is_float(source.dtype),
            "float_type": "Float64" if wide else "Float32",
            "key": "Int64" if wide else "Int32",
            "held_key": key,
            "checks": size_checks(self.arguments, self.graph, self.graph.checked),
            "first_checks": first_checks(self.arguments, self.graph),
            "launcher_key": launcher_key([passed]),
            "returns": returned(codes, as_tuple=self.graph.returns_tuple),
        }

    def _count_code(self, passed: str) -> str:
        """Code of the number of elements that are kept of each line."""
        node = self.sorts[0]
        dim = Sort.of(node).dim
        if node.shape[dim] == self.source.shape[dim] and not self._counts_apart(node, dim):
            return f"{passed}.shape[{dim}]"
        return size_code(node.sizes[dim] if node.sizes else node.shape[dim], self.arguments)

    @staticmethod
    def _counts_apart(node: Node, dim: int) -> bool:
        """Whether a number decides how many are kept, which is as long as a line only by chance."""
        return bool(node.sizes) and not isinstance(node.sizes[dim], int)


def match(graph: Graph) -> SelectionPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of one sort of an argument."""
    for node in graph.outputs:
        if node.op != "sort":
            raise UnmatchedError(f"{node.where} is not a sort", operation=node.where)
    first, *others = graph.outputs
    if first.inputs[0].op != "input":
        raise UnmatchedError(f"{first.where} sorts what is not in memory", operation=first.where)
    kinds = {Sort.of(node).places for node in graph.outputs}
    for other in others:
        a, b = Sort.of(first), Sort.of(other)
        if other.inputs != first.inputs or (a.dim, a.descending, first.shape) != (b.dim, b.descending, other.shape):
            raise UnmatchedError(f"{other.where} is another sort than {first.where}", operation=other.where)
    if len(kinds) < len(graph.outputs):
        raise UnmatchedError("the same sort is returned twice", operation=first.where)
    names = safe_names([argument.name for argument in graph.arguments], RESERVED)
    return SelectionPlan(graph, tuple(names))
