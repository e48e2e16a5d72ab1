"""The pattern of contractions: a product of matrices or a batch of them, and pointwise work on its result.

A block computes a tile of the result: cp.async fills a ring of shared-memory stages ahead of the arithmetic, mma.sync
sums up in registers, and the epilogue reads its operands and writes its outputs in vectors of a row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cutesmith.devices import SmVersion, parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.analysis import ContractionProblem, analyse, by_windows
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration
from cutesmith.patterns.contraction.blackwell.kernel import BLACKWELL_NAMES, blackwell_context
from cutesmith.patterns.contraction.blackwell.legality import needs_launches as blackwell_needs_launches
from cutesmith.patterns.contraction.blackwell.legality import obstacles as blackwell_obstacles
from cutesmith.patterns.contraction.blackwell.legality import shared_bytes as blackwell_shared_bytes
from cutesmith.patterns.contraction.blackwell.prediction import predict as blackwell_predict
from cutesmith.patterns.contraction.blackwell.prediction import why as blackwell_why
from cutesmith.patterns.contraction.blackwell.proposals import proposals as blackwell_proposals
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
from cutesmith.patterns.contraction.direct import direct_context, direct_proposals, direct_seconds, direct_why
from cutesmith.patterns.contraction.direct import shared_bytes as direct_shared_bytes
from cutesmith.patterns.contraction.epilogue import Output
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.hopper.kernel import HOPPER_NAMES, hopper_context
from cutesmith.patterns.contraction.hopper.legality import copied_factors, moved_outputs, obstacles
from cutesmith.patterns.contraction.hopper.legality import shared_bytes as hopper_shared_bytes
from cutesmith.patterns.contraction.hopper.prediction import LAUNCH_SECONDS, predict
from cutesmith.patterns.contraction.hopper.prediction import why as hopper_why
from cutesmith.patterns.contraction.hopper.proposals import proposals as hopper_proposals
from cutesmith.patterns.contraction.im2col import weights_by_channels
from cutesmith.patterns.contraction.legality import refusals, shared_bytes, threads
from cutesmith.patterns.contraction.proposals import predicted_seconds, proposals, why
from cutesmith.patterns.contraction.row_values import call_of_rows, calls_of, given_after, sources_of
from cutesmith.patterns.contraction.skinny import shared_bytes as skinny_shared_bytes
from cutesmith.patterns.contraction.skinny import skinny_context, skinny_proposals, skinny_seconds, skinny_why
from cutesmith.patterns.contraction.tma import TMA_BYTES, given_by_columns, stretches
from cutesmith.patterns.graph.attributes import Reshaping
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types
from cutesmith.patterns.graph.nodes import Graph, nodes_of
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames, fresh_name
from cutesmith.patterns.writing.templating import (
    as_image,
    equal_checks,
    fitting_checks,
    launcher_key,
    positions_check,
    render_template,
    returned,
    type_check,
)
from cutesmith.runtime.tiling import TiledShape, Tiling

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
Own = HopperConfiguration | BlackwellConfiguration
HOPPER = parse_arch("sm_90a").sm
RESERVED = SHARED_NAMES | set(_OWN.split()) | HOPPER_NAMES | BLACKWELL_NAMES
"""Names that an argument of the problem may not have in the generated kernel."""


@dataclass(frozen=True)
class OwnForm:
    """What an architecture's own form of a product says of itself; `needs_launches`: others beside the kernel."""

    obstacles: Callable[[ContractionProblem, SmVersion], Iterator[str]]
    proposals: Callable[[ContractionProblem, SmVersion], Sequence[Own]]
    needs_launches: Callable[[ContractionProblem, Any], bool]


HOPPER_FORM = OwnForm(obstacles, hopper_proposals, lambda p, c: bool(copied_factors(p, c) or moved_outputs(p, c)))
BLACKWELL_FORM = OwnForm(blackwell_obstacles, blackwell_proposals, blackwell_needs_launches)


