"""What a product's kernel does with each sum before it stores it: a plain function of the sum and of what it reads.

Every template of a contraction renders the same data: it loads one scalar of each operand at (batch, m, n), calls
`epilogue(acc, …)` and stores what that returns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Input, Iota, Scalar, Sized, TensorCode
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of
from cutesmith.patterns.graph.results import Result, result_of
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.takes import READ_ANYWHERE
from cutesmith.patterns.writing.expressions import Emitter, convert, is_fast
from cutesmith.patterns.writing.naming import Parameter, as_stored, fresh_name
from cutesmith.patterns.writing.reading import searched, taken
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS


@dataclass(frozen=True)
class Passed:
    """A tensor that a device function has a scalar of; `code` is the viewed argument, such as bias.unsqueeze(0)."""

    name: str
    code: TensorCode
    dtype: str

    @property
    def passed(self) -> TensorCode:
        """What `kernel_fn` passes to the launch; bool travels as bytes."""
        return as_stored(self.code, self.dtype)

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.dtype]

    @property
    def computed(self) -> str:
        """DSL type of the scalar that the function takes."""
        return COMPUTE_TYPE[self.dtype]

    def loaded(self, code: str) -> str:
        """`code`, a scalar of the type in memory, as the function takes it."""
        return convert(code, self.storage, self.computed)


@dataclass(frozen=True)
class Operand(Passed):
    """A tensor that the epilogue reads: one scalar `name` for each element of the result.

    `shape` and `strides` (in elements, as traced) are over the result's dimensions (…, m, n): size 1 and stride 0 where
    it is broadcast. `rank` is how many of those, from the right, the tensor has.
    """

    shape: Shape
    strides: Shape
    rank: int

    @property
    def varies(self) -> tuple[bool, ...]:
        """Over which of (…, m, n) it changes; a size of 1 in the traced shapes counts as broadcast."""
        return tuple(size != 1 for size in self.shape)


@dataclass(frozen=True)
class Output:
    """A tensor of the result's shape: what the epilogue returns for it is a scalar of the DSL type `computed`.

    `viewed` is the `reshape` in whose shape `kernel_fn` returns it, None where it has the result's. `turned`: it lies
    in another order of its batches and rows, and is returned through views of that. `place`: among what is returned.
    `half`: the name of the tensor that it is one of two halves of, side by side, and which.
    """

    name: str
    dtype: str
    computed: str
    viewed: Node | None = None
    turned: Result | None = None
    place: int = 0
    half: tuple[str, int] | None = None

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.dtype]

    @property
    def is_first(self) -> bool:
        """Whether its tensor is allocated and returned with it, and not with the other half."""
        return self.half is None or not self.half[1]

    def stored(self, code: str) -> str:
        """`code`, a scalar that the epilogue returns, as it is stored."""
        return convert(code, self.computed, self.storage)


@dataclass(frozen=True)
class Given:
    """A value that the kernel has computed: the parameter that it is passed as, and the code of the node's value."""

    parameter: Parameter
    code: str

    @classmethod
    def of(cls, node: Node, name: str = "acc") -> Given:
        """The value of a node, which the kernel computes in the node's arithmetic class."""
        narrow = node.dtype in ("int8", "int16", "uint8")
        code = f"{name}.to({STORAGE_TYPE[node.dtype]}).to(Int32)" if narrow else name
        return cls(Parameter(name, COMPUTE_TYPE[node.dtype]), code)


@dataclass(frozen=True)
class Epilogue:
    """Statements over what is given, as `acc`, one scalar for each operand, numbers, and coordinates as `at_n`.

    `numbers` are passed at run time: Python scalars among the arguments, and what follows sizes, whose code
    `kernel_fn` computes in `laws`. `helpers` are device functions that the statements call.
    """

    given: tuple[Parameter, ...]
    operands: tuple[Operand, ...]
    numbers: tuple[Parameter, ...]
    laws: tuple[str, ...]
    coordinates: tuple[str, ...]
    statements: tuple[str, ...]
    results: tuple[str, ...]
    outputs: tuple[Output, ...]
    helpers: tuple[str, ...]
    earlier: tuple[Operand, ...] = ()
    """Of the operands those that functions called before it read, and it does not."""
    taken: tuple[Operand, ...] = ()
    """Tensors that the statements read at computed places, whole."""
    of_rows: Epilogue | None = None
    """The function of what a row was reduced to, whose outputs have one number of each row."""

    @property
    def stored(self) -> tuple[Output, ...]:
        """All outputs, in the order in which a launch takes them."""
        return (*(self.of_rows.outputs if self.of_rows else ()), *self.outputs)

    @property
    def is_identity(self) -> bool:
        """Whether the sum is stored as it is."""
        return self.results == ("acc",)

    @property
    def names(self) -> frozenset[str]:
        """Those of the tensors and numbers that it reads."""
        return frozenset([*(operand.name for operand in self.operands), *(number.name for number in self.numbers)])

    def source(self, name: str = "epilogue") -> str:
        """The device function, whose parameters are acc, the operands, the numbers and the coordinates."""
        typed = [f"{parameter.name}: {parameter.type}" for parameter in self.given]
        typed += [f"{operand.name}: {operand.computed}" for operand in self.operands if operand not in self.earlier]
        typed += [f"{number.name}: {number.type}" for number in self.numbers]
        typed += [f"{coordinate}: Int32" for coordinate in self.coordinates]
        typed += [f"{tensor.name}: cute.Tensor" for tensor in self.taken]
        body = [*self.statements, f"return {', '.join(self.results)}"]
        lines = "\n".join(f"    {line}" for statement in body for line in statement.split("\n"))
        return f"@cute.jit\ndef {name}({', '.join(typed)}):\n{lines}"

    def call(self, acc: str, operands: list[str], coordinates: list[str], name: str = "epilogue") -> str:
        """The call with these codes for what is given, each operand's scalar, and each coordinate that it takes."""
        operands = [c for o, c in zip(self.operands, operands, strict=True) if o not in self.earlier]
        numbers = [number.name for number in self.numbers]
        tensors = [f"t_{tensor.name}" for tensor in self.taken]
        return f"{name}({', '.join(code for code in (acc, *operands, *numbers, *coordinates, *tensors) if code)})"


