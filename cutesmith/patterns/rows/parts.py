"""What a row-reduction kernel is made of: accumulators, the phases of a stage, stages, and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, ITEM_BYTES, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.rows.analysis import TensorUse

_INT_LIMITS = {"Int32": (-(2**31), 2**31 - 1), "Int64": (-(2**63), 2**63 - 1)}


@dataclass
class Accumulator:
    """One reduction's running state: variable names, their start values, and the device function that combines two
    (of an `online` pair: the code of exp).

    `kind` is `plain`, or a fused pair: `online` (maximum, sum of exponentials) or `moments` (count, pivot, sum of the
    deviations from the pivot and of their squares; a pivot is a finite number near the mean).
    """

    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    starts: tuple[str, ...]
    combine: str
    types: tuple[str, ...]
    kind: str = "plain"

    @property
    def is_pair(self) -> bool:
        """Whether a value and its place are combined together."""
        return self.kind == "plain" and len(self.names) > 1

    @property
    def node(self) -> Node:
        """The reduction, or the first half of a fused pair."""
        return self.nodes[0]


@dataclass(frozen=True)
class Visit:
    """How a thread goes along its row: code for what depends on the direction in which vectors lie.

    A step is a vector of the row's columns, or one column of a vector of rows. `steps` is their number, `width` the
    elements of one, `sharers` the threads that take turns; `column` is that of an element in step `{index}`. `rows` is
    how many rows there are.
    """

    steps: str
    width: str
    sharers: str
    column: str
    rows: str
    vectors_along_rows: bool

    def stored(self, name: str, *, is_last: bool) -> str:
        """Where the element of an output waits for the store of its vector; `is_last`: no reduction beside it."""
        return f"f_{name}[v]" if self.vectors_along_rows or is_last else f"f_{name}[v, c]"


ALONG_ROWS = Visit(
    "plan.vectors", "plan.vector", "(plan.threads * plan.cluster)", "{index} * plan.vector + v", "rows", True
)
ACROSS_ROWS = Visit(
    "plan.columns",
    "1",
    "plan.parts",
    "{index}",
    "(cute.arch.grid_dim()[0] // plan.tiles * plan.neighbours * plan.vector)",
    False,
)


@dataclass(frozen=True)
class RowStore:
    """A value a row that is returned: the output's name, the code of the value, and how it is narrowed in memory."""

    name: str
    code: str
    narrowed: str


@dataclass
class Phase:
    """One loop over the vectors that a thread holds: what it unpacks, its statements an element, what follows."""

    unpack: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Places:
    """Where a vector of an argument lies: statements, the coordinates along all dimensions but the last, a test.

    `given` are the names that the statements read, from the kernel.
    """

    given: list[str]
    lines: list[str]
    codes: list[str]
    is_inside: str


@dataclass
class Tensor:
    """One tensor that the kernel takes: an argument in a role, or an output."""

    name: str
    role: str  # "element", "column", "row", or "kept row" where the reduced dimensions are still there, "taken"
    dtype: str
    shape: tuple[int, ...] = ()  # in the traced shapes, as the kernel takes it
    again: bool = False  # an earlier stage has read it already
    slices: int = 1  # side by side in each of its rows
    whole: str = ""  # what the kernel takes, where this is the slice `number` of it
    number: int = 0
    places: Places | None = None  # of what is taken from lines of an argument

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.dtype]

    @property
    def bytes(self) -> int:
        """Of an element."""
        return ITEM_BYTES[self.dtype]

    @property
    def fragment(self) -> str:
        """DSL type of an output's register fragment before it is narrowed to its storage type."""
        return store_type(self.dtype)

    @property
    def taken(self) -> str:
        """The name of what the kernel takes."""
        return self.whole or self.name

    @property
    def row(self) -> str:
        """Code of its columns, of the thread's row."""
        if self.whole:
            return f"m_{self.whole}[{'read_row, ' if self.role == 'element' else ''}None, {self.number}]"
        return f"m_{self.name}{'[read_row, None]' if self.role == 'element' else ''}"


@dataclass
class Stage:
    """One visit to the row: statements before the loop, what it loads and stores, and inside it.

    The lists of tensors are filled in when all stages are known: what is read again where the row does not stay in
    registers (`reload`), what waits in shared memory between stages (`kept`) and what does not (`fresh`), and what is
    loaded here for the first time (`late`).
    """

    title: str
    number: int = 0
    before: list[str] = field(default_factory=list)
    loads: list[TensorUse] = field(default_factory=list)
    opening: list[str] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    accumulators: list[Accumulator] = field(default_factory=list)
    stores: list[Output] = field(default_factory=list)
    sums: list[Output] = field(default_factory=list)
    reload: list[Tensor] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)
    fresh: list[Tensor] = field(default_factory=list)
    late: list[Tensor] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The variables of all accumulators."""
        return [name for accumulator in self.accumulators for name in accumulator.names]


@dataclass
class Output:
    """One output tensor, or a slice of one: its name and role (`element`, `row`, or `sum`: over groups of rows)."""

    name: str
    role: str
    node: Node
    slices: list[Output] = field(default_factory=list)  # side by side in each of its rows, where those have some

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.node.dtype]

    @property
    def fragment(self) -> str:
        """DSL type of the register fragment before it is narrowed to the storage type."""
        return store_type(self.node.dtype)


def store_type(dtype: str) -> str:
    """DSL type of an output's register fragment before it is narrowed to its storage type."""
    return "Int32" if dtype == "bool" else COMPUTE_TYPE[dtype]


ROUNDED_BY_STORES = ("float16", "bfloat16", "float8_e4m3fn")
"""Types to which storing a float32 number rounds it as a cast does."""


def root_of(node: Node) -> Node:
    """What an output is computed from: a last reshape keeps the order, and storing rounds as a last cast does."""
    while node.op == "reshape" or (
        node.op == "cast" and node.dtype in ROUNDED_BY_STORES and COMPUTE_TYPE[node.inputs[0].dtype] == "Float32"
    ):
        (node,) = node.inputs
    return node


def lowest(kind: str) -> str:
    """The neutral element of a maximum, as a DSL scalar."""
    return f"{kind}(-math.inf)" if kind.startswith("Float") else f"{kind}({_INT_LIMITS[kind][0]})"


def highest(kind: str) -> str:
    """The neutral element of a minimum, as a DSL scalar."""
    return f"{kind}(math.inf)" if kind.startswith("Float") else f"{kind}({_INT_LIMITS[kind][1]})"
