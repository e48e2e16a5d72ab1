"""What a product's kernel does with each sum before it stores it: a plain function of the sum and of what it reads.

Every template of a contraction renders the same data: it loads one scalar of each operand at (batch, m, n), calls
`epilogue(acc, …)` and stores what that returns.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import Graph, Input, Iota, Node, Scalar, Sized
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.writing.expressions import Emitter, convert, is_fast
from cutesmith.patterns.writing.naming import Parameter, fresh_name
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS


@dataclass(frozen=True)
class Operand:
    """A tensor that the epilogue reads: one scalar `name` for each element of the result.

    `code` is what `kernel_fn` passes, such as "bias.unsqueeze(0)"; `argument` the argument it comes from. `shape` and
    `strides` (in elements, as traced) are over the result's dimensions (…, m, n): size 1 and stride 0 where it is
    broadcast. `rank` is how many of those, from the right, the tensor has.
    """

    name: str
    argument: str
    code: str
    dtype: str
    shape: Shape
    strides: Shape
    rank: int

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.dtype]

    @property
    def computed(self) -> str:
        """DSL type of the scalar that the epilogue takes."""
        return COMPUTE_TYPE[self.dtype]

    @property
    def varies(self) -> tuple[bool, ...]:
        """Over which of (…, m, n) it changes; a size of 1 in the traced shapes counts as broadcast."""
        return tuple(size != 1 for size in self.shape)

    def loaded(self, code: str) -> str:
        """`code`, a scalar of the type in memory, as the epilogue takes it."""
        return convert(code, self.storage, self.computed)


@dataclass(frozen=True)
class Output:
    """A tensor of the result's shape: what the epilogue returns for it is a scalar of the DSL type `computed`.

    `viewed` is the shape that `kernel_fn` returns it in, where that is another.
    """

    name: str
    dtype: str
    computed: str
    viewed: Shape | None = None

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.dtype]

    def stored(self, code: str) -> str:
        """`code`, a scalar that the epilogue returns, as it is stored."""
        return convert(code, self.computed, self.storage)


@dataclass(frozen=True)
class Epilogue:
    """Statements over the scalar `acc`, one scalar for each operand, numbers, and coordinates `at_m` and `at_n`.

    `numbers` are passed at run time: Python scalars among the arguments, and what follows sizes, whose code
    `kernel_fn` computes in `laws`. `helpers` are device functions that the statements call.
    """

    accumulator: str
    operands: tuple[Operand, ...]
    numbers: tuple[Parameter, ...]
    laws: tuple[str, ...]
    coordinates: tuple[str, ...]
    statements: tuple[str, ...]
    results: tuple[str, ...]
    outputs: tuple[Output, ...]
    helpers: tuple[str, ...]

    @property
    def is_identity(self) -> bool:
        """Whether the sum is stored as it is."""
        return self.results == ("acc",)

    def source(self, name: str = "epilogue") -> str:
        """The device function, whose parameters are acc, the operands, the numbers and the coordinates."""
        typed = [f"acc: {self.accumulator}", *(f"{operand.name}: {operand.computed}" for operand in self.operands)]
        typed += [f"{number.name}: {number.type}" for number in self.numbers]
        typed += [f"{coordinate}: Int32" for coordinate in self.coordinates]
        body = [*self.statements, f"return {', '.join(self.results)}"]
        lines = "\n".join(f"    {line}" for statement in body for line in statement.split("\n"))
        return f"@cute.jit\ndef {name}({', '.join(typed)}):\n{lines}"

    def call(self, acc: str, operands: list[str], coordinates: list[str], name: str = "epilogue") -> str:
        """The call with these codes for the sum, each operand's scalar, and each coordinate that it takes."""
        numbers = [number.name for number in self.numbers]
        return f"{name}({', '.join([acc, *operands, *numbers, *coordinates])})"


def write_epilogue(
    graph: Graph, product: Node, arguments: list[str], reserved: Collection[str], *, fast: bool | None = None
) -> Epilogue:
    """The epilogue of the only product of a graph whose other nodes are pointwise.

    `arguments` are the names of the graph's arguments, `reserved` what the template binds. `fast`: approximate
    instructions are good enough (None: where all outputs have 16 bits). Raises UnmatchedError for what has no form
    inside an element.
    """
    return _Writer(graph, product, arguments, reserved, is_fast(graph) if fast is None else fast).epilogue()


