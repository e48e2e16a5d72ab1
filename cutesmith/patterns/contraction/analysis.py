"""What a product of matrices is: its sizes, its operands' layouts, and the pointwise function of each sum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.computed import Computed, computed_of
from cutesmith.patterns.contraction.epilogue import Epilogue, turned_of, values_of
from cutesmith.patterns.contraction.row_values import Round, functions_of, reduces_rows, write_with_rounds
from cutesmith.patterns.graph.attributes import TRANSPOSED, Blocks, Contraction, Input, ShortSums, TensorCode
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, ITEM_BYTES, STORAGE_TYPE
from cutesmith.patterns.graph.instructions import instructions
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, in_memory, nodes_of
from cutesmith.patterns.graph.shapes import Shape, is_dense
from cutesmith.patterns.graph.window_attributes import DepthToSpace, Windows
from cutesmith.patterns.rows.variances import with_lowered_variances
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.naming import safe_names

COMBINED = 2
"""Instructions for each sum of a row that is reduced: whether it is one of the row, and the combination."""


@dataclass(frozen=True)
class Matrix:
    """An operand of a product, (…, rows, columns) with strides in elements; broadcast leading dimensions have 0.

    `code` is what `kernel_fn` makes of an argument before the launch; `transposed` that of the transposed matrix, where
    it is the one that `code` transposes.
    """

    code: TensorCode
    dtype: str
    shape: Shape
    strides: Shape
    transposed: TensorCode | None = None

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.dtype]

    @cached_property
    def contiguous(self) -> int | None:
        """The place of the dimension that is contiguous, -1 (columns) or -2 (rows); None where neither is."""
        return next((dim for dim in (-1, -2) if self.strides[dim] == 1 or self.shape[dim] == 1), None)

    @property
    def bytes(self) -> int:
        """Of all elements, those of broadcast dimensions counted once."""
        sizes = (size for size, step in zip(self.shape, self.strides, strict=True) if step)
        return math.prod(sizes) * ITEM_BYTES[self.dtype]

    def vector(self, most_bytes: int = 16) -> int:
        """Elements of the widest aligned access along the contiguous dimension, at the traced shapes."""
        if self.contiguous is None:
            return 1
        steps = [self.shape[self.contiguous], *(s for dim, s in enumerate(self.strides) if self._counts(dim))]
        return math.gcd(most_bytes // ITEM_BYTES[self.dtype], *steps)

    def _counts(self, dim: int) -> bool:
        return dim - len(self.shape) != self.contiguous and self.shape[dim] != 1


@dataclass(frozen=True)
class Seen:
    """What windows over an image see as the second operand, (…, taps, positions), which is nowhere in memory.

    `shape` and `strides` are those of the image (…, channels, *sizes).
    """

    code: TensorCode
    dtype: str
    shape: Shape
    strides: Shape
    windows: Windows
    contiguous: int = -1  # in shared memory: neighbours in a row of the image are neighbouring positions

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.dtype]

    @property
    def bytes(self) -> int:
        """Of the image."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def vector(self, most_bytes: int = 16) -> int:
        """Elements of an access: each position and tap has its own place and border."""
        return 1


Right = Matrix | Seen | Computed


@dataclass(frozen=True)
class Scales:
    """What the blocks of a factor are multiplied by: each `lines` of m or n times `k` by one scale; 0: all of them.

    `matrix` has the factor's orientation.
    """

    matrix: Matrix
    lines: int
    k: int


@dataclass(frozen=True)
class Index:
    """Numbers in memory that tell which matrix a product takes, or where the rows of each matrix end."""

    code: TensorCode
    dtype: str