@dataclass(frozen=True)
class ContractionPlan(GraphPlan):
    """A matched product, ready to be rendered in any of its configurations."""

    problem: ContractionProblem
    pattern: str = "contraction"

    def configurations(self, arch: str = "sm_90a") -> Sequence[Form]:
        """Those of the form that is predicted to be the fastest, the best guess first."""
        if arch not in self._found:  # cuts of a graph are compared by the times of all their launches
            self._found[arch] = self._configurations(arch)
        return self._found[arch]

    @functools.cached_property
    def _found(self) -> dict[str, Sequence[Form]]:
        return {}

    def _configurations(self, arch: str) -> Sequence[Form]:
        if isinstance(self.problem.b, Computed):
            return skinny_proposals(self.problem, parse_arch(arch).sm)
        tiled, direct = self._tiled(arch), direct_proposals(self.problem, parse_arch(arch).sm)
        sizes_stay_free = tiled and self.problem.graph.free_sizes  # channels and taps are part of a direct kernel
        if self.problem.order or not direct or sizes_stay_free:
            return tiled
        return direct if not tiled or self.seconds(direct[0]) < self.seconds(tiled[0]) else tiled

    def _tiled(self, arch: str) -> Sequence[Form]:
        """Tiles that the architecture can run; of its own form where that serves, with the launches that it needs."""
        sm = parse_arch(arch).sm
        problem, windowed = self.problem, by_windows(self.problem)
        own = BLACKWELL_FORM if "tcgen05.mma" in sm.tensor_cores else HOPPER_FORM
        found = [] if any(own.obstacles(problem, sm)) else [*own.proposals(problem, sm)]
        if arithmetic_of(problem) is Arithmetic.FLOAT8 or problem.order:
            return found
        if found and not own.needs_launches(problem, found[0]) and not self._is_grouped:
            return found
        if windowed is not problem and not any(own.obstacles(windowed, sm)):
            found += [c for c in own.proposals(windowed, sm) if c.joined]
            found = sorted(dict.fromkeys(found), key=self.seconds)
        others = [c for c in proposals(problem) if not any(refusals(problem, c, sm))]
        with_copies = self.seconds(found[0]) if found else math.inf
        return found if not others or with_copies < self.seconds(others[0]) else others

    @property
    def _is_grouped(self) -> bool:
        """Whether it is a convolution with weights for each group of channels: few fill little of wgmma's tile."""
        weights, seen = self.problem.product.inputs
        return seen.op == "windows" and math.prod(weights.shape[:-2]) > 1

    def problem_for(self, configuration: Form) -> ContractionProblem:
        """As a configuration takes it: where images follow each other, their points are windows."""
        joined = isinstance(configuration, HopperConfiguration | BlackwellConfiguration) and configuration.joined
        return by_windows(self.problem) if joined else self.problem

    def seconds(self, configuration: Form) -> float:
        """Predicted for an H200, of tcgen05 for a B200."""
        if isinstance(configuration, BlackwellConfiguration):
            return blackwell_predict(self.problem_for(configuration), configuration).seconds
        if isinstance(configuration, HopperConfiguration):
            return predict(self.problem_for(configuration), configuration).seconds
        if isinstance(configuration, DirectConfiguration):
            return LAUNCH_SECONDS + direct_seconds(self.problem, configuration)
        if isinstance(configuration, SkinnyConfiguration):
            return LAUNCH_SECONDS + skinny_seconds(self.problem, configuration)
        return LAUNCH_SECONDS + predicted_seconds(self.problem, configuration)

    def why(self, configuration: Form) -> str:
        """The tiles, their waves, and what is launched beside them."""
        if isinstance(configuration, BlackwellConfiguration):
            return blackwell_why(self.problem_for(configuration), configuration)
        if isinstance(configuration, HopperConfiguration):
            return hopper_why(self.problem_for(configuration), configuration)
        if isinstance(configuration, DirectConfiguration):
            return direct_why(self.problem, configuration)
        if isinstance(configuration, SkinnyConfiguration):
            return skinny_why(self.problem, configuration)
        return why(self.problem, configuration)

    def tiled_shape(self) -> TiledShape:
        """Rows and columns of the result; every edge is guarded."""
        return TiledShape(sizes=(self.problem.m, self.problem.n))

    def tiling(self, configuration: Form) -> Tiling:
        """A block's tile and what it takes."""
        c = configuration
        if isinstance(c, HopperConfiguration):
            smem = hopper_shared_bytes(self.problem_for(c), c)
            return Tiling(threads=c.threads, tile=(c.tile_m, c.tile_n), smem_bytes=smem, settings=c.to_dict())
        if isinstance(c, DirectConfiguration):
            smem, tile = direct_shared_bytes(self.problem, c), (c.features, c.threads * c.positions)
            return Tiling(threads=c.threads, tile=tile, smem_bytes=smem, settings=c.to_dict())
        if isinstance(c, SkinnyConfiguration):
            smem, tile = skinny_shared_bytes(c), (c.tokens, c.lines * c.warps_n)
            return Tiling(threads=c.threads, tile=tile, smem_bytes=smem, settings=c.to_dict())
        if isinstance(c, BlackwellConfiguration):
            smem = blackwell_shared_bytes(self.problem_for(c), c)
            return Tiling(threads=c.threads, tile=(c.tile_m, c.tile_n), smem_bytes=smem, settings=c.to_dict())
        return Tiling(
            threads=threads(c),
            tile=(c.tile_m, c.tile_n),
            smem_bytes=shared_bytes(self.problem, c),
            settings=c.to_dict(),
        )

    def render(self, configuration: Form) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        problem = self.problem_for(configuration)
        context, own, template = _context(problem, configuration), dict[str, object](), "contraction"
        if isinstance(configuration, HopperConfiguration):
            template, own = "contraction_sm90", hopper_context(problem, configuration)
        elif isinstance(configuration, DirectConfiguration):
            template, own = "contraction_direct", direct_context(problem, configuration)
        elif isinstance(configuration, SkinnyConfiguration):
            template, own = "contraction_skinny", skinny_context(problem)
        elif isinstance(configuration, BlackwellConfiguration):
            template, own = "contraction_sm100", blackwell_context(problem, configuration)
        return render_template(f"{template}.py.j2", context | own)


