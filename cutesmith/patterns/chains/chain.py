"""A chain of launches: what each passes on to the later ones, and the file that holds them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cutesmith.patterns.attention.gradient_plan import AttentionGradientPlan
from cutesmith.patterns.attention.plan import AttentionPlan
from cutesmith.patterns.columns.plan import ColumnsPlan
from cutesmith.patterns.configuration import Configuration
from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.elementwise.lanes import may_have_lanes
from cutesmith.patterns.elementwise.plan import ElementwisePlan
from cutesmith.patterns.graph.attributes import Input, Number, Reshaping, Scalar, Sized, TensorCode, View, Viewed
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import LEAVES, Argument, Graph, Node, bytes_of, nodes_of, views_of, with_nodes
from cutesmith.patterns.graph.shapes import Shape, broadcast, dense_strides
from cutesmith.patterns.graph.size_laws import PassedSize, Place, Size, SizeLaw
from cutesmith.patterns.graph.takes import READ_ANYWHERE, aligned_inputs
from cutesmith.patterns.interleaving.plan import InterleavingPlan
from cutesmith.patterns.recurrences.plan import RecurrencesPlan
from cutesmith.patterns.rows.plan import RowsPlan
from cutesmith.patterns.scans.plan import ScansPlan
from cutesmith.patterns.scatters.plan import ScattersPlan
from cutesmith.patterns.selection.plan import SelectionPlan
from cutesmith.patterns.transforms.plan import TransformsPlan
from cutesmith.patterns.windows.plan import WindowsPlan
from cutesmith.patterns.writing.naming import KERNEL_NAME, ViewNames, fresh_name, safe_names
from cutesmith.patterns.writing.noting import noting
from cutesmith.patterns.writing.sections import explained, join_sections
from cutesmith.patterns.writing.templating import broadcast_checks, render_template, returned, size_checks
from cutesmith.runtime.tiling import TiledShape, Tiling

SinglePlan = (
    ElementwisePlan
    | RowsPlan
    | ColumnsPlan
    | ContractionPlan
    | AttentionPlan
    | AttentionGradientPlan
    | InterleavingPlan
    | RecurrencesPlan
    | ScansPlan
    | ScattersPlan
    | SelectionPlan
    | TransformsPlan
    | WindowsPlan
)
"""The plan of one kernel."""
Source = int | SizeLaw
"""What a launch is passed: the place of a value, or a number that follows the sizes of the function's arguments."""

LAUNCHES_OF_TAPE = 4
"""From so many on a call repeats what the first one noted: 1 us of Python a launch, in place of 4 to 40."""
_OF_TAPES = "ALIGNMENT span apart Value Tape TAPES tape launches inputs note math torch".split()


@dataclass(frozen=True)
class Launch:
    """One kernel of a chain, a function `name` in the file; launches of one name share the kernel.

    `sources` are what it is passed: values counted from the function's arguments on, through what the earlier launches
    returned, or numbers. It gives `returns` values.
    """

    name: str
    plan: SinglePlan
    returns: int
    sources: tuple[Source, ...]

    @property
    def takes(self) -> tuple[int, ...]:
        """The places of the values that it is passed."""
        return tuple(source for source in self.sources if isinstance(source, int))

    @property
    def laws(self) -> tuple[SizeLaw, ...]:
        """The numbers that it is passed."""
        return tuple(source for source in self.sources if isinstance(source, SizeLaw))


@dataclass(frozen=True)
class Result:
    """What the function returns: the value in this place, seen through views as `Viewed.views` are."""

    place: int
    views: tuple[View, ...] = ()