@dataclass(frozen=True)
class ContractionProblem:
    """A[…, m, k] times B[…, k, n], and a function of each sum; sizes are the traced ones.

    `second`, where there are two products of A: the right factor of the other one, of whose sums the function is too.
    `b` may be computed while it is loaded, or be what windows over an image see, each window a column; `image` is then
    the code of that, also where they are points and B is the image itself. `scales` are those of the blocks of A and B,
    which are float8 then. `choices` are the numbers (…, 1, 1) of the matrices of A and B that the products take, where
    those are not their own. `ends`: B are matrices (groups, k, n), and rows of A are multiplied with that of their
    group, which ends before such a row. `batch` are the leading dimensions of the result; `order` says where its
    elements lie, if not there. `rounds` reduce rows before the epilogue. `tf32`: PyTorch's flags allow float32 factors
    to be rounded so.
    """

    graph: Graph
    product: Node
    arguments: tuple[str, ...]
    batch: Shape
    m: int
    n: int
    k: int
    a: Matrix
    b: Right
    second: Matrix | None
    scales: tuple[Scales | None, Scales | None]
    choices: tuple[Index | None, Index | None]
    ends: Index | None
    tf32: bool
    epilogue: Epilogue
    rounds: tuple[Round, ...]
    image: TensorCode | None
    order: DepthToSpace | None

    @property
    def accumulator(self) -> str:
        """DSL type of the sums."""
        return COMPUTE_TYPE[Contraction.of(self.product).accumulate]

    @property
    def short_sums(self) -> ShortSums:
        """What the function allows of sums of float8."""
        return Contraction.of(self.product).short_sums

    @property
    def right(self) -> tuple[Right, ...]:
        """The right factors of all products."""
        return (self.b,) if self.second is None else (self.b, self.second)

    @property
    def scaled_k(self) -> int:
        """Of k, what the scales are the same for; 0: they do not change along k."""
        return math.gcd(*(scales.k for scales in self.scales if scales is not None))

    @property
    def windows(self) -> Windows | None:
        """The windows that make up the second operand, where it is not a matrix."""
        return self.b.windows if isinstance(self.b, Seen) else None

    @cached_property
    def epilogue_instructions(self) -> int:
        """Of the functions of each sum, and of what combines their results."""
        functions, fast = functions_of(self.graph, self.product), is_fast(self.graph)
        reduced = COMBINED * sum(len(each.values) for each in self.rounds)
        return sum(instructions(nodes, fast=fast) for nodes in functions) + reduced

    def image_sizes(self, image: str) -> list[str]:
        """The codes of how many windows there are along each dimension of the image of this name."""
        windows = Windows.of(self.product.inputs[1])
        return [windows.law(dim).size_code(f"{image}.shape[{dim - windows.rank}]") for dim in range(windows.rank)]

    @property
    def batches(self) -> int:
        """How many products."""
        return math.prod(self.batch)

    @property
    def groups(self) -> int:
        """How many matrices rows are divided among."""
        return self.b.shape[0] if self.ends is not None else 1

    @property
    def dtypes(self) -> list[str]:
        """Those of the tensors that a launch takes."""
        sides = [side.dtype for side in self.b.passed] if isinstance(self.b, Computed) else []
        scales = [scales.matrix.dtype for scales in self.scales if scales is not None]
        read = [self.a.dtype, self.b.numbers if isinstance(self.b, Computed) else self.b.dtype, *sides, *scales]
        read += [*(each.dtype for each in self.indices), *(each.dtype for each in self.epilogue.operands)]
        return [*read, *(each.dtype for each in self.epilogue.stored)]

    @property
    def indices(self) -> list[Index]:
        """Those that a kernel reads, in the order in which it takes them."""
        return [index for index in (*self.choices, self.ends) if index is not None]

    def tiles_down(self, tile: int) -> int:
        """How many tiles cover the rows of a product; that of groups, whose ends are not known, on average."""
        if self.ends is None:
            return math.ceil(self.m / tile)
        return math.ceil(self.groups * max(1.0, self.m / max(1, self.groups) / tile + 0.5))