def value_of(output: Node) -> Node:
    """What a kernel computes of an output: that may be a view of it, or have its batches and rows in another order."""
    turned = turned_of(output)
    if turned is not None:
        return turned.value
    return output.inputs[0] if output.op in ("reshape", "depth_to_space") else output


def values_of(output: Node) -> tuple[Node, ...]:
    """The same, of halves that lie side by side each."""
    value = value_of(output)
    return value.inputs if value.op == "halves" else (value,)


def turned_of(output: Node) -> Result | None:
    """How an output has batches and rows in another order than its product; None where it has not."""
    result = result_of(output)
    return result if result is not None and result.is_reordered else None


def write_epilogue(
    graph: Graph, products: Sequence[Node], arguments: list[str], reserved: Collection[str], *, fast: bool | None = None
) -> Epilogue:
    """The epilogue of the one product of a graph whose other nodes are pointwise, or of two of the same shape.

    `arguments` are the names of the graph's arguments, `reserved` what the template binds. `fast`: approximate
    instructions are good enough (None: where all outputs have 16 bits). Raises UnmatchedError for what has no form
    inside an element.
    """
    fast = is_fast(graph) if fast is None else fast
    rank = len(products[0].shape)
    writer = FunctionWriter(arguments, reserved, rank, {-2: "at_m", -1: "at_n"}, fast=fast, suffix="mn")
    given = {id(each): Given.of(each, name) for each, name in zip(products, ("acc", "acc_2"), strict=False)}
    return writer.epilogue(graph.outputs, given)


