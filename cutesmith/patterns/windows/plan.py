"""The window pattern: a thread makes a few neighbouring outputs, and reads what their windows see through L1.

Of each line of the image that the windows cross, a thread loads the elements that its outputs share into registers,
in vectors where they are aligned, and then combines them: the largest and its place, a sum, or a sum of products with
the weights of a convolution. Pointwise work on the image is done on what was loaded, and on each result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.windows import Samples, Share, Span
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.windows.analysis import WindowsProblem, analyse
from cutesmith.patterns.windows.configuration import WindowsConfiguration
from cutesmith.patterns.windows.forms import Form, form_of, repetitions
from cutesmith.patterns.windows.proposals import (
    MOST_SEEN,
    proposals,
    seen,
    vector_of,
    warp_instructions,
    why,
    with_channels_last,
)
from cutesmith.patterns.writing.expressions import literal
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames
from cutesmith.patterns.writing.templating import (
    as_image,
    first_checks,
    launcher_key,
    positions_check,
    render_template,
    returned,
    size_checks,
    with_ones_in_front,
)
from cutesmith.runtime.tiling import TiledShape, Tiling

_OWN = (
    "THREADS OUTPUTS TAPS STEP START DILATION VECTOR LEAD SEEN CHANNELS element epilogue load load_seen store "
    "group across first line base width values acc place places factor value tap last channel size count counts "
    "inside take position part Exact sample_at clamped weight_of access layout_of description sizes image LAUNCHERS "
    "compile_windows launch_windows windows_kernel e t begin chunk share vector chunks_of down below LINES STEP_LINES "
    "BEFORE BEFORE_LINES SEEN_LINES FIRST FIRST_LINE WEIGHTS LINE_WEIGHTS load_around middle first_line base_line r "
    "second is_last has_channels_last not_before from_0 from_1 from_2"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""

MOST_UNROLLED, MOST_TAPS_UNROLLED = 9, 27
"""Lines of the image that windows cross, and taps of vectors of channels: more are a loop: the kernel stays short."""

TEMPLATES: dict[Form, str] = {
    "lines": "windows.py.j2",
    "channels": "windows_channels.py.j2",
    "repeated": "windows_repeated.py.j2",
}

LEAST = {"Int32": -(2**31), "Int64": -(2**63)}


@dataclass(frozen=True)
class WindowsPlan(GraphPlan):
    """Matched windows, ready to be rendered in any of their configurations."""

    problem: WindowsProblem
    pattern: str = "windows"

    @property
    def warp_instructions(self) -> int:
        """Those of the best guess; half, as most of them are issued at twice the rate of integers."""
        return int(warp_instructions(self.problem, self.configurations()[0]) / 2)

    def configurations(self, arch: str = "sm_90a") -> list[WindowsConfiguration]:
        """Outputs a thread and threads a block, the best guess first."""
        return proposals(self.problem)

    def why(self, configuration: WindowsConfiguration) -> str:
        """What a thread makes and reads, and what its time is spent on."""
        return why(self.problem, configuration)

    def tiled_shape(self) -> TiledShape:
        """Positions along the contiguous dimension; the edge is guarded."""
        sizes = [ITEM_BYTES[node.dtype] for node in self.graph.outputs]
        return TiledShape(sizes=(self.problem.positions[-1],), element_bytes=min(sizes))

    def tiling(self, configuration: WindowsConfiguration) -> Tiling:
        """Neighbouring outputs over the threads of a block."""
        c = configuration
        return Tiling(threads=c.threads, tile=(c.threads * c.outputs,), vector=c.outputs, settings=c.to_dict())

    def render(self, configuration: WindowsConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        template = TEMPLATES[form_of(self.problem, configuration)]
        return render_template(template, _context(self.problem, configuration))


def _context(problem: WindowsProblem, c: WindowsConfiguration) -> dict[str, object]:
    element, epilogue, weights = problem.element, problem.epilogue, problem.weights
    factors = [weights.operand] if weights else []
    operands = [*element.operands, *epilogue.operands, *factors]
    views = ViewNames({*problem.arguments, *RESERVED, *(o.name for o in operands), *(o.name for o in epilogue.outputs)})
    passed = {o.name: views.name(o.passed) for o in operands}
    given = [operand.loaded(operand.name) for operand in element.operands]
    plain = not element.statements and element.results == tuple(o.name for o in element.operands)
    images = list(dict.fromkeys(element.operands))
    late = list(dict.fromkeys(epilogue.operands))
    last, rank = problem.spans[-1], problem.rank
    form = form_of(problem, c)
    in_registers = form == "lines" and isinstance(last, Span) and seen(problem, c) <= MOST_SEEN
    vector = _vector(problem, c)
    dims = list(_dimensions(problem, problem.spans))
    outer = list(_dimensions(problem, problem.spans[:-1]))
    outermost = list(_dimensions(problem, problem.spans[:-2])) if form == "repeated" else []
    looped = dims if form == "channels" else outer
    most_unrolled = MOST_TAPS_UNROLLED if form == "channels" else MOST_UNROLLED
    vector_dim = -rank - 1 if form == "channels" else -1
    has_chunks = form == "lines" and isinstance(last, Share)
    across = {o.name: _lies_along(o.shape, problem.anchors[0].shape, vector_dim) for o in late}
    along = {o.name: _lies_along(o.shape, problem.image_shape, vector_dim) for o in images}
    return {
        "c": c,
        "p": problem,
        "title": " + ".join(_titles(problem)),
        "vector": vector,
        "in_registers": in_registers,
        "last": last,
        "dims": dims,
        "outer": outer,
        "outermost": outermost,
        "repetitions": repetitions(problem, c),
        "is_share": isinstance(last, Share),
        "has_shares": any(isinstance(span, Share) for span in problem.spans),
        "has_empty": problem.is_placed and any(isinstance(s, Span) and s.may_see_nothing for s in problem.spans),
        "has_chunks": has_chunks,
        "has_places": problem.is_sampled and (form != "repeated" or bool(outermost)),
        "has_loads": any(across.values()) or ((has_chunks or form == "channels") and any(along.values())),
        "most": "OUTPUTS"
        if form == "channels"
        else "VECTOR"
        if in_registers or has_chunks or form == "repeated"
        else "1",
        "unrolled": all(o.taps.isdigit() for o in looped) and math.prod(int(o.taps) for o in looped) <= most_unrolled,
        "neutral": neutral(problem),
        "combined": _combined(problem),
        "helpers": list(dict.fromkeys((*element.helpers, *epilogue.helpers))),
        "plain": plain,
        "value": given[0] if plain else element.call("", given, list(element.coordinates), "element"),
        "call": _epilogue_call(problem),
        "images": images,
        "along": along,
        "across": across,
        "image_index": _image_index(problem, form),
        "result_index": _result_index(problem, form),
        "late": late,
        "ratios": [s.ratio(f"size_{d}", f"count_{d}") for d, s in enumerate(problem.spans) if isinstance(s, Samples)],
        "weights": weights,
        "factor": weights.operand.loaded("factor") if weights else "",
        "tensors": [*images, *late, *factors, *epilogue.outputs],
        "types": stored_types([*(o.dtype for o in operands), *(o.dtype for o in epilogue.outputs)]),
        "numbers": list(dict.fromkeys((*element.numbers, *epilogue.numbers))),
        "coordinates": {*element.coordinates, *epilogue.coordinates},
        "views": [*views.lines, *dict.fromkeys((*element.laws, *epilogue.laws))],
        "allocations": list(_allocations(problem, passed, form)),
        "checks": _checks(problem),
        "taps": _taps(problem),
        "first_checks": first_checks(problem.arguments, problem.graph, images[0].code.name if images else ""),
        "channels_check": _channels_check(problem, passed),
        "passed": [*(passed[o.name] for o in (*images, *late, *factors)), *(o.name for o in epilogue.outputs)],
        "key": launcher_key(list(dict.fromkeys(passed.values()))),
        "returns": returned(
            [_returned(problem, o.name, o.dtype, o.viewed is not None) for o in epilogue.outputs],
            as_tuple=problem.graph.returns_tuple,
        ),
    }


@dataclass(frozen=True)
class Dimension:
    """A dimension of windows, for a loop over the taps of all of them: codes of its parts.

    `taps` is how many there are, `tap` which is at work, `first` where the window begins, `line` what the tap sees.
    """

    dim: int
    span: Span | Share | Samples
    taps: str
    tap: str
    first: str
    line: str

    @property
    def is_share(self) -> bool:
        """Whether the window's place and size follow the image's."""
        return isinstance(self.span, Share)

    @property
    def is_sampled(self) -> bool:
        """Whether the window lies around a place between elements."""
        return isinstance(self.span, Samples)

    @property
    def leaves_image(self) -> bool:
        """Whether the window may see places where no element is."""
        return isinstance(self.span, Span) and self.span.leaves_image


def _dimensions(problem: WindowsProblem, spans: Sequence[Span | Share | Samples]) -> Iterator[Dimension]:
    """The first dimensions of windows, for one loop over the taps of all of them."""
    taps = [f"count_{dim}" if isinstance(span, Share) else str(span.taps) for dim, span in enumerate(spans)]
    for dim, span in enumerate(spans):
        tap = _tap(taps, dim)
        if isinstance(span, Share):
            yield Dimension(dim, span, taps[dim], tap, f"first_{dim}", f"first_{dim} + {tap}")
        elif isinstance(span, Samples):
            line = f"clamped(first_{dim} + {tap}, plan.image[{dim - problem.rank}])"
            yield Dimension(dim, span, taps[dim], tap, f"first_{dim}", line)
        else:
            first = _times(f"q_{dim}", span.step) + (f" - {span.start}" if span.start else "")
            step = _times(tap if " " not in tap or span.dilation == 1 else f"({tap})", span.dilation)
            yield Dimension(dim, span, taps[dim], tap, first, f"{first} + {step}")


def _tap(taps: Sequence[str], dim: int) -> str:
    """Which tap of this dimension a tap of all of them is."""
    below = taps[dim + 1 :]
    divisor = below[0] if len(below) == 1 else f"({' * '.join(below)})"
    code = f"tap // {divisor}" if below else "tap"
    return f"{code} % {taps[dim]}" if dim else code


def _times(code: str, factor: int) -> str:
    return code if factor == 1 else f"{code} * {factor}"


def _lies_along(shape: Shape, whole: Shape, dim: int) -> bool:
    """Whether an operand has this dimension of the whole, counted from the end; where that has size 1, it may."""
    return (len(shape) >= -dim and shape[dim] != 1) or whole[dim] == 1


def _vector(problem: WindowsProblem, c: WindowsConfiguration) -> int:
    """Elements of the widest access along a line of the image; 1 where a thread reads element by element."""
    widest = 16 // min((ITEM_BYTES[o.dtype] for o in problem.element.operands), default=16)
    last = problem.spans[-1]
    if isinstance(last, Span):
        return vector_of(problem, c) if seen(problem, c) <= MOST_SEEN else 1
    if isinstance(last, Share):
        return widest
    found = repetitions(problem, c)
    return math.gcd(widest, found[0].step) if found else 1


def neutral(problem: WindowsProblem) -> str:
    """What lies outside of an image, as a literal: it changes no largest element and no sum."""
    if not problem.is_extreme:
        return literal(0, problem.state)
    return literal(LEAST.get(problem.state, float("-inf")), problem.state)


def _combined(problem: WindowsProblem) -> str:
    """The larger of `acc[v]` and `value`."""
    if not problem.is_extreme:
        return ""
    return POINTWISE["maximum"].expression(problem.state, fast=False).format("best", "value", T=problem.state)


def _titles(problem: WindowsProblem) -> Iterator[str]:
    pooled = "mean of windows" if problem.is_mean else "interpolation" if problem.is_sampled else "maximum of windows"
    yield "convolution of few channels" if problem.weights else pooled
    yield from dict.fromkeys(node.op for node in problem.graph.nodes() if node.is_pointwise)


def _image_index(problem: WindowsProblem, form: Form) -> str:
    """The coordinates of a line of the image, or of a position's channels."""
    leading = [f"at_{dim}" for dim in range(problem.leading)]
    if problem.weights:
        leading[-1] = "channel" if problem.weights.channels > 1 else "0"
    return _vector_of(leading, [f"y_{dim}" for dim in range(problem.rank)], form)


