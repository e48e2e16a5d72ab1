"""What every template of a product takes: the tensors that a launch is given, their checks, and what is returned."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration
from cutesmith.patterns.contraction.blackwell.kernel import BLACKWELL_NAMES
from cutesmith.patterns.contraction.checks import (
    block_checks,
    checks,
    columns_check,
    compared_sizes,
    group_checks,
    is_image,
)
from cutesmith.patterns.contraction.computed import Computed
from cutesmith.patterns.contraction.configurations import (
    ContractionConfiguration,
    DirectConfiguration,
    SkinnyConfiguration,
)
from cutesmith.patterns.contraction.epilogue import Output
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.hopper.kernel import HOPPER_NAMES
from cutesmith.patterns.contraction.im2col import weights_by_channels
from cutesmith.patterns.contraction.row_values import call_of_rows, calls_of, given_after, sources_of
from cutesmith.patterns.contraction.tma import TMA_BYTES, given_by_columns, stretches
from cutesmith.patterns.graph.attributes import Reshaping, TensorCode
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types
from cutesmith.patterns.graph.nodes import nodes_of
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames, fresh_name
from cutesmith.patterns.writing.templating import (
    as_image,
    equal_checks,
    fitting_checks,
    launcher_key,
    positions_check,
    returned,
    type_check,
)

_OWN = (
    "A B acc epilogue cpasync warp SmemAllocator BM BN BK STAGES WARPS_M WARPS_N LANES_M LANES_N THREADS GROUP_M PAD "
    "m n at_m at_n rows columns row column tile batch blocks across memory smem sums part access description matrices "
    "transposed vector_at tile_of tile_layout operand_layout copy_of_tile load_tile split_float32 LAUNCHERS vectors "
    "contiguous_k tiled_mma op sizes window_starts seen_at load_windows starts taps FEATURES POSITIONS DEPTH TAPS sA "
    "feature f_k weights seen base start is_line steps step channel line line_0 line_1 offset tap inside element "
    "wild f i k round_to_tf32 ahead free k_tile bytes_A bytes_B bytes_B_2 bytes_C cA cB gB_2 sB_2 sC sC_2 copy_A "
    "copy_B copy_B_2 layout_A layout_B layout_B_2 layout_C load_A load_B load_B_2 part_A part_B part_B_2 r_acc r_acc_2 "
    "tCrB_2 tXrA tXrB tXrB_2 tXsA tXsB tXsB_2 "
    "chosen_A chosen_B TOKENS LINES WARPS_K DEPTH RUN PACKED number numbers element elements load_run piece pieces "
    "groups results_of_row ragged quad of_quad warp_n warp_k r_A r_B r_x r_w span run now ahead "
    "weights_of load_pieces own part share scale_now word words digits byte left found count at"
)
Form = (
    ContractionConfiguration | DirectConfiguration | SkinnyConfiguration | HopperConfiguration | BlackwellConfiguration
)
RESERVED = SHARED_NAMES | set(_OWN.split()) | HOPPER_NAMES | BLACKWELL_NAMES
"""Names that an argument of the problem may not have in the generated kernel."""


@dataclass(frozen=True)
class Given:
    """The tensors that a launch is given, as expressions of arguments; `lines` make the views that these name.

    `codes` are the factors before they have names: those that TMA reads by columns are transposed there.
    """

    codes: tuple[TensorCode, ...]
    lines: tuple[str, ...]
    matrices: tuple[str, ...]
    indices: tuple[str, ...]
    scales: tuple[str, ...]
    sides: tuple[str, ...]
    operands: tuple[str, ...]
    sizes: tuple[str, ...]
    columns: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """All that are read, in the order in which a launch takes them."""
        return self.matrices + self.indices + self.scales + self.sides + self.operands

    @property
    def factors(self) -> tuple[str, ...]:
        """Those whose sizes the sizes of the product are."""
        return self.matrices + self.indices + self.scales + self.sides


def product_context(problem: ContractionProblem, configuration: Form) -> dict[str, object]:
    """The names of the templates that no form of the kernel has of its own."""
    by_tma = isinstance(configuration, HopperConfiguration | BlackwellConfiguration)
    given = _given(problem, by_tma)
    results = [output.name for output in problem.epilogue.stored]
    return {
        "c": configuration,
        "p": problem,
        "e": problem.epilogue,
        "kind": arithmetic_of(problem).value,
        "again": _sums_again(problem),
        "title": _title(problem),
        "accumulator": problem.accumulator,
        "passed": [*given.inputs, *results],
        "result": _result(problem),
        "tensors": [*_parameters(given.inputs, {*problem.arguments, *RESERVED, *_own_names(problem)}), *results],
        "types": stored_types(problem.dtypes),
        "indices": list(given.indices),
        "ragged": problem.ends is not None,
        "choices": [side for side, index in zip("AB", problem.choices, strict=True) if index is not None],
        "windows": problem.windows,
        "taps": math.prod(problem.windows.taps) if problem.windows else 1,
        "itembits": 8 * ITEM_BYTES[problem.b.dtype],
        "key": launcher_key(list(dict.fromkeys(given.inputs))),
        "returns": returned(
            [_returned(problem, o) for o in sorted(problem.epilogue.stored, key=lambda o: o.place) if o.is_first],
            as_tuple=problem.graph.returns_tuple,
        ),
        **_epilogue_context(problem),
        **_statements(problem, given, by_tma),
    }


def _own_names(problem: ContractionProblem) -> set[str]:
    return {*(operand.name for operand in problem.epilogue.operands), *(o.name for o in problem.epilogue.stored)}


def _result(problem: ContractionProblem) -> str:
    return (problem.epilogue.outputs or problem.epilogue.stored)[0].name


def _given(problem: ContractionProblem, by_tma: bool) -> Given:
    views = ViewNames({*problem.arguments, *RESERVED, *_own_names(problem)})
    codes = [problem.a.code, *((given_by_columns(side) if by_tma else None) or side.code for side in problem.right)]
    if problem.windows and by_tma:
        codes[0] = weights_by_channels(problem.a.code, problem.windows)
    by_columns = codes[1] != problem.b.code or isinstance(problem.b, Computed)
    sizes = problem.image_sizes(views.name(problem.image)) if problem.image else []
    matrices = tuple(map(views.name, codes))
    scales = tuple(views.name(each.matrix.code) for each in problem.scales if each is not None)
    sides = [views.name(side.passed) for side in problem.b.passed] if isinstance(problem.b, Computed) else []
    operands = tuple(views.name(operand.passed) for operand in problem.epilogue.operands)
    indices = tuple(views.name(index.code) for index in problem.indices)
    columns = f"{matrices[1]}.shape[{0 if by_columns else -1}]"
    return Given(
        tuple(codes), tuple(views.lines), matrices, indices, scales, tuple(sides), operands, tuple(sizes), columns
    )


def _epilogue_context(problem: ContractionProblem) -> dict[str, object]:
    """How the sums of each product and the operands reach the epilogue, and the functions that it calls."""
    epilogue = problem.epilogue
    loaded = {operand.name: operand.loaded(f"r_{operand.name}[v]") for operand in epilogue.operands}
    of_row = {operand.name: operand.loaded(f"g_{operand.name}[row, 0]") for operand in epilogue.operands}
    products = ["", "_2"][: len(problem.right)]  # what names end with that each product has its own of
    each = functools.partial(_of_each, products)
    sums = each("r_acc", "[v]")
    return {
        "call": epilogue.call(given_after(problem.rounds, sums), list(loaded.values()), list(epilogue.coordinates)),
        "rounds": calls_of(problem.rounds, sums, loaded),
        "functions": sources_of(epilogue, problem.rounds),
        "row_call": call_of_rows(epilogue, problem.rounds, of_row),
        "of_rows": epilogue.of_rows.outputs if epilogue.of_rows else (),
        "products": products,
        "each": each,
    }


def _statements(problem: ContractionProblem, given: Given, by_tma: bool) -> dict[str, object]:
    """Of `kernel_fn`: the views, what it checks the first time and every time, and the tensors that it makes."""
    epilogue, matrices, codes = problem.epilogue, list(given.matrices), list(given.codes)
    fitting = [] if problem.order else list(given.operands)  # results in another order are of the traced sizes
    first, later = compared_sizes(problem, list(given.factors), fitting)
    result, by_taps = _result(problem), problem.windows is not None and by_tma
    whole = f"{result}.shape" if epilogue.outputs else f"(*{result}.shape[:-1], {given.columns})"
    return {
        "views": [
            *given.lines,
            *block_checks(problem, matrices, list(given.scales), codes),
            *group_checks(problem, matrices, list(given.indices), codes),
            *epilogue.laws,
        ],
        "allocations": [
            *_allocations(problem, given, by_taps),
            *(_row_check(problem, given.columns) if problem.rounds else ()),
        ],
        "checks": checks(problem, later),
        "first_checks": [
            *type_check(problem.arguments, problem.graph),
            *equal_checks(problem.arguments, problem.graph, first),
            *columns_check(problem, matrices, codes),
            *fitting_checks(fitting, whole, stretched=not by_tma or stretches(problem)),
            *(_lines_check(epilogue.outputs) if by_tma else ()),
        ],
    }


def _of_each(products: Sequence[str], name: str, after: str = "") -> str:
    """The code for each product: its own one of this name, and what follows it."""
    return ", ".join(f"{name}{which}{after}" for which in products)


def _parameters(passed: Sequence[str], taken: Collection[str]) -> list[str]:
    """A name for each tensor that a launch takes, where one may be passed in several places, as both factors."""
    names: list[str] = []
    for name in passed:
        names.append(fresh_name(name, {*names, *taken, *passed}) if name in names else name)
    return names


def _returned(problem: ContractionProblem, output: Output) -> str:
    whole = output.half[0] if output.half else output.name
    code = f"{whole}.view(torch.bool)" if output.dtype == "bool" else whole
    if output.turned is not None:
        for view in output.turned.views:
            code = view.code(code, problem.arguments)
    if output.viewed is None or problem.order:
        return code
    if is_image(problem, output.viewed.shape):
        return as_image(code, output.name) if len(problem.batch) > 1 else f"{code}.unflatten(-1, sizes)"
    return Reshaping.of(output.viewed).view.code(code, problem.arguments)


def _title(problem: ContractionProblem) -> str:
    after = nodes_of(problem.graph.outputs, map(id, problem.product.inputs))
    later = dict.fromkeys(node.op for node in after if node.is_pointwise or node.is_reduction)
    product = "product of matrices" if problem.second is None else "two products of matrices that share the left one"
    product += f" (the right one computed from {problem.b.numbers})" if isinstance(problem.b, Computed) else ""
    return " + ".join([product, *later])


def _allocations(problem: ContractionProblem, given: Given, by_taps: bool) -> Iterator[str]:
    (a, b), columns, drop = given.inputs[:2], given.columns, 2
    if given.sizes:
        yield f"sizes = ({', '.join(given.sizes)}{',' if len(given.sizes) == 1 else ''})"
        yield from positions_check()
        columns, drop = "math.prod(sizes)", 1 + problem.windows.rank if problem.windows else 2
    rows = f"{a}.shape[0]"
    if by_taps:
        outputs = f"*{a}.shape[:2]" if len(problem.batch) > 1 else f"{a}.shape[0]"
        rows = f"{b}.shape[0], {outputs}"
    elif problem.batch:
        chosen = iter(given.inputs[2:])
        of_a, of_b = (f"{next(chosen) if code else side}" for code, side in zip(problem.choices, (a, b), strict=True))
        batch = f"torch.broadcast_shapes({of_a}.shape[:-2], {of_b}.shape[:-{drop}])"
        rows = f"*{batch}, {a}.shape[-2]"
    shape = f"{rows}, {columns}"
    if problem.order:
        shape = f"{', '.join(map(str, problem.graph.outputs[0].shape))},"
    for output in problem.epilogue.stored:
        dtype, back = "torch.uint8" if output.dtype == "bool" else f"torch.{output.dtype}", ""
        own, name = shape if output in problem.epilogue.outputs else f"{rows}, 1", output.name
        width = columns
        if output.half:
            name, width, own = output.half[0], f"2 * {columns}", f"{rows}, 2 * {columns}"
        if output.turned is not None:
            yield f"batch = {batch}"
            sizes = [*(f"batch[{dim}]" for dim in range(len(problem.batch))), f"{a}.shape[-2]", width]
            own, back = output.turned.laid_out(sizes)
        if output.is_first:
            yield f"{name} = torch.empty(({own}), dtype={dtype}, device={a}.device){back}"
        if output.half:
            yield f"{output.name} = {name}.chunk(2, -1)[{output.half[1]}]"


def _lines_check(outputs: Sequence[Output]) -> Iterator[str]:
    """The statements that refuse lines of another order which TMA cannot write; no launch would move them after it."""
    for output in outputs:
        step = TMA_BYTES // ITEM_BYTES[output.dtype]
        if output.turned is not None and step > 1:
            told = f"this kernel takes multiples of {step} as columns of the result, not {{{output.name}.shape[-1]}}"
            yield f"if {output.name}.shape[-1] % {step}:"
            yield f'    raise ValueError(f"{told}")'


def _row_check(problem: ContractionProblem, columns: str) -> Iterator[str]:
    """The statement that refuses rows that do not lie in one tile, or of which nothing comes."""
    some = problem.epilogue.of_rows is not None
    yield f"if not 0 < {columns} <= BN:" if some else f"if {columns} > BN:"
    told = f"rows of {'1' if some else 'up'} to {{BN}} columns, not of {{{columns}}}"
    yield f'    raise ValueError(f"this kernel reduces {told}")'


def _sums_again(problem: ContractionProblem) -> bool:
    """Whether a sum that is not finite may be wrong: it has halves of factors, or zeros where there is no factor."""
    is_float = problem.accumulator.startswith("Float")
    transposed = is_float and problem.windows is not None and problem.windows.is_transposed
    return transposed or arithmetic_of(problem) is Arithmetic.TF32_THRICE
