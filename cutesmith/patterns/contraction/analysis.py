"""What a product of matrices is: its sizes, its operands' layouts, and the pointwise function of each sum."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.epilogue import Epilogue, write_epilogue
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, ITEM_BYTES, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import LEAVES, Contraction, Graph, Input, Node
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.writing.naming import safe_names


@dataclass(frozen=True)
class Matrix:
    """An operand of a product, (…, rows, columns) with strides in elements; broadcast leading dimensions have 0.

    `code` is what `kernel_fn` makes of the argument `argument` before the launch.
    """

    argument: str
    code: str
    dtype: str
    shape: Shape
    strides: Shape

    @property
    def storage(self) -> str:
        """DSL type in memory."""
        return STORAGE_TYPE[self.dtype]

    @property
    def contiguous(self) -> int | None:
        """The place of the dimension that is contiguous, -1 (columns) or -2 (rows); None where neither is."""
        return next((dim for dim in (-1, -2) if self.strides[dim] == 1 or self.shape[dim] == 1), None)

    def vector(self, most_bytes: int = 16) -> int:
        """Elements of the widest aligned access along the contiguous dimension, at the traced shapes."""
        if self.contiguous is None:
            return 1
        steps = [self.shape[self.contiguous], *(s for dim, s in enumerate(self.strides) if self._counts(dim))]
        return math.gcd(most_bytes // ITEM_BYTES[self.dtype], *steps)

    def _counts(self, dim: int) -> bool:
        return dim - len(self.shape) != self.contiguous and self.shape[dim] != 1


@dataclass(frozen=True)
class ContractionProblem:
    """A[…, m, k] times B[…, k, n], and a function of each sum; sizes are the traced ones.

    `batch` are the leading dimensions of the result. `tf32`: PyTorch's flags allow float32 factors to be rounded so.
    """

    graph: Graph
    product: Node
    arguments: tuple[str, ...]
    batch: Shape
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    tf32: bool
    epilogue: Epilogue

    @property
    def accumulator(self) -> str:
        """DSL type of the sums."""
        return COMPUTE_TYPE[Contraction.of(self.product).accumulate]

    @property
    def batches(self) -> int:
        """How many products."""
        return math.prod(self.batch)


def analyse(graph: Graph, reserved: Collection[str]) -> ContractionProblem:
    """The problem of a graph with one product of arguments and pointwise work on its result.

    `reserved` are the names that the template binds. Raises UnmatchedError naming the first node in the way.
    """
    products = [node for node in graph.nodes() if node.op == "contract"]
    if len(products) != 1:
        raise UnmatchedError(f"the graph has {len(products)} products", operation="")
    (product,) = products
    for node in graph.nodes():
        _check_node(graph, product, node)
    for side in product.inputs:
        if side.op != "input":
            raise UnmatchedError(f"{side.where} is computed before the product", operation=side.where)
    for output in graph.outputs:
        value = output.inputs[0] if output.op == "reshape" else output
        if value.shape != product.shape:
            raise UnmatchedError(f"{output.where} has another shape than the product", operation=output.where)
    names = safe_names([argument.name for argument in graph.arguments], reserved)
    a, b = (matrix_of(side, names, len(product.shape)) for side in product.inputs)
    return ContractionProblem(
        graph=graph,
        product=product,
        arguments=tuple(names),
        batch=product.shape[:-2],
        m=product.shape[-2],
        n=product.shape[-1],
        k=product.inputs[0].shape[-1],
        a=a,
        b=b,
        tf32=Contraction.of(product).tf32,
        epilogue=write_epilogue(graph, product, names, reserved),
    )


def _check_node(graph: Graph, product: Node, node: Node) -> None:
    """Whether a node can be part of the kernel: pointwise, no larger than the result."""
    if node in (product, *product.inputs) or node.op in LEAVES:
        return
    if node.op == "reshape" and any(node is output for output in graph.outputs):
        return
    if not node.is_pointwise:
        raise UnmatchedError(f"{node.where} ({node.op}) is not pointwise work on the product", operation=node.where)
    trailing = product.shape[len(product.shape) - len(node.shape) :]
    if len(node.shape) > len(product.shape) or any(
        size not in (1, whole) for size, whole in zip(node.shape, trailing, strict=True)
    ):
        raise UnmatchedError(f"{node.where} has shape {node.shape}, the product {product.shape}", operation=node.where)


def matrix_of(node: Node, names: list[str], rank: int) -> Matrix:
    """The operand that an input is, as one of `rank` dimensions; `names` are those of the arguments."""
    given, missing = Input.of(node), rank - len(node.shape)
    argument = names[given.index]
    batch = zip(node.shape[:-2], given.stride[:-2], strict=True)
    leading = (0,) * missing + tuple(0 if size == 1 else step for size, step in batch)
    shape = (1,) * missing + node.shape
    return Matrix(argument, given.code(argument), node.dtype, shape, leading + given.stride[-2:])