class _Writer:
    def __init__(
        self, graph: Graph, product: Node, arguments: list[str], reserved: Collection[str], fast: bool
    ) -> None:
        self.graph, self.product, self.arguments, self.fast = graph, product, arguments, fast
        self.taken = {*arguments, *reserved}
        self.operands: dict[int, Operand] = {}
        self.numbers: dict[str, Parameter] = {}
        self.laws: list[str] = []
        self.coordinates: set[str] = set()

    def epilogue(self) -> Epilogue:
        helpers: set[str] = set()
        emitter = Emitter(self._leaf, fast=self.fast, names={}, helpers=helpers)
        values = [output.inputs[0] if output.op == "reshape" else output for output in self.graph.outputs]
        results = tuple(emitter.value(value) for value in values)
        return Epilogue(
            accumulator=COMPUTE_TYPE[self.product.dtype],
            operands=tuple(self.operands.values()),
            numbers=tuple(self.numbers.values()),
            laws=tuple(self.laws),
            coordinates=tuple(sorted(self.coordinates)),
            statements=tuple(emitter.lines),
            results=results,
            outputs=self._outputs(values),
            helpers=tuple(SPECIAL_FUNCTIONS[name].strip("\n") for name in sorted(helpers)),
        )

    def _outputs(self, values: list[Node]) -> tuple[Output, ...]:
        outputs = []
        for place, (node, value) in enumerate(zip(self.graph.outputs, values, strict=True)):
            stem = f"out_{place}" if len(values) > 1 else "out"
            viewed = node.shape if node is not value else None
            outputs.append(Output(self._fresh(stem), node.dtype, COMPUTE_TYPE[value.dtype], viewed))
        return tuple(outputs)

    def _fresh(self, stem: str) -> str:
        name = fresh_name(stem, self.taken)
        self.taken.add(name)
        return name

    # Leaves

    def _leaf(self, node: Node) -> str | None:
        if node is self.product:
            narrow = node.dtype in ("int8", "int16", "uint8")
            return f"acc.to({STORAGE_TYPE[node.dtype]}).to(Int32)" if narrow else "acc"
        if node.op == "input":
            return self._operand(node).name
        if node.op == "scalar":
            index = Scalar.of(node).index
            return self._number(self.arguments[index], COMPUTE_TYPE[node.dtype])
        if node.op == "sized":
            name = self._fresh(f"size_{len(self.laws)}")
            self.laws.append(f"{name} = {Sized.of(node).law.host_code(self.arguments)}")
            return self._number(name, COMPUTE_TYPE[node.dtype])
        return self._coordinate(node) if node.op == "iota" else None

    def _operand(self, node: Node) -> Operand:
        if id(node) not in self.operands:
            given, rank = Input.of(node), len(self.product.shape)
            argument = self.arguments[given.index]
            missing = rank - len(node.shape)
            steps = (0 if size == 1 else step for size, step in zip(node.shape, given.stride, strict=True))
            self.operands[id(node)] = Operand(
                name=self._fresh(f"{argument}_mn"),
                argument=argument,
                code=given.code(argument),
                dtype=node.dtype,
                shape=(1,) * missing + node.shape,
                strides=(0,) * missing + tuple(steps),
                rank=len(node.shape),
            )
        return self.operands[id(node)]

    def _number(self, name: str, kind: str) -> str:
        """The number in the type of this use; it is passed in the wider type where uses differ."""
        passed = self.numbers.setdefault(name, Parameter(name, "Float64" if kind == "Float64" else kind))
        return convert(name, passed.type, kind)

    def _coordinate(self, node: Node) -> str:
        along = Iota.of(node).dim - len(node.shape)
        if node.shape[along] == 1:
            return "Int64(0)"
        if along < -2:
            raise UnmatchedError(f"{node.where} counts the matrices of a batch", operation=node.where)
        name = "at_n" if along == -1 else "at_m"
        self.coordinates.add(name)
        return f"{name}.to(Int64)"
