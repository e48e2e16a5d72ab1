"""The transform pattern: Fourier transforms of lines of float32 in one pass over memory, with pointwise work around.

Threads of a line have butterflies of 2 to 16 numbers in registers, and exchange what comes of them in shared memory
(Stockham's order: neighbouring threads read and write neighbours). The first round reads memory, and the last stores.
Real numbers of an even length are half as many complex ones, whose spectrum the last step takes apart in pairs.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.epilogue import Epilogue
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types
from cutesmith.patterns.graph.instructions import WHERE_ROUNDED, more_instructions
from cutesmith.patterns.graph.line_lengths import prime_factors
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.size_laws import size_code
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.transforms.analysis import TransformProblem, analyse
from cutesmith.patterns.transforms.configuration import TransformsConfiguration
from cutesmith.patterns.transforms.radices import best_gap, conflicts, stages, ways
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames
from cutesmith.patterns.writing.templating import first_checks, launcher_key, render_template, returned, size_checks
from cutesmith.runtime.tiling import TiledShape, Tiling

_OWN = (
    "SmemAllocator COUNT THREADS LINES HELD DIM ROWS PAIRED TURNS LAUNCHERS element epilogue place turn butterfly "
    "order_of sum_and_difference sums_of_odd read write load_pair store_pair memory line pair pairs values width z w "
    "held all_held turns turns_of first factors factor radix before apart step real imag re im x y s is_there number "
    "access merge_dimensions transform_kernel launch_transform compile_transform tensors sizes seen lines widths i k "
    "other size extent index described parts half mine count start span both mirrored p q a b angle rest quarters"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""

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

NUMBER_INSTRUCTIONS, PAIR_INSTRUCTIONS = 16, 24
"""Of a thread for each complex number in each round, and for two numbers of a spectrum of real ones: counted in machine
code for sm_90a of 8 x 8 x 8, whose loop has some 500 beside the magnitude."""


@dataclass(frozen=True)
class TransformsPlan(GraphPlan):
    """A matched transform, ready to be rendered in any of its configurations."""

    problem: TransformProblem
    pattern: str = "transforms"

    @property
    def warp_instructions(self) -> int:
        """Of the first configuration, counted at the rate that the machine takes these for."""
        p, c = self.problem, self.configurations()[0]
        work = NUMBER_INSTRUCTIONS * sum(c.threads * s.rounds(c.threads) * s.radix for s in stages(c.radices))
        work += PAIR_INSTRUCTIONS * (p.count // 2 + 1) * (p.in_pairs or p.of_half)
        around = sum(math.prod(node.shape) for node in self.graph.nodes() if node.is_pointwise)
        around += more_instructions(self.graph, fast=is_fast(self.graph))
        return int((math.prod(p.leading) * work + around) * WHERE_ROUNDED / 32)

    def configurations(self, arch: str = "sm_90a") -> list[TransformsConfiguration]:
        """Radices and sizes of a block, the best guess first."""
        sm, count = parse_arch(arch).sm, self.problem.count
        found = list[TransformsConfiguration]()
        for radices, threads in ways(count)[:WAYS]:
            gap, turns = best_gap(radices, threads), _turns(self.problem, radices)[-1]
            for block in BLOCKS:
                most = max(1, min(block // threads, (sm.smem_per_block // 8 - turns) // held(count, gap)))
                lines = max(range(1, most + 1), key=lambda n: (n * threads / (32 * math.ceil(n * threads / 32)), n))
                room = 8 * (lines * held(count, gap) + turns) + SMEM_OF_BLOCK
                registers = FEWEST + OF_NUMBER * max(stage.radix * stage.rounds(threads) for stage in stages(radices))
                most = sm.registers_per_sm // (8 * math.ceil(registers / 8) * threads * lines)
                resident = max(1, min(sm.smem_per_sm // room, most))
                found.append(TransformsConfiguration(radices, threads, lines, gap, resident))
        return list(dict.fromkeys(found))

    def why(self, configuration: TransformsConfiguration) -> str:
        """The rounds, where the numbers lie between them, and what bank conflicts cost."""
        c, p = configuration, self.problem
        told = f"{math.prod(p.leading)} lines of {p.transform.length}: {p.count} complex numbers are transformed in "
        told += f"{len(c.radices)} rounds of butterflies of {' x '.join(map(str, c.radices))} by {c.threads} threads."
        if len(c.radices) == 1:
            return told
        times = conflicts(c.radices, c.threads, c.gap)
        gap = f"with a gap behind every {c.gap}, " if c.gap else ""
        return f"{told} Between rounds they lie in shared memory, {gap}at {times:.3g} times the time without conflicts."

    def tiled_shape(self) -> TiledShape:
        """The numbers of a line."""
        sizes = [ITEM_BYTES[node.dtype] for node in self.graph.outputs]
        return TiledShape(sizes=(self.problem.wanted,), element_bytes=min(sizes))

    def tiling(self, configuration: TransformsConfiguration) -> Tiling:
        """Whole lines."""
        c = configuration
        return Tiling(threads=c.threads * c.lines, tile=(self.problem.wanted,), vector=1, settings=c.to_dict())

    def render(self, configuration: TransformsConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        return render_template("transforms.py.j2", _context(self.problem, configuration))


def held(count: int, gap: int) -> int:
    """Places of a line in shared memory."""
    return count + (count - 1) // gap if gap else count


def _turns(problem: TransformProblem, radices: tuple[int, ...]) -> list[int]:
    """The places of each round's turns in shared memory, then of those of pairs, and how many there are."""
    counts = [(stage.radix - 1) * stage.before for stage in stages(radices)[1:]]
    counts.append(problem.count // 2 + 1 if problem.in_pairs or problem.of_half else 0)
    return [0, *itertools.accumulate(counts)]


def _context(problem: TransformProblem, c: TransformsConfiguration) -> dict[str, object]:
    element, epilogue = problem.element, problem.epilogue
    loaded, taken, outputs = problem.loaded, problem.taken, epilogue.outputs
    results = (replace(outputs[0], name="out"),) if problem.stores_pairs else outputs
    made = {*(t.name for t in (*loaded, *taken)), *(o.name for o in outputs)}
    views = ViewNames({*problem.arguments, *RESERVED, *made})
    inputs = [views.name(operand.passed) for operand in loaded]
    whole = [views.name(operand.passed) for operand in taken]
    rounds = stages(c.radices)
    odd = {prime for stage in rounds for prime in prime_factors(stage.radix)} - {2}
    late = len(element.operands)
    rows = [problem.given] * late + [problem.wanted] * (len(loaded) - late)
    paired = [problem.in_pairs] * late + [problem.of_half] * (len(loaded) - late)
    firsts = _turns(problem, c.radices)
    return {
        "c": c,
        "p": problem,
        "title": " + ".join(["fourier transform", *_pointwise(problem.graph)]),
        "stages": rounds,
        "exact": all(stage.apart % c.threads == 0 for stage in rounds),
        "odd": bool(odd),
        "even": any(stage.radix % 2 == 0 for stage in rounds),
        "composite": any(len(stage.factors) > 1 for stage in rounds),
        "is_held": len(rounds) > 1 or problem.in_pairs or problem.of_half,
        "in_warp": 32 % c.threads == 0 and c.threads * c.lines % 32 == 0,
        "held": held(problem.count, c.gap),
        "numbers_held": max(stage.radix * stage.rounds(c.threads) for stage in rounds),
        "helpers": list(dict.fromkeys((*element.helpers, *epilogue.helpers))),
        "plain": _is_plain(element, [operand.name for operand in element.operands]),
        "is_identity": _is_plain(epilogue, [each.name for each in epilogue.given]),
        "element": _element(element),
        "epilogue": functools.partial(_epilogue, epilogue),
        "pair_rounds": math.ceil((problem.count // 2 + 1) / c.threads),
        "firsts": firsts,
        "first_of_pairs": firsts[-2],
        "turns": firsts[-1],
        "early": loaded[:late],
        "late": loaded[late:],
        "taken": taken,
        "outputs": outputs,
        "results": results,
        "tensors": [*loaded, *results],
        "rows": [*rows, *([2 * problem.wanted] if problem.stores_pairs else [problem.wanted] * len(outputs))],
        "paired": [*paired, *[problem.of_half or problem.stores_pairs] * len(results)],
        "types": stored_types([*(o.dtype for o in (*taken, *loaded)), *(o.dtype for o in outputs)]),
        "numbers": list(dict.fromkeys((*element.numbers, *epilogue.numbers))),
        "coordinates": list(_coordinates(problem)),
        "last": f"at_{len(problem.leading)}",
        "views": [*views.lines, *dict.fromkeys((*element.laws, *epilogue.laws))],
        "leading": _leading_code(problem, inputs),
        "device": (inputs or whole)[0],
        "checks": size_checks(problem.arguments, problem.graph, problem.graph.checked),
        "first_checks": first_checks(problem.arguments, problem.graph),
        "passed": [*whole, *inputs, *(output.name for output in results)],
        "key": launcher_key(list(dict.fromkeys((*whole, *inputs))), [] if inputs else [results[0].name]),
        "returns": returned(
            [f"{o.name}.view(torch.bool)" if o.dtype == "bool" else o.name for o in results],
            as_tuple=problem.graph.returns_tuple,
        ),
    }


def _pointwise(graph: Graph) -> Iterator[str]:
    yield from dict.fromkeys(node.op for node in graph.nodes() if node.is_pointwise)


def _coordinates(problem: TransformProblem) -> Iterator[str]:
    """Statements for those of a line, of which the last dimension runs fastest."""
    used = {*problem.element.coordinates, *problem.epilogue.coordinates}
    dims = range(len(problem.leading))
    for dim in dims:
        if f"at_{dim}" in used:
            inner = "".join(f" // plan.sizes[{other}]" for other in dims[dim + 1 :])
            yield f"at_{dim} = Int32(line{inner} % plan.sizes[{dim}])"


def _leading_code(problem: TransformProblem, inputs: list[str]) -> str:
    """Code of the sizes of all dimensions but the last; those that only tensors read anywhere have follow from laws."""
    aligned = [(name, o) for name, o in zip(inputs, problem.loaded, strict=True) if o.rank == len(problem.node.shape)]
    shapes = [o.shape[:-1] for _, o in aligned]
    if shapes and broadcast(shapes) == problem.leading:
        whole = [name for name, o in aligned if o.shape[:-1] == problem.leading]
        codes = whole[:1] or [name for name, _ in aligned]
        sliced = [f"{name}.shape[:-1]" for name in dict.fromkeys(codes)]
        return sliced[0] if len(sliced) == 1 else f"torch.broadcast_shapes({', '.join(sliced)})"
    sizes = (problem.node.sizes or problem.node.shape)[:-1]
    return f"({''.join(f'{size_code(size, problem.arguments)}, ' for size in sizes)})"


def _is_plain(function: Epilogue, names: list[str]) -> bool:
    """Whether a function returns what it is given, which has these names."""
    return not function.statements and list(function.results) == names


def _element(element: Epilogue) -> str:
    """Code of what is transformed, from scalars as they lie in memory."""
    operands = [operand.loaded(operand.name) for operand in element.operands]
    if _is_plain(element, [operand.name for operand in element.operands]):
        return ", ".join(operands)
    return element.call("", operands, list(element.coordinates), "element")


def _epilogue(epilogue: Epilogue, real: str, imag: str) -> str:
    """Code of the results, from that of both parts of a number."""
    given = [imag if each.name == "imag" else real for each in epilogue.given]
    if _is_plain(epilogue, [each.name for each in epilogue.given]):
        return ", ".join(given)
    operands = [operand.loaded(operand.name) for operand in epilogue.operands]
    return epilogue.call(", ".join(given), operands, list(epilogue.coordinates))


def match(graph: Graph) -> TransformsPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of a transform's kernel."""
    return TransformsPlan(graph, analyse(graph, RESERVED))
