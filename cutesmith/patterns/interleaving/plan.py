"""The interleaving pattern: each thread loads one place of every phase, and stores the positions that these are.

The products of the phases of a transposed convolution lie in tensors of their own. Neighbouring threads read
neighbouring places of each, all before the first is used, and store rows of positions in vectors. Pointwise work is
done on each position; windows that are the blocks of phases are combined in registers, and their positions are never
stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.patterns.contraction.epilogue import Epilogue, Operand
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_dtype, stored_types
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.graph.window_attributes import Phase
from cutesmith.patterns.interleaving.analysis import InterleavingProblem, analyse
from cutesmith.patterns.interleaving.configuration import InterleavingConfiguration
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.writing.expressions import literal
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames
from cutesmith.patterns.writing.templating import (
    first_checks,
    launcher_key,
    render_template,
    returned,
    size_checks,
)
from cutesmith.runtime.tiling import TiledShape, Tiling

_OWN = (
    "itertools THREADS STRIDES SIZES BLOCKS PLACES SOURCES RESULT LAUNCHERS element epilogue load store rest products "
    "values row width widths value best number phases first p i acc access layout_of described size strides shape "
    "compile_interleaving launch_interleaving interleaving_kernel alignment tensors"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""

GUESSES = (128, 256, 64)
"""Threads of a block: each has as many loads on their way as there are phases. No GPU has ordered them yet."""


@dataclass(frozen=True)
class InterleavingPlan(GraphPlan):
    """Matched phases, ready to be rendered in any of their configurations."""

    problem: InterleavingProblem
    pattern: str = "interleaving"

    def configurations(self, arch: str = "sm_90a") -> list[InterleavingConfiguration]:
        """Threads a block, the best guess first."""
        return [InterleavingConfiguration(threads) for threads in GUESSES]

    def why(self, configuration: InterleavingConfiguration) -> str:
        """How many loads a thread has on their way."""
        phases, blocks = len(self.problem.products), math.prod(self.problem.blocks)
        told = f"A thread has one place of all {phases} phases, so that as many loads are on their way:"
        return f"{told} {blocks} places in blocks of {configuration.threads} threads."

    def tiled_shape(self) -> TiledShape:
        """Blocks of positions along the contiguous dimension; the edge is guarded."""
        sizes = [ITEM_BYTES[node.dtype] for node in self.graph.outputs]
        return TiledShape(sizes=(self.problem.blocks[-1],), element_bytes=min(sizes))

    def tiling(self, configuration: InterleavingConfiguration) -> Tiling:
        """Neighbouring blocks of positions over the threads."""
        c = configuration
        return Tiling(threads=c.threads, tile=(c.threads,), vector=1, settings=c.to_dict())

    def render(self, configuration: InterleavingConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        return render_template("interleaving.py.j2", _context(self.problem, configuration))


def _context(problem: InterleavingProblem, c: InterleavingConfiguration) -> dict[str, object]:
    element, epilogue, pool = problem.element, problem.epilogue, problem.pool
    inner = list(element.operands)
    late = list(epilogue.operands) if pool else []
    operands = [*problem.products, *inner, *late]
    taken = {*problem.arguments, *RESERVED, *(o.name for o in operands), *(o.name for o in epilogue.outputs)}
    views = ViewNames(taken)
    passed = [views.name(o.passed) for o in operands]
    rank = problem.order.rank
    return {
        "c": c,
        "p": problem,
        "title": " + ".join(_titles(problem)),
        "products": problem.products,
        "index": [f"at_{dim}" for dim in range(problem.leading)],
        "fixed": [o for o in inner if not any(o.varies[-rank:])],
        "moving": [o for o in inner if any(o.varies[-rank:])],
        "along": {o.name: o.varies[-1] for o in (*inner, *late)},
        "late": late,
        "sources": list(map(_source, problem.order.sources())),
        "value": _call(element, "values[p]", "element" if pool else "epilogue"),
        "call": _call(epilogue, "best") if pool else "",
        "plain": element.is_identity if pool else True,
        "combined": _combined(problem),
        "neutral": literal(0 if problem.is_mean else float("-inf"), problem.pooled),
        "helpers": list(dict.fromkeys((*element.helpers, *epilogue.helpers))),
        "tensors": [*operands, *epilogue.outputs],
        "types": stored_types([*(o.dtype for o in operands), *(o.dtype for o in epilogue.outputs)]),
        "numbers": list(dict.fromkeys((*element.numbers, *epilogue.numbers))),
        "coordinates": {*element.coordinates, *epilogue.coordinates},
        "views": [*views.lines, *dict.fromkeys((*element.laws, *epilogue.laws))],
        "checks": size_checks(problem.arguments, problem.graph, problem.graph.places),
        "first_checks": first_checks(problem.arguments, problem.graph),
        "allocations": [
            f"{o.name} = torch.empty({problem.result}, dtype=torch.{stored_dtype(o.dtype)}, device={passed[0]}.device)"
            for o in epilogue.outputs
        ],
        "passed": [*passed, *(o.name for o in epilogue.outputs)],
        "key": launcher_key(list(dict.fromkeys(passed))),
        "returns": returned(
            [f"{o.name}.view(torch.bool)" if o.dtype == "bool" else o.name for o in epilogue.outputs],
            as_tuple=problem.graph.returns_tuple,
        ),
    }


def _titles(problem: InterleavingProblem) -> Iterator[str]:
    yield "phases in order"
    yield from dict.fromkeys(node.op for node in problem.graph.nodes() if node.is_pointwise or node.op == "pool")


def _source(source: tuple[int, tuple[Phase, ...]] | None) -> str:
    """The code of a position's product, its phase and the first place along each dimension."""
    if source is None:
        return "None"
    number, phases = source
    return f"({number}, {tuple(phase.at for phase in phases)}, {tuple(phase.first for phase in phases)})"


def _call(function: Epilogue, given: str, name: str = "epilogue") -> str:
    if function.results == (function.given[0].name,) and not function.statements:
        return given
    operands = [_loaded(operand) for operand in function.operands]
    return function.call(given, operands, list(function.coordinates), name)


def _loaded(operand: Operand) -> str:
    return operand.loaded(operand.name)


def _combined(problem: InterleavingProblem) -> str:
    """What becomes of `best` and the next value of a window."""
    if problem.pool is None:
        return ""
    if problem.is_mean:
        return "best + value"
    return POINTWISE["maximum"].expression(problem.pooled, fast=False).format("best", "value", T=problem.pooled)


def match(graph: Graph) -> InterleavingPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of the kernel."""
    return InterleavingPlan(graph, analyse(graph, RESERVED))