def _result_index(problem: WindowsProblem, form: Form) -> str:
    """The coordinates of a line of the result, or of a position's channels."""
    leading = [f"at_{dim}" for dim in range(problem.leading)]
    return _vector_of(leading, [f"q_{dim}" for dim in range(problem.rank)], form)


def _vector_of(leading: list[str], places: list[str], form: Form) -> str:
    return ", ".join([*leading[:-1], *places, "None"] if form == "channels" else [*leading, *places[:-1], "None"])


def _epilogue_call(problem: WindowsProblem) -> str:
    epilogue = problem.epilogue
    given = ["place.to(Int64)" if parameter.name == "place" else "best" for parameter in epilogue.given]
    if epilogue.is_identity:
        return given[0]
    operands = [operand.loaded(operand.name) for operand in epilogue.operands]
    return epilogue.call(", ".join(given), operands, list(epilogue.coordinates))


def _returned(problem: WindowsProblem, name: str, dtype: str, viewed: bool) -> str:
    code = f"{name}.view(torch.bool)" if dtype == "bool" else name
    return as_image(code, name) if viewed else code


def _allocations(problem: WindowsProblem, passed: dict[str, str], form: Form) -> Iterator[str]:
    """The sizes of the image, those of the positions, and the outputs."""
    whole = [o for o in problem.element.operands if o.shape[-o.rank :] == problem.image_shape]
    names = list(dict.fromkeys(passed[o.name] for o in problem.element.operands))
    shapes = ", ".join(f"{name}.shape" for name in names)
    image = f"{passed[whole[0].name]}.shape" if whole else f"torch.broadcast_shapes({shapes})"
    if not whole:
        ranks = [operand.rank for operand in problem.element.operands]
        image = with_ones_in_front(image, ranks, len(problem.image_shape))
    yield f"image = {image}"
    rank = problem.rank
    positions = [_positions(span, f"image[{dim - rank}]") for dim, span in enumerate(problem.spans)]
    yield f"sizes = ({', '.join(positions)},)"
    yield from positions_check()
    shape = f"*image[:-{rank}], *sizes" if len(problem.image_shape) > rank else "*sizes,"
    if problem.weights:
        weight = passed[problem.weights.operand.name]
        leading = f"image[0], *{weight}.shape[:-1]"
        shape = f"{leading}, math.prod(sizes)"
    like = f"device={names[0]}.device"
    channels = problem.leading - 1
    if form == "channels":
        names_last = dict.fromkeys(passed[o.name] for o in with_channels_last(problem))
        layouts = [f"has_channels_last({name}.shape, {name}.stride())" for name in names_last]
        yield f"is_last = {' and '.join(layouts)}"
    for output in problem.epilogue.outputs:
        dtype = "torch.uint8" if output.dtype == "bool" else f"torch.{output.dtype}"
        dense = f"{output.name} = torch.empty(({shape}), dtype={dtype}, {like})"
        if form != "channels":
            yield dense
            continue
        yield "if is_last:"
        moved = f"*image[:{channels}], *sizes, image[{channels}]"
        yield f"    {output.name} = torch.empty(({moved}), dtype={dtype}, {like}).movedim(-1, {channels})"
        yield "else:"
        yield f"    {dense}"


