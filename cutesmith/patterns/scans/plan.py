"""The scan pattern: a cumulative operation along one dimension, with pointwise work before and after it, in one pass.

Neighbouring threads of a warp hold neighbouring vectors of a line where the scan runs along memory; otherwise each lane
has a line of its own, and the warps follow each other along it. A thread scans its vectors, shuffles join the lanes,
shared memory joins the warps, and a register carries the result from tile to tile. Tiles of few long lines are at work
in all blocks of the GPU in rounds, in one pass over memory: each block publishes what its tile gives, and finds two
rounds later what all have published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.epilogue import Operand
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.scans.analysis import ScanProblem, analyse
from cutesmith.patterns.scans.configuration import ScansConfiguration
from cutesmith.patterns.scans.operations import LARGER, combine_source, neutral
from cutesmith.patterns.scans.proposals import proposals, why
from cutesmith.patterns.writing.expressions import literal
from cutesmith.patterns.writing.naming import SHARED_NAMES, Parameter, ViewNames
from cutesmith.patterns.writing.templating import (
    first_checks,
    launcher_key,
    render_template,
    returned,
    size_checks,
    with_ones_in_front,
)
from cutesmith.runtime.tiling import TiledShape, Tiling

_OWN = (
    "SmemAllocator LANES LINES ALONG ACROSS VECTOR VECTORS SPAN TILE CLAMP DIM LAUNCHERS combined element epilogue "
    "load store lane warp lane_along column along across line is_there smem totals totals_at values values_at "
    "before before_at carry carry_at tile start passed passed_at value total total_at step earlier last earlier_at "
    "last_at both both_at mine mine_at factor turn w first first_at power is_inside acc acc_at place access "
    "merge_dimensions count wild entered begin scanned element_at CLEARING publish clear_kernel m_progress progress "
    "number tiles whole lines word words found entering PIECES pieces joined parted finished gap is_first shrunk "
    "top sum entered_at bits LEAD RESIDENT STAGES Uint32 cpasync after after_at end fetch full index is_missing "
    "is_own is_whole later later_at load_shared missing own_vector piece places_of rounds run source stage starts "
    "starts_at target size bulk"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""


@dataclass(frozen=True)
class ScansPlan(GraphPlan):
    """A matched scan, ready to be rendered in any of its configurations."""

    problem: ScanProblem
    pattern: str = "scans"

    def configurations(self, arch: str = "sm_90a") -> list[ScansConfiguration]:
        """How lines lie over threads, the best guess first."""
        return proposals(self.problem, parse_arch(arch).sm)

    def why(self, configuration: ScansConfiguration) -> str:
        """Whether a line fits a tile, blocks go along it, or all blocks are at work on it."""
        return why(self.problem, configuration)

    def tiled_shape(self) -> TiledShape:
        """The length of a line; every edge is guarded."""
        sizes = [ITEM_BYTES[node.dtype] for node in self.graph.outputs]
        return TiledShape(sizes=(self.problem.shape[self.problem.scan.dim],), element_bytes=min(sizes))

    def tiling(self, configuration: ScansConfiguration) -> Tiling:
        """A block's part of a line; a vector of more than 16 bytes takes several accesses."""
        c = configuration
        vector = min(c.vector, 16 // self.tiled_shape().element_bytes)
        return Tiling(threads=c.threads, tile=(c.tile,), vector=vector, settings=c.to_dict())

    def render(self, configuration: ScansConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        return render_template("scans.py.j2", _context(self.problem, configuration))


def _context(problem: ScanProblem, configuration: ScansConfiguration) -> dict[str, object]:
    element, epilogue = problem.element, problem.epilogue
    loaded = problem.loaded
    views = ViewNames({*problem.arguments, *RESERVED, *(t.name for t in loaded), *(t.name for t in epilogue.outputs)})
    inputs = [views.name(operand.passed) for operand in loaded]
    whole = next((operand.code.name for operand in problem.shaping if _is_whole(problem, operand)), "")
    given = [operand.loaded(operand.name) for operand in element.operands]
    plain = (
        not problem.is_linear
        and not element.statements
        and element.results == tuple(operand.name for operand in element.operands)
    )
    return {
        "c": configuration,
        "p": problem,
        "title": " + ".join([f"scan: {problem.operation}", *_pointwise(problem.graph)]),
        "combine": combine_source(problem),
        "neutral": neutral(problem.operation, problem.dtype),
        "companion": _neutral_companion(problem),
        "larger": LARGER.get(problem.state, ""),
        "helpers": list(dict.fromkeys((*element.helpers, *epilogue.helpers))),
        "plain": plain,
        "value": given[0] if plain else element.call("", given, list(element.coordinates), "element"),
        "call": _epilogue_call(problem),
        "loaded": loaded,
        "late": loaded[len(element.operands) :],
        "late_places": [loaded.index(operand) for operand in epilogue.operands],
        "tensors": [*loaded, *epilogue.outputs],
        "types": stored_types([*(o.dtype for o in loaded), *(o.dtype for o in epilogue.outputs)]),
        "numbers": list(dict.fromkeys((*element.numbers, *epilogue.numbers))),
        "coordinates": list(_coordinates(problem)),
        "dim": problem.scan.dim - len(problem.shape),
        "views": [*views.lines, *dict.fromkeys((*element.laws, *epilogue.laws))],
        "allocations": list(_allocations(problem, inputs)),
        "checks": size_checks(problem.arguments, problem.graph, problem.graph.checked),
        "first_checks": first_checks(problem.arguments, problem.graph, whole),
        "passed": [*inputs, *(output.name for output in epilogue.outputs)],
        "key": launcher_key(list(dict.fromkeys(inputs))),
        "returns": returned(
            [_returned(o.name, o.dtype) for o in epilogue.outputs], as_tuple=problem.graph.returns_tuple
        ),
    }


def _neutral_companion(problem: ScanProblem) -> str:
    return "Int32(0)" if problem.is_placed else literal(1 if problem.is_linear else 0, problem.state)


def _returned(name: str, dtype: str) -> str:
    return f"{name}.view(torch.bool)" if dtype == "bool" else name


def _pointwise(graph: Graph) -> Iterator[str]:
    yield from dict.fromkeys(node.op for node in graph.nodes() if node.is_pointwise)


def _epilogue_call(problem: ScanProblem) -> str:
    epilogue = problem.epilogue
    given = [_scanned(parameter, problem) for parameter in epilogue.given]
    if epilogue.is_identity:
        return given[0]
    operands = [operand.loaded(operand.name) for operand in epilogue.operands]
    return epilogue.call(", ".join(given), operands, list(epilogue.coordinates))


def _scanned(parameter: Parameter, problem: ScanProblem) -> str:
    """The code of a scanned value; places are counted in 32 bits, and are int64."""
    return "acc_at.to(Int64)" if parameter.name == "place" else "acc"


def _coordinates(problem: ScanProblem) -> Iterator[str]:
    """Statements for those of a line, of which the last dimension runs fastest."""
    used = {*problem.element.coordinates, *problem.epilogue.coordinates}
    others = [dim for dim in range(len(problem.shape)) if dim != problem.scan.dim]
    for at, dim in enumerate(others):
        if f"at_{dim}" in used:
            inner = "".join(f" // plan.sizes[{other}]" for other in others[at + 1 :])
            yield f"at_{dim} = line{inner} % plan.sizes[{dim}]"


def _is_whole(problem: ScanProblem, operand: Operand) -> bool:
    """Whether an operand has the shape of what is scanned."""
    return operand.shape == problem.scanned_shape == operand.shape[-operand.rank :]


def _allocations(problem: ScanProblem, inputs: list[str]) -> Iterator[str]:
    shaping = list(zip(inputs, problem.shaping, strict=False))
    whole = [name for name, o in shaping if _is_whole(problem, o)]
    shapes = ", ".join(dict.fromkeys(f"{name}.shape" for name, _ in shaping))
    shape = f"{whole[0]}.shape" if whole else f"torch.broadcast_shapes({shapes})"
    if not whole:
        shape = with_ones_in_front(shape, [operand.rank for _, operand in shaping], len(problem.scanned_shape))
    if problem.is_longer:
        dim = problem.scan.dim
        yield f"sizes = {shape}"
        shape = f"(*sizes[:{dim}], sizes[{dim}] + 1, *sizes[{dim + 1}:])"
    for output in problem.epilogue.outputs:
        dtype = "torch.uint8" if output.dtype == "bool" else f"torch.{output.dtype}"
        yield f"{output.name} = torch.empty({shape}, dtype={dtype}, device={inputs[0]}.device)"


def match(graph: Graph) -> ScansPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of a scan's kernel."""
    return ScansPlan(graph, analyse(graph, RESERVED))