@dataclass(frozen=True)
class ChainPlan:
    """A function matched in several launches; the one in place `tuned` is the one whose configurations are tried.

    The others have their best guess for `arch`.
    """

    graph: Graph
    launches: tuple[Launch, ...]
    results: tuple[Result, ...]
    pattern: str
    tuned: int = 0
    arch: str = "sm_90a"

    @property
    def algorithmic_bytes(self) -> int:
        """Bytes that must cross device memory once: inputs read, outputs written, in the traced shapes."""
        return self.graph.moved_bytes

    @property
    def passed_bytes(self) -> int:
        """Bytes that cross device memory for values between launches: written once, and read by each that takes them.

        In the traced shapes. What the function returns is counted where a later launch reads it.
        """
        outputs = [node for launch in self.launches for node in launch.plan.graph.outputs]
        sizes = dict(enumerate(map(bytes_of, outputs), start=len(self.graph.arguments)))
        kept = {result.place for result in self.results}
        read = [sizes.get(place, 0) for launch in self.launches for place in launch.takes]
        return sum(size for place, size in sizes.items() if place not in kept) + sum(read)

    @property
    def algorithmic_flops(self) -> int:
        """One operation for every element of every pointwise node and reduction, two for a product, as traced."""
        return self.graph.flops

    @property
    def tuned_plan(self) -> SinglePlan:
        """The plan of the launch that is tuned."""
        return self.launches[self.tuned].plan

    def configurations(self, arch: str = "sm_90a") -> Sequence[Configuration]:
        """Those of the tuned launch."""
        return self.tuned_plan.configurations(arch)

    def tiled_shape(self) -> TiledShape:
        """That of the tuned launch."""
        return self.tuned_plan.tiled_shape()

    def tiling(self, configuration: Configuration) -> Tiling:
        """That of the tuned launch."""
        return self.tuned_plan.tiling(configuration)  # type: ignore[arg-type]

    def why(self, configuration: Configuration) -> str:
        """Nothing beside what the head of each kernel's section says."""
        return ""

    def render(self, configuration: Configuration) -> str:
        """All kernels, and a `kernel_fn` that launches one after the other."""
        sections: dict[str, str] = {}
        for launch in self.launches:
            if launch.name not in sections:
                sections[launch.name] = self._section(launch, configuration)
        reserved = {*sections, *(_OF_TAPES if self.is_noted else ())}
        names = safe_names([argument.name for argument in self.graph.arguments], reserved)
        body = "\n".join(f"    {line}" for line in self._lines(names))
        if not self.is_noted:
            return f"{join_sections(sections)}\n\ndef kernel_fn({', '.join(names)}):\n{body}\n"
        noted = {name: noting(section) for name, section in sections.items()}
        return join_sections({**noted, KERNEL_NAME: render_template("tape.py.j2", {"names": names, "body": body})})

    @property
    def is_noted(self) -> bool:
        """Whether a call repeats what the first one for such inputs noted; numbers may differ from call to call."""
        return len(self.launches) >= LAUNCHES_OF_TAPE and all(each.kind == "tensor" for each in self.graph.arguments)

    def _section(self, launch: Launch, configuration: Configuration) -> str:
        """Equal launches and all row reductions share the tuned configuration; others have their own best guess."""
        tuned, plan = self.launches[self.tuned], launch.plan
        if not (launch.name == tuned.name or isinstance(plan, RowsPlan) and isinstance(tuned.plan, RowsPlan)):
            configuration = plan.configurations(self.arch)[0]
        return explained(plan.render(configuration), launch.name, plan.why(configuration))  # type: ignore[arg-type]

    def _lines(self, names: list[str]) -> Iterator[str]:
        """The statements of `kernel_fn`: a value that no later launch needs is freed."""
        known, start = list(names), len(names)
        yield from (*size_checks(names, self.graph, self._checked), *broadcast_checks(names, self.graph))
        kept = {result.place for result in self.results}
        for number, launch in enumerate(self.launches):
            places = range(launch.returns) if launch.returns > 1 else [""]
            results = [fresh_name(f"{launch.name}_out{place}", known) for place in places]
            passed = ["note"] if self.is_noted else []
            passed += [known[s] if isinstance(s, int) else s.host_code(known) for s in launch.sources]
            call = f"{launch.name}({', '.join(passed)})"
            places_given = range(len(known), len(known) + launch.returns)
            known += results
            ends = number == len(self.launches) - 1 and self.results == tuple(map(Result, places_given))
            if ends and (launch.returns > 1 or not self.graph.returns_tuple):
                yield f"return {call}"
                return
            yield f"{', '.join(results)} = {call}"
            dead = [
                known[p] for p in sorted(set(launch.takes)) if p >= start and p not in kept | self._read_after[number]
            ]
            if dead:
                yield f"del {', '.join(dead)}"
        views = ViewNames(known)
        seen = [TensorCode.seen(known[result.place], result.views, names) for result in self.results]
        codes = list(map(views.expression, seen))
        yield from views.lines
        yield f"return {returned(codes, as_tuple=self.graph.returns_tuple)}"

    @property
    def _checked(self) -> frozenset[Place]:
        """The places that the chain takes the traced sizes of only; launches check for themselves what else they do."""
        free = all(view.is_proven for result in self.results for view in result.views)
        return self.graph.held if free else self.graph.places

    @cached_property
    def _read_after(self) -> list[set[int]]:
        """For each launch, the places that later ones read."""
        return [set().union(*(later.takes for later in self.launches[n + 1 :])) for n in range(len(self.launches))]