def _positions(span: Span | Share | Samples, size: str) -> str:
    return span.positions(size) if isinstance(span, Samples) else span.law.size_code(size)


def _checks(problem: WindowsProblem) -> list[str]:
    """Statements that refuse other sizes of what views or constants carry the traced sizes of."""
    graph = problem.graph
    values = tuple(output.inputs[0] if output.op == "reshape" else output for output in graph.outputs)
    checked = replace(graph, outputs=values).checked
    fixed = problem.weights.operand.code.name if problem.weights and not _taps(problem) else ""
    of_weights = {(at, dim) for at, dim in graph.places if problem.arguments[at] == fixed and dim > 0}
    return size_checks(problem.arguments, graph, checked | of_weights)


def _taps(problem: WindowsProblem) -> list[tuple[str, Shape]]:
    """The weights, whose channels and taps are part of the kernel, and those, where they are the argument's own."""
    if problem.weights is None:
        return []
    operand, channels = problem.weights.operand, problem.weights.channels
    seen = (channels, *(span.taps for span in problem.spans if isinstance(span, Span)))
    argument = next(
        a for a, name in zip(problem.graph.arguments, problem.arguments, strict=False) if name == operand.code.name
    )
    is_dense = operand.strides[-2:] in ((math.prod(seen), 1), (0, 1))
    return [(operand.code.name, seen)] if argument.shape[1:] == seen and is_dense else []


def _channels_check(problem: WindowsProblem, passed: dict[str, str]) -> list[str]:
    """Statements that refuse an image of other groups or channels than the weights: places beyond it would be read."""
    if problem.weights is None:
        return []
    weight = passed[problem.weights.operand.name]
    ours, theirs = f"tuple(image[1:-{problem.rank}])", f"(*{weight}.shape[:-2], {problem.weights.channels})"
    told = f"the image has channels {{{ours}}}, and its weights are for {{{theirs}}}"
    return [f"if {ours} != {theirs}:", f'    raise ValueError(f"{told}")']


def match(graph: Graph) -> WindowsPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of a window's kernel."""
    problem = analyse(graph, RESERVED)
    for output in (output for output in graph.outputs if output.op == "reshape"):
        image = (problem.image_shape[0], math.prod(problem.anchors[0].shape[1:-1]), *problem.positions)
        if output.shape != image:
            raise UnmatchedError(f"{output.where} reshapes the positions of windows", operation=output.where)
    return WindowsPlan(graph, problem)
