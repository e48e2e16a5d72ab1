"""What the template of a transform is rendered with."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from cutesmith.patterns.contraction.epilogue import Epilogue, Operand
from cutesmith.patterns.graph.dtypes import stored_types
from cutesmith.patterns.graph.line_lengths import prime_factors
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.size_laws import size_code
from cutesmith.patterns.transforms.analysis import TransformProblem
from cutesmith.patterns.transforms.configuration import TransformsConfiguration
from cutesmith.patterns.transforms.lines import Form, Line
from cutesmith.patterns.transforms.radices import stages
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames
from cutesmith.patterns.writing.templating import first_checks, launcher_key, returned, size_checks

_OWN = (
    "SmemAllocator COUNT THREADS LINES HELD DIM ROWS PAIRED TURNS LAUNCHERS element element_0 element_1 between "
    "epilogue place turn butterfly order_of sum_and_difference sums_of_odd read write load_pair store_pair memory "
    "line pair pairs values width z w held held_0 held_1 all_held turns turns_of first factors factor radix before "
    "apart step real imag real_0 imag_0 real_1 imag_1 other_real other_imag other_real_0 other_imag_0 other_real_1 "
    "other_imag_1 re im x y s is_there number near access merge_dimensions transform_kernel launch_transform "
    "compile_transform tensors sizes seen lines widths i k other size extent index described parts half mine count "
    "start span both mirrored p q a b angle rest quarters part spectrum_of_real pairs_of_real odd even at unit fill "
    "line_sizes as_lines merged blocks each shape stride strides"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""


@dataclass(frozen=True)
class Written:
    """A line as the template writes it: its operands, the place of the first one's width, and the call of its function.

    `re` and `im` are the places of the parts of a number: an inverse transform is a forward one of swapped parts.
    """

    line: Line
    first: int
    call: Callable[[str], str]

    @property
    def form(self) -> Form:
        """Its sizes, and how its numbers are taken."""
        return self.line.form

    @property
    def early(self) -> tuple[Operand, ...]:
        """What its elements are made of."""
        return self.line.element.operands

    @property
    def re(self) -> int:
        """The place of a real part."""
        return int(self.form.is_inverse)

    @property
    def im(self) -> int:
        """The place of an imaginary part."""
        return 1 - self.re

    @property
    def has_function(self) -> bool:
        """Whether its elements are not what is read."""
        return not _is_plain(self.line.element)


def held(count: int, gap: int) -> int:
    """Places of a line in shared memory."""
    return count + (count - 1) // gap if gap else count


def turn_places(problem: TransformProblem, radices: tuple[int, ...]) -> list[int]:
    """The places of each round's turns in shared memory, then of those of pairs, and how many there are."""
    counts = [(stage.radix - 1) * stage.before for stage in stages(radices)[1:]]
    counts.append(problem.count // 2 + 1 if problem.turns_pairs else 0)
    return [0, *itertools.accumulate(counts)]


def context(problem: TransformProblem, c: TransformsConfiguration) -> dict[str, object]:
    """All names of the template."""
    epilogue, form = problem.epilogue, problem.line.form
    loaded, taken, outputs = problem.loaded, problem.taken, epilogue.outputs
    results = (replace(outputs[0], name="out"),) if problem.stores_pairs else outputs
    made = {*(t.name for t in (*loaded, *taken)), *(o.name for o in outputs)}
    views = ViewNames({*problem.arguments, *RESERVED, *made})
    inputs = [views.name(operand.passed) for operand in loaded]
    whole = [views.name(operand.passed) for operand in taken]
    late = len(epilogue.operands)
    return {
        **_rounds(problem, c),
        "c": c,
        "p": problem,
        "form": form,
        "title": " + ".join(["fourier transform"] * len(problem.lines) + [*_pointwise(problem.graph)]),
        "written": _written(problem),
        "buffers": list(dict.fromkeys(line.held for line in problem.lines)),
        "helpers": list(dict.fromkeys(helper for each in problem.functions for helper in each.helpers)),
        "is_identity": _is_plain(epilogue),
        "epilogue": lambda real, imag: _code(epilogue, "epilogue", {"real": real, "imag": imag}),
        "late": epilogue.operands,
        "taken": taken,
        "outputs": outputs,
        "results": results,
        "tensors": [*loaded, *results],
        "first_late": len(loaded) - late,
        "rows": [*_rows(problem), *[form.wanted * (2 if problem.stores_pairs else 1)] * len(results)],
        "paired": [*_paired(problem), *[form.stores_pairs or problem.stores_pairs] * len(results)],
        "types": stored_types([*(o.dtype for o in (*taken, *loaded)), *(o.dtype for o in outputs)]),
        "numbers": list(dict.fromkeys(number for each in problem.functions for number in each.numbers)),
        "coordinates": list(_coordinates(problem)),
        "last": f"at_{len(problem.leading)}",
        "views": [*views.lines, *dict.fromkeys(law for each in problem.functions for law in each.laws)],
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


def _rounds(problem: TransformProblem, c: TransformsConfiguration) -> dict[str, object]:
    """The names that follow from radices and threads."""
    rounds, firsts = stages(c.radices), turn_places(problem, c.radices)
    odd = {prime for stage in rounds for prime in prime_factors(stage.radix)} - {2}
    return {
        "stages": rounds,
        "exact": all(stage.apart % c.threads == 0 for stage in rounds),
        "odd": bool(odd),
        "even": any(stage.radix % 2 == 0 for stage in rounds),
        "composite": any(len(stage.factors) > 1 for stage in rounds),
        "is_held": len(rounds) > 1 or problem.turns_pairs or bool(problem.spectra),
        "in_warp": 32 % c.threads == 0 and c.threads * c.lines % 32 == 0,
        "held": held(problem.count, c.gap),
        "numbers_held": max(stage.radix * stage.rounds(c.threads) for stage in rounds),
        "pair_rounds": math.ceil((problem.count // 2 + 1) / c.threads),
        "firsts": firsts,
        "first_of_pairs": firsts[-2],
        "turns": firsts[-1],
    }


def _written(problem: TransformProblem) -> list[Written]:
    """The lines in order."""
    found, first = list[Written](), 0
    for line in problem.lines:
        found.append(Written(line, first, functools.partial(_element, line, problem.spectra)))
        first += len(line.element.operands)
    return found


def _rows(problem: TransformProblem) -> Iterator[int]:
    """Numbers of a line of each operand."""
    for line in problem.lines:
        yield from [line.form.given] * len(line.element.operands)
    yield from [problem.line.form.wanted] * len(problem.epilogue.operands)


def _paired(problem: TransformProblem) -> Iterator[bool]:
    """Whether neighbours of a line of each operand are read together."""
    for line in problem.lines:
        yield from [line.form.loads_pairs] * len(line.element.operands)
    yield from [problem.line.form.stores_pairs] * len(problem.epilogue.operands)


def _pointwise(graph: Graph) -> Iterator[str]:
    yield from dict.fromkeys(node.op for node in graph.nodes() if node.is_pointwise)


def _coordinates(problem: TransformProblem) -> Iterator[str]:
    """Statements for those of a line, of which the last dimension runs fastest."""
    used = {coordinate for each in problem.functions for coordinate in each.coordinates}
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


def _is_plain(function: Epilogue) -> bool:
    """Whether a function returns what it is given or reads."""
    names = {*(each.name for each in function.given), *(operand.name for operand in function.operands)}
    return not function.statements and names.issuperset(function.results)


def _code(function: Epilogue, name: str, given: Mapping[str, str]) -> str:
    """Code of the results, from that of what is given and from scalars as they lie in memory."""
    operands = {operand.name: operand.loaded(operand.name) for operand in function.operands}
    if _is_plain(function):
        return ", ".join({**given, **operands}[result] for result in function.results)
    passed = ", ".join(given[each.name] for each in function.given)
    return function.call(passed, list(operands.values()), list(function.coordinates), name)


def _element(line: Line, spectra: tuple[Line, ...], prefix: str) -> str:
    """Code of what is transformed; numbers of spectra have names with this prefix."""
    names = [f"{part}{spectrum.end}" for spectrum in spectra for part in ("real", "imag")]
    return _code(line.element, line.name, {name: f"{prefix}{name}" for name in names})