def analyse(graph: Graph, reserved: Collection[str]) -> ContractionProblem:
    """The problem of a graph with one product of arguments, or two of the same left one, and pointwise work on it.

    `reserved` are the names that the template binds. Raises UnmatchedError naming the first node in the way.
    """
    graph = with_lowered_variances(graph)
    products = [node for node in graph.nodes() if node.op == "contract"]
    most = 2 if products and Contraction.of(products[0]).dual else 1
    if not 1 <= len(products) <= most:
        raise UnmatchedError(f"the graph has {len(products)} products", operation="")
    product, *others = products
    for other in others:
        _check_dual(product, other)
    factors = [side for each in products for side in each.inputs]
    for node in nodes_of(tuple(itertools.chain(*map(values_of, graph.outputs))), map(id, factors)):
        _check_node(products, node)
    for number in (side for side in factors if not side.shape):
        raise UnmatchedError(f"{number.where} is one number, not a matrix", operation=number.where)
    for joined in (side for side in factors if side.op == "joined"):
        raise UnmatchedError(f"{joined.where} joins two parts in memory", operation=joined.where)
    for given in itertools.chain.from_iterable(map(in_memory, factors)):
        if given.op != "input":
            raise UnmatchedError(f"{given.where} is computed before the product", operation=given.where)
    placed = [output for output in graph.outputs if output.op == "depth_to_space"]
    if placed and len(graph.outputs) > 1:
        raise UnmatchedError(f"{placed[0].where} is in another order than an output beside it", operation="")
    shapes = [product.shape, *([(*product.shape[:-1], 1)] if Contraction.of(product).rows else ())]
    for output, strides in zip(graph.outputs, graph.output_strides, strict=True):
        _check_order(product, output, strides)
        if any(value.shape not in shapes for value in values_of(output)):
            raise UnmatchedError(f"{output.where} has another shape than the product", operation=output.where)
    names = safe_names([argument.name for argument in graph.arguments], reserved)
    rank = len(product.shape)
    left, right = product.inputs
    epilogue, rounds = write_with_rounds(graph, products, names, reserved)
    if rounds and {left.op, right.op} & {"windows", "grouped", "computed"}:
        raise UnmatchedError(f"the rows of {product.where} do not lie in one tile", operation=product.where)
    return ContractionProblem(
        graph=graph,
        product=product,
        arguments=tuple(names),
        batch=product.shape[:-2],
        m=product.shape[-2],
        n=product.shape[-1],
        k=left.shape[-1],
        a=_matrix(left, names, rank),
        b=_right_of(graph, right, names, rank, reserved),
        second=_matrix(others[0].inputs[1], names, rank) if others else None,
        scales=(_scales_of(left, names, rank, k_at=1), _scales_of(right, names, rank, k_at=0)),
        choices=(_index_of(left, "chosen", names), _index_of(right, "chosen", names)),
        ends=_index_of(right, "grouped", names),
        tf32=Contraction.of(product).tf32,
        epilogue=epilogue,
        rounds=rounds,
        image=Input.of(right.inputs[0]).code(names) if right.op == "windows" else None,
        order=DepthToSpace.of(placed[0]) if placed else None,
    )


def _right_of(graph: Graph, operand: Node, names: list[str], rank: int, reserved: Collection[str]) -> Right:
    if operand.op == "computed":
        return computed_of(operand, names, reserved, fast=is_fast(graph))
    if operand.op != "windows":
        return _matrix(operand, names, rank)
    windows, image = Windows.of(operand), operand.inputs[0]
    given = Input.of(image)
    code, strides = given.code(names), given.stride
    first = len(image.shape) - windows.rank
    merged = all(strides[d] == strides[d + 1] * image.shape[d + 1] for d in range(first, len(image.shape) - 1))
    if windows.are_points and merged and strides[-1] == 1:
        shape, steps = (*image.shape[:first], math.prod(image.shape[first:])), (*strides[:first], strides[-1])
        flat = (
            code
            if windows.rank == 1
            else code.then(f"{{0}}.view(*{{0}}.shape[:{first}], math.prod({{0}}.shape[{first}:]))")
        )
        return Matrix(flat, image.dtype, shape, steps)
    return _seen(operand, names)


def _matrix(factor: Node, names: list[str], rank: int) -> Matrix:
    """A factor in memory; of groups of rows it has one dimension more."""
    return matrix_of(in_memory(factor)[0], names, rank + (factor.op == "grouped"))


def _scales_of(factor: Node, names: list[str], rank: int, *, k_at: int) -> Scales | None:
    if factor.op != "scaled":
        return None
    sizes = Blocks.of(factor).sizes
    return Scales(matrix_of(factor.inputs[1], names, rank), sizes[1 - k_at], sizes[k_at])


def _index_of(factor: Node, op: str, names: list[str]) -> Index | None:
    if factor.op != op:
        return None
    index = factor.inputs[1]
    return Index(Input.of(index).code(names), index.dtype)