def _context(problem: ContractionProblem, configuration: Form) -> dict[str, object]:
    epilogue = problem.epilogue
    own = {*(operand.name for operand in epilogue.operands), *(output.name for output in epilogue.stored)}
    views = ViewNames({*problem.arguments, *RESERVED, *own})
    by_tma = isinstance(configuration, HopperConfiguration | BlackwellConfiguration)
    codes = [problem.a.code, *((given_by_columns(side) if by_tma else None) or side.code for side in problem.right)]
    by_taps = problem.windows is not None and by_tma
    if problem.windows and by_taps:
        codes[0] = weights_by_channels(problem.a.code, problem.windows)
    by_columns = codes[1] != problem.b.code or isinstance(problem.b, Computed)
    sizes = problem.image_sizes(views.name(problem.image)) if problem.image else []
    matrices = list(map(views.name, codes))
    scales = [views.name(each.matrix.code) for each in problem.scales if each is not None]
    sides = [views.name(side.passed) for side in problem.b.passed] if isinstance(problem.b, Computed) else []
    operands = [views.name(operand.passed) for operand in epilogue.operands]
    indices = [views.name(index.code) for index in problem.indices]
    inputs = [*matrices, *indices, *scales, *sides, *operands]
    fitting = [] if problem.order else operands  # results in another order are of the traced sizes
    columns = f"{inputs[1]}.shape[{0 if by_columns else -1}]"
    first, later = compared_sizes(problem, [*matrices, *indices, *scales, *sides], fitting)
    results = [output.name for output in epilogue.stored]
    result = (epilogue.outputs or epilogue.stored)[0].name
    whole = f"{result}.shape" if epilogue.outputs else f"(*{result}.shape[:-1], {columns})"
    loaded = {operand.name: operand.loaded(f"r_{operand.name}[v]") for operand in epilogue.operands}
    of_row = {operand.name: operand.loaded(f"g_{operand.name}[row, 0]") for operand in epilogue.operands}
    products = ["", "_2"][: len(problem.right)]  # what names end with that each product has its own of
    each = functools.partial(_of_each, products)
    sums = each("r_acc", "[v]")
    return {
        "c": configuration,
        "p": problem,
        "e": epilogue,
        "kind": arithmetic_of(problem).value,
        "again": _sums_again(problem),
        "title": _title(problem),
        "accumulator": problem.accumulator,
        "passed": [*inputs, *results],
        "result": result,
        "tensors": [*_parameters(inputs, {*problem.arguments, *RESERVED, *own}), *results],
        "call": epilogue.call(given_after(problem.rounds, sums), list(loaded.values()), list(epilogue.coordinates)),
        "rounds": calls_of(problem.rounds, sums, loaded),
        "functions": sources_of(epilogue, problem.rounds),
        "row_call": call_of_rows(epilogue, problem.rounds, of_row),
        "of_rows": epilogue.of_rows.outputs if epilogue.of_rows else (),
        "products": products,
        "each": each,
        "views": [
            *views.lines,
            *block_checks(problem, matrices, scales, codes),
            *group_checks(problem, matrices, indices, codes),
            *epilogue.laws,
        ],
        "types": stored_types(problem.dtypes),
        "indices": indices,
        "ragged": problem.ends is not None,
        "choices": [side for side, index in zip("AB", problem.choices, strict=True) if index is not None],
        "windows": problem.windows,
        "taps": math.prod(problem.windows.taps) if problem.windows else 1,
        "itembits": 8 * ITEM_BYTES[problem.b.dtype],
        "allocations": [
            *_allocations(problem, inputs, sizes, columns, by_taps),
            *(_row_check(problem, columns) if problem.rounds else ()),
        ],
        "checks": checks(problem, later),
        "first_checks": [
            *type_check(problem.arguments, problem.graph),
            *equal_checks(problem.arguments, problem.graph, first),
            *columns_check(problem, matrices, codes),
            *fitting_checks(fitting, whole, stretched=not by_tma or stretches(problem)),
            *(_lines_check(epilogue.outputs) if by_tma else ()),
        ],
        "key": launcher_key(list(dict.fromkeys(inputs))),
        "returns": returned(
            [_returned(problem, o) for o in sorted(epilogue.stored, key=lambda o: o.place) if o.is_first],
            as_tuple=problem.graph.returns_tuple,
        ),
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


def _allocations(
    problem: ContractionProblem, inputs: list[str], sizes: list[str], columns: str, by_taps: bool
) -> Iterator[str]:
    a, b = inputs[:2]
    drop = 2
    if sizes:
        yield f"sizes = ({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        yield from positions_check()
        columns, drop = "math.prod(sizes)", 1 + problem.windows.rank if problem.windows else 2
    rows = f"{a}.shape[0]"
    if by_taps:
        outputs = f"*{a}.shape[:2]" if len(problem.batch) > 1 else f"{a}.shape[0]"
        rows = f"{b}.shape[0], {outputs}"
    elif problem.batch:
        chosen = iter(inputs[2:])
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


def match(graph: Graph) -> ContractionPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of a product's kernel."""
    problem = analyse(graph, RESERVED)
    if arithmetic_of(problem) is Arithmetic.FLOAT8 and (wrong := next(obstacles(problem, HOPPER), None)):
        raise UnmatchedError(wrong, operation=problem.product.where)
    plan = ContractionPlan(graph, problem)
    if problem.order and not plan.configurations():
        raise UnmatchedError("only Hopper's product of windows puts positions in order", operation="depth_to_space")
    return plan