class Chain:
    """A chain that is being built: its launches, and the places of what is known so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.launches, self.known = graph, list[Launch](), len(graph.arguments)

    def add(self, name: str, plan: SinglePlan | ChainPlan, sources: Sequence[Source]) -> list[int]:
        """Appends a plan whose arguments are these sources; returns the places of what it returns."""
        if not isinstance(plan, ChainPlan):
            returns = len(plan.graph.outputs)
            self.launches.append(Launch(name, plan, returns, tuple(sources)))
            self.known += returns
            return list(range(self.known - returns, self.known))
        known = list(sources)
        for launch in plan.launches:
            passed = [known[s] if isinstance(s, int) else _of_sources(s, known) for s in launch.sources]
            inner = launch.name if name == "" else f"{name}_{launch.name}"
            known += self.add(inner, launch.plan, passed)
        places = [known[result.place] for result in plan.results]
        assert all(isinstance(place, int) for place in places) and not any(result.views for result in plan.results)
        return [place for place in places if isinstance(place, int)]


def _of_sources(law: SizeLaw, sources: Sequence[Source]) -> SizeLaw:
    """The law by the places in the whole chain of the arguments whose sizes it follows."""

    def place(argument: int) -> int:
        source = sources[argument]
        assert isinstance(source, int), "a law follows arguments"
        return source

    return law.moved(place)


def chain_of(graph: Graph, launches: Sequence[Launch], pattern: str) -> ChainPlan:
    """The chain whose last launch returns what the function does."""
    first = len(graph.arguments) + sum(launch.returns for launch in launches[:-1])
    results = tuple(Result(first + place) for place in range(launches[-1].returns))
    return ChainPlan(graph, tuple(launches), results, pattern)


def part_of_chain(name: str, graph: Graph, match: Callable[[Graph], SinglePlan]) -> Launch:
    """The launch of a graph whose arguments are the function's and the earlier launches' results.

    It takes only what it reads; what follows the sizes of arguments it takes as numbers.
    """
    part, sources = standing_alone(graph)
    return Launch(name, match(part), len(graph.outputs), sources)


def standing_alone(graph: Graph) -> tuple[Graph, tuple[Source, ...]]:
    """The graph with only the arguments that it reads, and what those are; laws become numbers after them.

    They stand in the order in which they are read, so that equal graphs have them in the same places.
    """
    shapes, start, widths = [argument.sizes for argument in graph.arguments], len(graph.arguments), graph.widths
    graph = _with_needed_sizes(graph)
    laws = {_key(law): law for node in graph.nodes() for law in _laws_of(node)}
    places = {key: start + at for at, key in enumerate(laws)}
    numbered = with_nodes(graph, lambda node: _with_numbers(node, places))
    values = dict.fromkeys(place for node in numbered.nodes() for place in _read(node) if place < start)
    if not any(graph.arguments[place].kind == "tensor" for place in values):  # it makes its values itself, on a device
        values |= dict.fromkeys([place for place, each in enumerate(graph.arguments) if each.kind == "tensor"][:1])
    numbers = [Argument(f"size_{at}", "scalar", *_number(law, shapes)) for at, law in enumerate(laws.values())]
    kept = [*values, *places.values()]
    moved = {place: index for index, place in enumerate(kept)}
    alone = with_nodes(numbered, lambda node: _renumbered(node, moved))
    arguments = tuple((*graph.arguments, *numbers)[place] for place in kept)
    # the chain checks the sizes
    known = frozenset((moved[index], dim) for index, dim in graph.held | graph.checked_before if index in moved)
    alone = replace(alone, arguments=arguments, held=frozenset(), equal=(), most=(), not_ones=(), steps=())
    alone = replace(alone, checked_before=known, widths_before=widths)
    return alone, (*values, *laws.values())


def _with_needed_sizes(graph: Graph) -> Graph:
    """The graph whose nodes know the sizes of their shapes only if an output's are not those of what it reads."""
    values = [output.inputs[0] if output.op == "reshape" else output for output in graph.outputs]
    wanted = {value.shape for value in values}
    pointwise = all(node.is_pointwise or node.op in (*LEAVES, *READ_ANYWHERE) for node in nodes_of(tuple(values)))
    if len(wanted) > 1 or not pointwise:
        wanted = set()
    elif not may_have_lanes(graph, values[0]):
        wanted -= {broadcast([node.shape for node in aligned_inputs(graph)])}
    met = {node.op for node in graph.nodes()}
    kept = {"sort", "scatter", *(["take"] if "scatter" in met else []), *(["transform"] if "take" in met else [])}

    def needed(node: Node) -> Node:
        return node if not node.sizes or node.op in kept or node.shape in wanted else replace(node, sizes=())

    return with_nodes(graph, needed)