def _seen(operand: Node, names: Sequence[str]) -> Seen:
    image, windows = operand.inputs[0], Windows.of(operand)
    given = Input.of(image)
    code, shape, strides = given.code(names), image.shape, given.stride
    if windows.rank == 1:  # im2col of a tensor map has two dimensions at least
        code, windows = code.then("{0}.unsqueeze(-2)"), windows.under_a_dimension()
        shape, strides = (*shape[:-1], 1, shape[-1]), (*strides[:-1], strides[-1] * shape[-1], strides[-1])
    return Seen(code, image.dtype, shape, strides, windows)


def by_windows(problem: ContractionProblem) -> ContractionProblem:
    """The same, where points of an image are a matrix: each is a window that sees one element."""
    operand = problem.product.inputs[1]
    return problem if operand.op != "windows" else replace(problem, b=_seen(operand, problem.arguments))


def is_plain(product: Node) -> bool:
    """Whether both factors are matrices of 16 bits."""
    return all(
        side.dtype in ("float16", "bfloat16") and side.op not in ("windows", "scaled") for side in product.inputs
    )


def have_same_ends(first: Node, second: Node) -> bool:
    """Whether the rows of both products are divided into groups in the same way, or of none."""
    sides = first.inputs[1], second.inputs[1]
    ends = [side.inputs[1] if side.op == "grouped" else None for side in sides]
    return ends[0] is ends[1]


def _check_dual(first: Node, second: Node) -> None:
    """Whether one kernel can sum up both products: they share the left factor, and differ in the right one alone."""
    same_left = first.inputs[0] is second.inputs[0]
    same = same_left and first.shape == second.shape and first.attrs == second.attrs and have_same_ends(first, second)
    if not (same and is_plain(first) and is_plain(second)):
        raise UnmatchedError(f"{second.where} is another product than {first.where}", operation=second.where)


def may_be_turned(product: Node, dtype: str) -> bool:
    """Whether a result of a type may lie in another order of batches and rows: TMA then writes whole lines of it."""
    others = {"windows", "grouped", "computed", "chosen", "scaled"}
    aligned = product.shape[-1] * ITEM_BYTES[dtype] % 16 == 0
    return aligned and not {side.op for side in product.inputs} & others


def _check_order(product: Node, output: Node, strides: Shape) -> None:
    turned = turned_of(output)
    is_stored = is_dense(output.shape, strides) and may_be_turned(product, output.dtype)
    if turned is not None and not (is_stored and all(value.shape == product.shape for value in values_of(output))):
        raise UnmatchedError(f"{output.where} is in another order than its kernel stores", operation=output.where)


def _check_node(products: Sequence[Node], node: Node) -> None:
    """Whether a node can be part of the kernel: pointwise, no larger than the result."""
    product = products[0]
    if any(node in (each, *each.inputs) for each in products) or node.op in LEAVES:
        return
    reduces = Contraction.of(product).rows and (reduces_rows(node, product.shape) or node.op == "degrees")
    if not node.is_pointwise and not reduces:
        raise UnmatchedError(f"{node.where} ({node.op}) is not pointwise work on the product", operation=node.where)
    trailing = product.shape[len(product.shape) - len(node.shape) :]
    if len(node.shape) > len(product.shape) or any(
        size not in (1, whole) for size, whole in zip(node.shape, trailing, strict=True)
    ):
        raise UnmatchedError(f"{node.where} has shape {node.shape}, the product {product.shape}", operation=node.where)


def matrix_of(node: Node, names: list[str], rank: int) -> Matrix:
    """The operand that an input is, as one of `rank` dimensions; `names` are those of the arguments."""
    given, missing = Input.of(node), rank - len(node.shape)
    batch = zip(node.shape[:-2], given.stride[:-2], strict=True)
    leading = (0,) * missing + tuple(0 if size == 1 else step for size, step in batch)
    shape = (1,) * missing + node.shape
    is_transposed = rank == 2 and given.views[-1:] == (TRANSPOSED,)
    transposed = TensorCode.seen(names[given.index], given.views[:-1], names) if is_transposed else None
    return Matrix(given.code(names), node.dtype, shape, leading + given.stride[-2:], transposed)
