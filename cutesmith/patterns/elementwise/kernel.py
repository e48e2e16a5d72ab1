"""The text of an elementwise kernel, whatever configuration it is rendered in: what its templates take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from cutesmith.patterns.graph.attributes import Input, Reshaping, Scalar, Sized
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, STORAGE_TYPE, stored_dtype, stored_types
from cutesmith.patterns.graph.nodes import Graph, Node
from cutesmith.patterns.graph.shapes import Shape, broadcast, is_dense
from cutesmith.patterns.graph.size_laws import Size, size_code
from cutesmith.patterns.graph.takes import aligned_inputs, taken_inputs
from cutesmith.patterns.writing.expressions import Emitter, convert, is_fast
from cutesmith.patterns.writing.naming import SHARED_NAMES, Parameter, ViewNames, as_stored, fresh_name, safe_names
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS
from cutesmith.patterns.writing.templating import launcher_key, returned, size_checks

_OWN = "first whole count f r m LAUNCHERS THREADS VECTOR VECTORS INPUTS TAKEN REACH REUSE_BYTES"
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""


@dataclass(frozen=True)
class Tensor:
    """A tensor parameter of the kernel: a (viewed) argument or an output."""

    name: str
    dtype: str
    node: Node

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.dtype]

    @property
    def computed(self) -> str:
        """DSL type in registers: what the kernel computes with; bool stays in bytes until it is used."""
        return "Uint8" if self.dtype == "bool" else COMPUTE_TYPE[self.dtype]


@dataclass(frozen=True)
class ElementwiseKernel:
    """Statements and names for the places of a template.

    `has_tiles`: a thread has a tile of vectors, as an input is contiguous along another dimension than the result, or
    (`pairs`) as each input is smaller than the result, and read for many elements.
    """

    title: str
    arguments: list[str]
    inputs: list[Tensor]
    outputs: list[Tensor]
    types: dict[str, str]
    scalars: list[Parameter]
    helpers: list[str]
    body: list[str]
    has_tiles: bool
    pairs: bool
    checks: list[str]
    whole: str
    views: list[str]
    allocations: list[str]
    key: list[str]
    returns: str


def value_of(output: Node) -> Node:
    """What an output holds before it is reshaped at the very end."""
    return output.inputs[0] if output.op == "reshape" else output


class ElementwiseWriter:
    """Writes the kernel of a graph of pointwise operations. Raises UnmatchedError for one that has no DSL form."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.arguments = safe_names([argument.name for argument in graph.arguments], RESERVED)
        self.shape = value_of(graph.outputs[0]).shape
        self.views = ViewNames({*self.arguments, *RESERVED})
        self.inputs: list[Tensor] = []
        aligned, taken = self.read()
        for node in aligned:
            self.inputs.append(self._input(node))
        self.taken = [self._input(node) for node in taken]
        self.outputs = self._outputs()
        self.helpers: set[str] = set()

    def kernel(self) -> ElementwiseKernel:
        """The kernel."""
        body = self.body()
        titles = dict.fromkeys(node.op for node in self.graph.nodes() if node.is_pointwise)
        return ElementwiseKernel(
            title=", ".join(titles) or "copy",
            arguments=self.arguments,
            inputs=self.inputs,
            outputs=self.outputs,
            types=stored_types(t.dtype for t in (*self.taken, *self.inputs, *self.outputs)),
            scalars=self.parameters(),
            helpers=[SPECIAL_FUNCTIONS[name].strip("\n") for name in sorted(self.helpers)],
            body=body,
            has_tiles=self._transposes or self._pairs,
            pairs=self._pairs and not self._transposes,
            checks=self._checks(),
            whole=self._whole.name if self._whole else "",
            views=self.views.lines + self.laws(),
            allocations=[self._allocation(output) for output in self.outputs],
            key=self.key(),
            returns=returned([self._returned(o) for o in self.outputs], as_tuple=self.graph.returns_tuple),
        )

    def read(self) -> tuple[list[Node], list[Node]]:
        """The arguments that broadcast to the result, and those that are read at computed places."""
        return aligned_inputs(self.graph), taken_inputs(self.graph)

    def key(self) -> list[str]:
        """What tells calls apart that need kernels of their own."""
        read = [tensor.name for tensor in (*self.taken, *self.inputs)]
        return [*launcher_key(read, sized=self._sized), *self._unread_types()]

    # Parameters

    def _unread_types(self) -> list[str]:
        """Of tensors that decide about the result, but of which no element is read."""
        read = {Input.of(tensor.node).index for tensor in (*self.taken, *self.inputs)}
        named = enumerate(zip(self.arguments, self.graph.arguments, strict=True))
        return [f"{name}.dtype" for at, (name, each) in named if each.kind == "tensor" and at not in read]

    def _input(self, node: Node) -> Tensor:
        argument = self.arguments[Input.of(node).index]
        code = as_stored(Input.of(node).code(self.arguments), node.dtype)
        is_own = not code.steps and argument not in {tensor.name for tensor in self.inputs}
        return Tensor(argument if is_own else self.views.another(code, f"{argument}_view"), node.dtype, node)

    def _outputs(self) -> list[Tensor]:
        several = len(self.graph.outputs) > 1
        taken = {*self.arguments, *RESERVED, *(tensor.name for tensor in (*self.taken, *self.inputs))}
        stems = [f"out_{place}" if several else "out" for place in range(len(self.graph.outputs))]
        outputs = zip(stems, self.graph.outputs, strict=True)
        return [Tensor(fresh_name(stem, taken), node.dtype, node) for stem, node in outputs]

    @cached_property
    def scalar_types(self) -> dict[int, str]:
        """Argument index → DSL type of each number that the kernel takes; Float64 when any use needs it."""
        kinds: dict[int, str] = {}
        for node in self.graph.nodes():
            if node.op == "scalar":
                kind, index = COMPUTE_TYPE[node.dtype], Scalar.of(node).index
                kinds[index] = "Float64" if "Float64" in (kind, kinds.get(index)) else kind
        return dict(sorted(kinds.items()))

    @cached_property
    def sized(self) -> dict[int, str]:
        """The names of the numbers that follow sizes, by node; the host computes them in every call."""
        nodes = [node for node in self.graph.nodes() if node.op == "sized"]
        taken = {*self.arguments, *RESERVED, *(tensor.name for tensor in (*self.taken, *self.inputs, *self.outputs))}
        return {id(node): fresh_name(f"size_{place}", taken) for place, node in enumerate(nodes)}

    def parameters(self) -> list[Parameter]:
        """The numbers that the kernel takes."""
        numbers = [Parameter(self.arguments[index], kind) for index, kind in self.scalar_types.items()]
        nodes = [node for node in self.graph.nodes() if node.op == "sized"]
        return numbers + [Parameter(self.sized[id(node)], COMPUTE_TYPE[node.dtype]) for node in nodes]

    def laws(self) -> list[str]:
        """Statements of `kernel_fn` that compute the numbers that follow sizes."""
        nodes = [node for node in self.graph.nodes() if node.op == "sized"]
        return [f"{self.sized[id(node)]} = {Sized.of(node).law.host_code(self.arguments)}" for node in nodes]

    # The element's statements

    def body(self) -> list[str]:
        """The statements of an element."""
        return self.stores(Emitter(self._leaf, fast=is_fast(self.graph), helpers=self.helpers))

    def stores(self, emitter: Emitter) -> list[str]:
        """The statements that compute an element of each output."""
        stores = [self.store(emitter, output, value_of(output.node), "v") for output in self.outputs]
        return [*emitter.lines, *stores]

    def store(self, emitter: Emitter, output: Tensor, value: Node, at: str) -> str:
        """The statement that keeps an element of an output, once those are emitted that compute it."""
        code, source = emitter.value(value), COMPUTE_TYPE[value.dtype]
        held = "Int32" if output.dtype == "bool" else output.computed
        return f"f_{output.name}[{at}] = {code if source == held else f'({convert(code, source, held)})'}"

    def _leaf(self, node: Node) -> str | None:
        if node.op == "input":
            return self.element(node, "v * plan.steps[{}]")
        return self.number(node)

    def element(self, node: Node, at: str) -> str:
        """An element of an aligned input's vector; `at` says which of them, {} being the input's place."""
        place = next(at for at, tensor in enumerate(self.inputs) if tensor.node is node)
        name = f"v_{self.inputs[place].name}[{at.format(place)}]"
        return f"({name} != 0)" if node.dtype == "bool" else name

    def number(self, node: Node) -> str | None:
        """A number that the kernel takes."""
        if node.op == "scalar":
            index = Scalar.of(node).index
            return convert(self.arguments[index], self.scalar_types[index], COMPUTE_TYPE[node.dtype])
        return self.sized[id(node)] if node.op == "sized" else None

    @property
    def _transposes(self) -> bool:
        return any(_is_turned(tensor.node) for tensor in self.inputs)

    @property
    def _pairs(self) -> bool:
        smaller = (math.prod(tensor.node.shape) < math.prod(self.shape) for tensor in self.inputs)
        return bool(self.inputs) and all(smaller)

    # kernel_fn

    @cached_property
    def _whole(self) -> Tensor | None:
        """An input of the result's shape; one that is contiguous where there is one."""
        whole = [tensor for tensor in self.inputs if tensor.node.shape == self.shape]
        return min(whole, key=lambda t: not is_dense(t.node.shape, Input.of(t.node).stride), default=None)

    def _shape_code(self) -> str:
        if self._whole is not None:
            return f"{self._whole.name}.shape"
        shapes = ", ".join(f"{tensor.name}.shape" for tensor in self.inputs)
        if self._read_shape == self.shape:
            return f"torch.broadcast_shapes({shapes})"
        sizes = [size_code(size, self.arguments) for size in self._sizes or self.shape]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    @cached_property
    def _read_shape(self) -> Shape:
        """What the inputs broadcast to."""
        return broadcast([tensor.node.shape for tensor in self.inputs])

    @property
    def _sizes(self) -> tuple[Size, ...]:
        """Those of the result, where no input has its shape; nothing where they are known as traced only."""
        sizes = value_of(self.graph.outputs[0]).sizes
        return () if any(isinstance(size, int) for size in sizes) else sizes

    @property
    def _sized(self) -> list[str]:
        """An output whose shape no input gives, where there is one."""
        return [self.outputs[0].name] if self._sizes else []

    def _allocation(self, output: Tensor) -> str:
        dtype = f"torch.{stored_dtype(output.dtype)}"
        whole = self._whole
        if whole is not None and not self.taken and output.node.op != "reshape":
            same = "" if whole.dtype == output.dtype else f", dtype={dtype}"
            order = ", memory_format=torch.contiguous_format" if self._is_contiguous(output) else ""
            return f"{output.name} = torch.empty_like({whole.name}{same}{order})"
        known = [tensor.name for tensor in (*self.inputs, *self.taken)]
        known += [name for name, each in zip(self.arguments, self.graph.arguments) if each.kind == "tensor"]
        device = f"{known[0]}.device"
        return f"{output.name} = torch.empty({self._shape_code()}, dtype={dtype}, device={device})"

    def _is_contiguous(self, output: Tensor) -> bool:
        """Whether PyTorch's result was; where it was not, the result keeps the order of the input's dimensions."""
        strides = self.graph.output_strides[self.outputs.index(output)] if self.graph.output_strides else ()
        return is_dense(output.node.shape, strides)

    def _checks(self) -> list[str]:
        """Statements that refuse other sizes of arguments whose shape is part of the kernel."""
        places = self.graph.checked
        if not (self._read_shape == self.shape or bool(self._sizes)):
            places = self.graph.places
        return size_checks(self.arguments, self.graph, places)

    def _returned(self, output: Tensor) -> str:
        code = f"{output.name}.view(torch.bool)" if output.dtype == "bool" else output.name
        return Reshaping.of(output.node).view.code(code, self.arguments) if output.node.op == "reshape" else code


def _is_turned(node: Node) -> bool:
    """Whether elements side by side in memory are not along the last dimension that has some."""
    steps = [step for size, step in zip(node.shape, Input.of(node).stride, strict=True) if size != 1]
    return len(steps) > 1 and steps[-1] > 1 and 1 in steps
