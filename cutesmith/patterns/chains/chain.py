"""A chain of launches: what each passes on to the later ones, and the file that holds them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cutesmith.patterns.elementwise.plan import ElementwisePlan
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Argument, Graph, Input, Node, Scalar, Sized, with_values
from cutesmith.patterns.graph.shapes import dense_strides
from cutesmith.patterns.graph.size_laws import SizeLaw
from cutesmith.patterns.pattern_plan import RowsConfiguration
from cutesmith.patterns.rows.plan import RowsPlan
from cutesmith.patterns.writing.naming import fresh_name, safe_names
from cutesmith.patterns.writing.sections import join_sections
from cutesmith.runtime.tiling import TiledShape, Tiling


@dataclass(frozen=True)
class Launch:
    """One kernel of a chain, a function `name` in the file.

    Of the function's arguments and what the earlier launches returned it `takes` those in these places, then `laws` as
    numbers.
    """

    name: str
    plan: ElementwisePlan | RowsPlan
    returns: int
    takes: tuple[int, ...]
    laws: tuple[SizeLaw, ...]


@dataclass(frozen=True)
class ChainPlan:
    """A function matched in several launches, of which the first reads the tensors and is the one that is tuned."""

    graph: Graph
    launches: tuple[Launch, ...]
    pattern: str

    @property
    def algorithmic_bytes(self) -> int:
        """Bytes that must cross device memory once: inputs read, outputs written, in the traced shapes."""
        return self.graph.moved_bytes

    @property
    def algorithmic_flops(self) -> int:
        """One operation for every element of every pointwise node and reduction, in the traced shapes."""
        return sum(launch.plan.algorithmic_flops for launch in self.launches)

    @property
    def tuned(self) -> RowsPlan:
        """The plan of the first launch."""
        plan = self.launches[0].plan
        assert isinstance(plan, RowsPlan)
        return plan

    def configurations(self, arch: str = "sm_90a") -> Sequence[RowsConfiguration]:
        """Those of the first launch."""
        return self.tuned.configurations(arch)

    def tiled_shape(self) -> TiledShape:
        """That of the first launch."""
        return self.tuned.tiled_shape()

    def tiling(self, configuration: RowsConfiguration) -> Tiling:
        """That of the first launch."""
        return self.tuned.tiling(configuration)

    def render(self, configuration: RowsConfiguration) -> str:
        """All kernels, and a `kernel_fn` that launches one after the other."""
        sections = {}
        for name, plan in ((launch.name, launch.plan) for launch in self.launches):
            if isinstance(plan, RowsPlan):  # all row reductions share a configuration
                sections[name] = plan.render(configuration)
            else:  # its own best guess, on every architecture
                sections[name] = plan.render(plan.configurations()[0])
        names = safe_names([a.name for a in self.graph.arguments], frozenset(sections))
        body = "\n".join(f"    {line}" for line in self._calls(names))
        return f"{join_sections(sections)}\n\ndef kernel_fn({', '.join(names)}):\n{body}\n"

    def _calls(self, names: list[str]) -> list[str]:
        lines, known = [], list(names)
        for launch in self.launches:
            passed = [*(known[place] for place in launch.takes), *(law.host_code(names) for law in launch.laws)]
            places = range(launch.returns) if launch.returns > 1 else [""]
            results = [fresh_name(f"{launch.name}_out{place}", known) for place in places]
            lines.append((", ".join(results), f"{launch.name}({', '.join(passed)})"))
            known += results
        *earlier, (_, last) = lines
        return [*(f"{results} = {call}" for results, call in earlier), f"return {last}"]


def part_of_chain(name: str, graph: Graph, match: Callable[[Graph], ElementwisePlan | RowsPlan]) -> Launch:
    """The launch of a graph whose arguments are the function's and the earlier launches' results.

    It takes only what it reads; what follows the sizes of arguments it takes as numbers.
    """
    sized = [node for node in graph.nodes() if node.op == "sized"]
    known, numbered = len(graph.arguments), _with_sizes_as_numbers(graph, sized)
    read = sorted({_read(node).index for node in numbered.nodes() if node.op in ("input", "scalar")})
    takes = tuple(place for place in read if place < known)
    laws = tuple(Sized.of(node).law for node in sized)
    return Launch(name, match(_of_arguments(numbered, read)), len(graph.outputs), takes, laws)


def _with_sizes_as_numbers(graph: Graph, sized: Sequence[Node]) -> Graph:
    start, values = len(graph.arguments), [Sized.of(node).value for node in sized]
    numbers = [Argument(f"size_{place}", "scalar", "float", value=value) for place, value in enumerate(values)]
    scalars = {id(node): replace(node, op="scalar", attrs=Scalar(start + place)) for place, node in enumerate(sized)}
    return replace(with_values(graph, scalars), arguments=(*graph.arguments, *numbers))


def _of_arguments(graph: Graph, places: Sequence[int]) -> Graph:
    """The graph with only the arguments in these places."""
    moved = {place: index for index, place in enumerate(places)}
    leaves = [(node, _read(node)) for node in graph.nodes() if node.op in ("input", "scalar")]
    renumbered = {id(node): replace(node, attrs=replace(read, index=moved[read.index])) for node, read in leaves}
    return replace(with_values(graph, renumbered), arguments=tuple(graph.arguments[place] for place in places))


def _read(leaf: Node) -> Input | Scalar:
    """What an `input` or `scalar` reads: the argument in place `index`."""
    return Input.of(leaf) if leaf.op == "input" else Scalar.of(leaf)


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