class FunctionWriter:
    """Writes the pointwise functions of one kernel, which share operands, numbers and laws.

    `coordinates` are the names of those of the element that a function is called for, by dimension from the right;
    functions that are called for other elements are written after `move`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        reserved: Collection[str],
        rank: int,
        coordinates: Mapping[int, str],
        *,
        fast: bool,
        suffix: str = "at",
        reads_anywhere: bool = False,
    ) -> None:
        self.arguments, self.rank, self.names, self.fast = arguments, rank, coordinates, fast
        self.suffix, self.taken, self.reads_anywhere = suffix, {*arguments, *reserved}, reads_anywhere
        self._aligned: dict[int, Operand] = {}
        self._anywhere: dict[int, Operand] = {}
        self._numbers: dict[str, Parameter] = {}
        self._laws: dict[int, tuple[str, str]] = {}
        self.row_values = set[int]()
        """Ids of nodes that the kernel has one value of for each row: what is made of them is computed once a row."""
        self._begin({})

    def move(self, coordinates: Mapping[int, str]) -> None:
        """The functions to come are called elsewhere: what they read there are operands of their own."""
        self.names, self._aligned = coordinates, {}

    def read(self, node: Node) -> Operand:
        """A tensor that the kernel reads by itself, with the dimensions that it has."""
        return self._known(node, {})

    def _begin(self, given: Mapping[int, Given]) -> None:
        """Forgets what the last function used."""
        self.given = given
        self.operands: dict[int, Operand] = {}
        self.whole: dict[int, Operand] = {}
        self.numbers: dict[str, None] = {}
        self.laws: dict[str, None] = {}
        self.coordinates: set[str] = set()
        self._inverses: dict[tuple[int, str], str] = {}

    def epilogue(self, outputs: Sequence[Node], given: Mapping[int, Given]) -> Epilogue:
        """The function of what is given that returns an element of each output, whose last view is left out."""
        values = list(map(value_of, outputs))
        return replace(self.function(values, given), outputs=self.outputs(outputs, values))

    def function(self, values: Sequence[Node], given: Mapping[int, Given]) -> Epilogue:
        """The function of what is given that returns an element of each value; UnmatchedError where it has no form."""
        self._begin(given)
        helpers: set[str] = set()
        self.emitter = emitter = Emitter(self._leaf, fast=self.fast, names={}, helpers=helpers, hoist=self._once_a_row)
        results = tuple(emitter.value(value) for value in values)
        return Epilogue(
            given=tuple(each.parameter for each in given.values()),
            operands=tuple(self.operands.values()),
            numbers=tuple(self._numbers[name] for name in self.numbers),
            laws=tuple(self.laws),
            coordinates=tuple(sorted(self.coordinates)),
            statements=tuple(emitter.lines),
            results=results,
            outputs=(),
            helpers=tuple(SPECIAL_FUNCTIONS[name].strip("\n") for name in sorted(helpers)),
            taken=tuple(self.whole.values()),
        )

    def outputs(self, nodes: Sequence[Node], values: Sequence[Node]) -> tuple[Output, ...]:
        """What is stored of each value, which is returned as the node beside it."""
        outputs = []
        for place, (node, value) in enumerate(zip(nodes, values, strict=True)):
            stem = f"out_{place}" if len(values) > 1 else "out"
            turned = turned_of(node)
            viewed = None if turned or node is value else node
            outputs.append(Output(self.fresh(stem), node.dtype, COMPUTE_TYPE[value.dtype], viewed, turned, place))
        return tuple(outputs)

    def stored(self, nodes: Sequence[Node]) -> list[tuple[Output, Node]]:
        """The same with the values, and with halves of one tensor apart."""
        found = list[tuple[Output, Node]]()
        for output, node in zip(self.outputs(nodes, list(map(value_of, nodes))), nodes, strict=True):
            values = values_of(node)
            halves = [(output.name, at) for at in range(len(values))] if len(values) > 1 else [None]
            for value, half in zip(values, halves, strict=True):
                name = self.fresh(f"{output.name}_{half[1]}") if half else output.name
                found.append((replace(output, name=name, half=half), value))
        return found

    def fresh(self, stem: str) -> str:
        """A name that the kernel has not used."""
        name = fresh_name(stem, self.taken)
        self.taken.add(name)
        return name

    def _once_a_row(self, node: Node, suffix: str, code: str) -> str | None:
        """The name of what a row's values are divided by, as a statement: the compiler merges those of one row."""
        if node.shape[-1:] != (1,) or not self.row_values.intersection(map(id, nodes_of((node,)))):
            return None
        if (id(node), suffix) not in self._inverses:
            value = self.emitter.value(node)
            name = self._inverses[id(node), suffix] = f"{value}_{suffix}"
            self.emitter.lines.append(f"{name} = {code.format(value)}")
        return self._inverses[id(node), suffix]

    # Leaves

    def _leaf(self, node: Node) -> str | None:
        if id(node) in self.given:
            return self.given[id(node)].code
        if node.op == "input":
            return self._operand(node).name
        if node.op == "scalar":
            index = Scalar.of(node).index
            return self._number(self.arguments[index], COMPUTE_TYPE[node.dtype])
        if node.op == "sized":
            return self._law(node)
        if self.reads_anywhere and node.op in READ_ANYWHERE:
            return self._read(node)
        return self._coordinate(node) if node.op == "iota" else None

    def _law(self, node: Node) -> str:
        if id(node) not in self._laws:
            name = self.fresh(f"size_{len(self._laws)}")
            self._laws[id(node)] = name, f"{name} = {Sized.of(node).law.host_code(self.arguments)}"
        name, statement = self._laws[id(node)]
        self.laws[statement] = None
        return self._number(name, COMPUTE_TYPE[node.dtype])

    def _read(self, node: Node) -> str:
        """Reads a whole tensor at a computed place."""
        tensor = self._known(node.inputs[0], self._anywhere)
        self.whole[id(node.inputs[0])] = tensor
        return (taken if node.op == "take" else searched)(self.emitter, node, tensor.name)

    def _operand(self, node: Node) -> Operand:
        self.operands[id(node)] = self._known(node, self._aligned)
        return self.operands[id(node)]

    def _known(self, node: Node, known: dict[int, Operand]) -> Operand:
        if id(node) not in known:
            given, missing = Input.of(node), self.rank - len(node.shape)
            argument = self.arguments[given.index]
            steps = (0 if size == 1 else step for size, step in zip(node.shape, given.stride, strict=True))
            code = given.code(self.arguments)
            known[id(node)] = Operand(
                name=self.fresh(f"{argument}_{self.suffix}"),
                code=code if node.shape else code.then("{0}.view(1)"),
                dtype=node.dtype,
                shape=(1,) * missing + node.shape,
                strides=(0,) * missing + tuple(steps),
                rank=max(1, len(node.shape)),
            )
        return known[id(node)]

    def _number(self, name: str, kind: str) -> str:
        """The number in the type of this use; it is passed in the wider type where uses differ."""
        passed = self._numbers.setdefault(name, Parameter(name, "Float64" if kind == "Float64" else kind))
        self.numbers[name] = None
        return convert(name, passed.type, kind)

    def _coordinate(self, node: Node) -> str:
        along = Iota.of(node).dim - len(node.shape)
        if node.shape[along] == 1:
            return "Int64(0)"
        if along not in self.names:
            raise UnmatchedError(f"{node.where} counts the matrices of a batch", operation=node.where)
        self.coordinates.add(self.names[along])
        return f"{self.names[along]}.to(Int64)"