def _key(law: SizeLaw) -> tuple[SizeLaw, bool]:
    """Tells the half of a size as an integer from that as a float, which are equal."""
    return law, law.is_size


def _number(law: SizeLaw, shapes: Sequence[Shape]) -> tuple[str, Shape, Shape, Number]:
    """The fields of an argument after its kind."""
    return "int" if law.is_size else "float", (), (), law.value(shapes)


def _sizes_of(node: Node) -> tuple[Size, ...]:
    """Those in the views that `kernel_fn` makes of a value, and in its shape."""
    return (*(size for view in views_of(node) for size in view.sizes), *node.sizes)


def _laws_of(node: Node) -> Iterator[SizeLaw]:
    if node.op == "sized":
        yield Sized.of(node).law
    for size in _sizes_of(node):
        if isinstance(size, SizeLaw) and size.terms:
            yield size


def _with_numbers(node: Node, places: Mapping[tuple[SizeLaw, bool], int]) -> Node:
    if node.op == "sized":
        sized = Sized.of(node)
        return replace(node, op="scalar", attrs=Scalar(places[_key(sized.law)], sized.size))

    def number(size: Size) -> Size:
        return PassedSize(places[_key(size)]) if isinstance(size, SizeLaw) and size.terms else size

    return _with_sizes(node, number)


def _with_sizes(node: Node, change: Callable[[Size], Size]) -> Node:
    """The node with other sizes in its shape and in its views."""
    attrs, sizes = node.attrs, tuple(map(change, node.sizes))
    if isinstance(attrs, Viewed):
        attrs = replace(attrs, views=tuple(view.with_sizes(change) for view in attrs.views))
    elif isinstance(attrs, Reshaping):
        attrs = Reshaping(attrs.view.with_sizes(change))
    return node if (attrs, sizes) == (node.attrs, node.sizes) else replace(node, attrs=attrs, sizes=sizes)


def _read(node: Node) -> Iterator[int]:
    """The places of the arguments that a node reads."""
    if isinstance(node.attrs, Input | Scalar):
        yield node.attrs.index
    yield from (size.index for size in _sizes_of(node) if isinstance(size, PassedSize))


def _renumbered(node: Node, moved: Mapping[int, int]) -> Node:
    if isinstance(node.attrs, Input | Scalar):
        node = replace(node, attrs=replace(node.attrs, index=moved[node.attrs.index]))
    return _with_sizes(node, lambda size: PassedSize(moved[size.index]) if isinstance(size, PassedSize) else size)


def returning(graph: Graph, outputs: Sequence[Node]) -> Graph:
    """The graph with other outputs, all dense."""
    strides = tuple(dense_strides(node.shape) for node in outputs)
    return replace(graph, outputs=tuple(outputs), output_strides=strides, returns_tuple=len(outputs) > 1)


def passed_on(graph: Graph, outputs: Sequence[Node], stem: str) -> tuple[Graph, list[Node]]:
    """The graph with an argument for each output of a launch, and the nodes that read those."""
    build, start = GraphBuilder(), len(graph.arguments)
    passed = [
        Argument(f"{stem}_{place}", "tensor", node.dtype, node.shape, dense_strides(node.shape))
        for place, node in enumerate(outputs)
    ]
    inputs = [build.argument(start + place, argument) for place, argument in enumerate(passed)]
    return replace(graph, arguments=(*graph.arguments, *passed)), inputs
