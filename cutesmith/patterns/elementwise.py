"""The elementwise pattern: any graph of pointwise operations over inputs that broadcast to the outputs' shape.

Every thread loads a few 16-byte vectors of each input, all before the first use, computes in registers and stores. When
all tensors are dense in the same order the kernel sees one flat dimension of free length, with a predicated tail;
otherwise shapes and strides are known when compiling, dimensions are merged as far as all tensors allow, and the
innermost one is vectorised where the tensors have stride 1 (a broadcast value is loaded once for the vector). Where a
tensor as large as the L2 cache is shared by all of the outermost dimension, the blocks that share it run side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, ITEM_BYTES, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Input, Iota, Node, Scalar, Sized
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.writing.expressions import Emitter, convert, is_fast
from cutesmith.patterns.writing.naming import fresh_name, safe_names
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS
from cutesmith.patterns.writing.templating import render_template
from cutesmith.runtime.tiling import Problem, Tiling

_IMPORTED = "torch cutlass cute math functools NamedTuple const_expr range_constexpr"
_TYPES = "BFloat16 Boolean Float16 Float32 Float64 Int8 Int16 Int32 Int64 Uint8"
_USED = "plan layouts stream key found launch thread block first whole count at c v element f r m"
_DEFINED = "kernel_fn reference_fn get_inputs specialise Plan TYPES LAUNCHERS THREADS VECTOR VECTORS INPUTS REUSE_BYTES"
RESERVED = frozenset(" ".join((_IMPORTED, _TYPES, _USED, _DEFINED, *SPECIAL_FUNCTIONS)).split())
"""Names that an argument of the problem may not have in the generated kernel."""

VECTOR_BYTES = 16
GUESSES = ((128, 2), (128, 1), (256, 1), (256, 2), (128, 4), (256, 4), (512, 1))
"""(threads a block, vectors a thread), by speed on an H200 (bf16, 537 MB): 128 x 2 takes 128.8 us for GELU where a copy
takes 128.6; with a broadcast bias 128 x 1 does (128.3 us), and 4 vectors a thread are 15 % slower."""


@dataclass(frozen=True)
class ElementwisePlan:
    """A matched pointwise graph, ready to be rendered in any of its configurations."""

    graph: Graph
    pattern: str = "elementwise"

    @property
    def algorithmic_bytes(self) -> int:
        """Bytes that must cross device memory once: used inputs read, outputs written, in the traced shapes."""
        read: dict[int, int] = {}
        for node in (node for node in self.graph.nodes() if node.op == "input"):
            index = Input.of(node).index
            whole = math.prod(self.graph.arguments[index].shape)
            read[index] = min(whole, read.get(index, 0) + math.prod(node.shape))
        inputs = sum(count * ITEM_BYTES[self.graph.arguments[index].dtype] for index, count in read.items())
        return inputs + sum(math.prod(node.shape) * ITEM_BYTES[node.dtype] for node in self.graph.outputs)

    @property
    def algorithmic_flops(self) -> int:
        """One operation for every element of every pointwise node, in the traced shapes."""
        return self.graph.flops

    def configurations(self, arch: str = "sm_90a") -> list[dict[str, Any]]:
        """Threads a block, elements a vector and vectors a thread, the best guess first."""
        sizes = [ITEM_BYTES[node.dtype] for node in self._full_size_nodes()]
        widest = min(VECTOR_BYTES // min(sizes), 2 * VECTOR_BYTES // max(sizes))
        guesses = [{"threads": threads, "vector": widest, "vectors": vectors} for threads, vectors in GUESSES]
        if max(sizes) > min(sizes):
            narrow = VECTOR_BYTES // max(sizes)
            guesses += [{"threads": 256, "vector": narrow, "vectors": vectors} for vectors in (2, 4)]
        return guesses

    def problem(self) -> Problem:
        """All elements in one dimension, whose edge is guarded."""
        sizes = [ITEM_BYTES[node.dtype] for node in self._full_size_nodes()]
        return Problem(shape=(math.prod(value_of(self.graph.outputs[0]).shape),), element_bytes=min(sizes))

    def tiling(self, configuration: dict[str, Any], section: str) -> Tiling:
        """Vectors of neighbouring elements over the threads of a block."""
        threads, vector = configuration["threads"], configuration["vector"]
        tile = (threads * vector * configuration["vectors"],)
        return Tiling(threads=threads, tile=tile, vector=vector, settings=dict(configuration))

    def _full_size_nodes(self) -> list[Node]:
        shape = value_of(self.graph.outputs[0]).shape
        inputs = [node for node in self.graph.nodes() if node.op == "input" and node.shape == shape]
        return [*inputs, *self.graph.outputs]

    def render(self, configuration: dict[str, Any]) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        return render_template("elementwise.py.j2", _Renderer(self.graph, configuration).context())


def value_of(output: Node) -> Node:
    """What an output holds before it is reshaped at the very end."""
    return output.inputs[0] if output.op == "reshape" else output


def match(graph: Graph, arch: str = "sm_90a") -> ElementwisePlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not pointwise."""
    for node in graph.nodes():
        reshaped_output = node.op == "reshape" and any(node is output for output in graph.outputs)
        if not (node.is_pointwise or node.op in LEAVES or reshaped_output):
            raise UnmatchedError(f"{node.where} ({node.op}) is not element-wise", operation=node.where)
    shapes = [value_of(node).shape for node in graph.outputs]
    if len(set(shapes)) > 1:
        raise UnmatchedError(f"the outputs have different shapes: {', '.join(map(str, shapes))}", operation="outputs")
    if not any(node.op == "input" for node in graph.nodes()):
        raise UnmatchedError("no argument tensor takes part in the result", operation="outputs")
    plan = ElementwisePlan(graph)
    plan.render(plan.configurations(arch)[0])
    return plan


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


class _Renderer:
    """Turns a graph into what the template needs."""

    def __init__(self, graph: Graph, configuration: dict[str, Any]) -> None:
        self.graph, self.configuration = graph, configuration
        self.arguments = safe_names([argument.name for argument in graph.arguments], RESERVED)
        self.shape = value_of(graph.outputs[0]).shape
        self.views: list[str] = []
        self.inputs: list[Tensor] = []
        for node in graph.nodes():
            if node.op == "input":
                self.inputs.append(self._input(node))
        self.outputs = self._outputs()
        self.helpers: set[str] = set()

    def context(self) -> dict[str, Any]:
        """The template's names."""
        body = self._body()
        return {
            "title": self._title(),
            "c": self.configuration,
            "arguments": self.arguments,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "scalars": self._scalars(),
            "helpers": [SPECIAL_FUNCTIONS[name].strip("\n") for name in sorted(self.helpers)],
            "body": body,
            "coordinates": [(dim, math.prod(self.shape[dim + 1 :]), self.shape[dim]) for dim in self.coordinates],
            "checks": self._checks(),
            "views": self.views + self._laws(),
            "allocations": [self._allocation(output) for output in self.outputs],
            "key": self._key(),
            "returns": self._returns(),
        }

    def _title(self) -> str:
        names = dict.fromkeys(node.op for node in self.graph.nodes() if node.is_pointwise)
        return ", ".join(names) or "copy"

    # Parameters

    def _input(self, node: Node) -> Tensor:
        argument = self.arguments[Input.of(node).index]
        code = Input.of(node).code(argument)
        code = f"{code}.view(torch.uint8)" if node.dtype == "bool" else code
        if code == argument:
            return Tensor(argument, node.dtype, node)
        taken = {*self.arguments, *RESERVED, *(tensor.name for tensor in self.inputs)}
        name = fresh_name(f"{argument}_view", taken)
        self.views.append(f"{name} = {code}")
        return Tensor(name, node.dtype, node)

    def _outputs(self) -> list[Tensor]:
        several = len(self.graph.outputs) > 1
        taken = {*self.arguments, *RESERVED, *(tensor.name for tensor in self.inputs)}
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
        taken = {*self.arguments, *RESERVED, *(tensor.name for tensor in (*self.inputs, *self.outputs))}
        return {id(node): fresh_name(f"size_{place}", taken) for place, node in enumerate(nodes)}

    def _scalars(self) -> list[dict[str, str]]:
        numbers = [{"name": self.arguments[index], "type": kind} for index, kind in self.scalar_types.items()]
        nodes = [node for node in self.graph.nodes() if node.op == "sized"]
        return numbers + [{"name": self.sized[id(node)], "type": COMPUTE_TYPE[node.dtype]} for node in nodes]

    def _laws(self) -> list[str]:
        """Statements of `kernel_fn` that compute the numbers that follow sizes."""
        nodes = [node for node in self.graph.nodes() if node.op == "sized"]
        return [f"{self.sized[id(node)]} = {Sized.of(node).law.host_code(self.arguments)}" for node in nodes]

    # The element's statements

    @cached_property
    def coordinates(self) -> list[int]:
        """Dimensions of the result whose coordinate some value depends on."""
        rank = len(self.shape)
        iotas = [node for node in self.graph.nodes() if node.op == "iota" and node.shape[Iota.of(node).dim] != 1]
        return sorted({Iota.of(node).dim + rank - len(node.shape) for node in iotas})

    def _body(self) -> list[str]:
        emitter = Emitter(self._leaf, fast=is_fast(self.graph), names={}, helpers=self.helpers)
        stores = []
        for output in self.outputs:
            code = emitter.value(value_of(output.node))
            source = COMPUTE_TYPE[value_of(output.node).dtype]
            stored = f"({convert(code, source, 'Int32')})" if output.dtype == "bool" else code
            stores.append(f"f_{output.name}[v] = {stored}")
        return [*emitter.lines, *stores]

    def _leaf(self, node: Node) -> str | None:
        if node.op == "input":
            place = next(at for at, tensor in enumerate(self.inputs) if tensor.node is node)
            name = f"v_{self.inputs[place].name}[v * plan.steps[{place}]]"
            return f"({name} != 0)" if node.dtype == "bool" else name
        if node.op == "scalar":
            index = Scalar.of(node).index
            return convert(self.arguments[index], self.scalar_types[index], COMPUTE_TYPE[node.dtype])
        if node.op == "sized":
            return self.sized[id(node)]
        if node.op == "iota":
            dim = Iota.of(node).dim
            return f"coordinate_{dim + len(self.shape) - len(node.shape)}" if node.shape[dim] != 1 else "Int64(0)"
        return None

    # kernel_fn

    @cached_property
    def _whole(self) -> Tensor | None:
        """An input of the result's shape; one that is contiguous where there is one."""
        whole = [tensor for tensor in self.inputs if tensor.node.shape == self.shape]
        return min(whole, key=lambda tensor: -_contiguous(tensor.node), default=None)

    def _shape_code(self) -> str:
        if self._whole is not None:
            return f"{self._whole.name}.shape"
        shapes = ", ".join(f"{tensor.name}.shape" for tensor in self.inputs)
        common = broadcast([tensor.node.shape for tensor in self.inputs])
        return f"torch.broadcast_shapes({shapes})" if common == self.shape else repr(self.shape)

    def _allocation(self, output: Tensor) -> str:
        dtype = "torch.uint8" if output.dtype == "bool" else f"torch.{output.dtype}"
        whole = self._whole
        if whole is not None and not self.coordinates and output.node.op != "reshape":
            same = "" if whole.dtype == output.dtype else f", dtype={dtype}"
            order = ", memory_format=torch.contiguous_format" if self._is_contiguous(output) else ""
            return f"{output.name} = torch.empty_like({whole.name}{same}{order})"
        device = f"{self.inputs[0].name}.device"
        return f"{output.name} = torch.empty({self._shape_code()}, dtype={dtype}, device={device})"

    def _is_contiguous(self, output: Tensor) -> bool:
        """Whether PyTorch's result was; where it was not, the result keeps the order of the input's dimensions."""
        strides = self.graph.output_strides[self.outputs.index(output)] if self.graph.output_strides else ()
        steps = [math.prod(output.node.shape[axis + 1 :]) for axis in range(len(output.node.shape))]
        sized = zip(strides, steps, output.node.shape, strict=False)
        return all(stride == step for stride, step, size in sized if size != 1)

    def _checks(self) -> list[tuple[str, tuple[int, ...]]]:
        """Arguments whose shape is part of the kernel: views, coordinates and reshapes carry the traced sizes."""
        fixed = self.graph.fixed_shapes or bool(self.coordinates) or self._shape_code() == repr(self.shape)
        fixed = fixed or any(node.op == "reshape" for node in self.graph.outputs)
        sized = {Input.of(tensor.node).index for tensor in self.inputs} if fixed else set()
        return [(self.arguments[index], self.graph.arguments[index].shape) for index in sorted(sized)]

    def _key(self) -> list[str]:
        parts = [f"{t.name}.{part}" for t in self.inputs for part in ("shape", "stride()", "dtype")]
        pointers = " | ".join(f"{tensor.name}.data_ptr()" for tensor in self.inputs)
        return [*parts, f"({pointers}) & 15"]

    def _returns(self) -> str:
        codes = [self._returned(output) for output in self.outputs]
        if not self.graph.returns_tuple:
            return codes[0]
        return f"({', '.join(codes)}{',' if len(codes) == 1 else ''})"

    def _returned(self, output: Tensor) -> str:
        code = f"{output.name}.view(torch.bool)" if output.dtype == "bool" else output.name
        return f"{code}.view({output.node.shape!r})" if output.node.op == "reshape" else code


def _contiguous(node: Node) -> bool:
    expected = 1
    for size, stride in zip(reversed(node.shape), reversed(Input.of(node).stride), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
