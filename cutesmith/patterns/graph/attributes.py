"""What operations of a graph need beside their inputs: views, windows, laws of sizes, what is combined and where."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cutesmith.patterns.graph.shapes import Shape, dense_strides
from cutesmith.patterns.graph.size_laws import Size, SizeLaw, size_code

Number = int | float | bool
A = TypeVar("A", bound="Attributes")


class HasAttributes(Protocol):
    """A node, as far as its attributes are concerned."""

    @property
    def op(self) -> str:
        """The operation."""
        ...

    @property
    def attrs(self) -> Attributes:
        """What it needs beside its inputs."""
        ...


@dataclass(frozen=True)
class Attributes:
    """What a node needs to know beside its inputs: nothing here, more in the subclasses."""

    @classmethod
    def of(cls: type[A], node: HasAttributes) -> A:
        """The node's attributes, which must be of this class."""
        assert isinstance(node.attrs, cls), f"{node.op} has no attributes of {cls.__name__}"
        return node.attrs


NONE = Attributes()


@dataclass(frozen=True)
class View:
    """A view of a tensor as Python source, such as "{0}.narrow(1, {1}, {2})": of the tensor, then of the sizes."""

    source: str
    sizes: tuple[Size, ...] = ()

    @property
    def is_proven(self) -> bool:
        """Whether it holds for other sizes than the traced ones."""
        return not any(isinstance(size, int) for size in self.sizes)

    def with_sizes(self, change: Callable[[Size], Size]) -> View:
        """The same view of other sizes."""
        return View(self.source, tuple(map(change, self.sizes)))

    def code(self, tensor: str, arguments: Sequence[str]) -> str:
        """The view of a tensor of this name, in a function of these arguments."""
        return self.source.format(tensor, *(size_code(size, arguments) for size in self.sizes))


TRANSPOSED = View("{0}.t()")
"""Of a matrix."""


@dataclass(frozen=True)
class TensorCode:
    """What `kernel_fn` makes of the tensor `name`, in steps: each is code of what is made of the tensor before, {0}."""

    name: str
    steps: tuple[str, ...] = ()

    @classmethod
    def seen(cls, name: str, views: Sequence[View], arguments: Sequence[str]) -> TensorCode:
        """The tensor through views, applied in order, in a function of these arguments."""
        return cls(name, tuple(view.code("{0}", arguments) for view in views))

    def then(self, step: str) -> TensorCode:
        """With one more step, such as "{0}.view({0}.shape[0], -1)"."""
        return TensorCode(self.name, (*self.steps, step))


@dataclass(frozen=True)
class Viewed(Attributes):
    """A tensor in device memory, seen through views that `kernel_fn` makes before a launch, without a copy.

    `views` are applied in order; `stride` (in elements) and `offset` are those of the viewed tensor, `root` the shape
    and stride of the tensor itself.
    """

    stride: Shape
    root: tuple[Shape, Shape]
    views: tuple[View, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class Input(Viewed):
    """An argument tensor: its place among the arguments, and how it is seen."""

    index: int = 0

    @classmethod
    def whole(cls, index: int, shape: Shape, stride: Shape) -> Input:
        """The argument itself."""
        return cls(stride, (shape, stride), index=index)

    def code(self, arguments: Sequence[str]) -> TensorCode:
        """The viewed argument in a function of arguments of these names."""
        return TensorCode.seen(arguments[self.index], self.views, arguments)


@dataclass(frozen=True)
class Stored(Viewed):
    """The result of an earlier launch, the node's only input, and how it is seen; it lies dense in row-major order."""

    @classmethod
    def whole(cls, shape: Shape) -> Stored:
        """The result itself."""
        return cls(dense_strides(shape), (shape, dense_strides(shape)))


class ShortSums(enum.IntEnum):
    """What the function allows of the tensor cores' own sums of float8 products, which keep 14 bits on Hopper.

    OF_PIECES: sums of pieces of k, which are added up in float32. WHOLE: those of all of k, too.
    """

    NONE = 0
    OF_PIECES = 1
    WHOLE = 2


@dataclass(frozen=True)
class Contraction(Attributes):
    """How the products are summed: in a type ("float32", "float64", "int32", …), of factors that may be rounded.

    `tf32`: PyTorch's flags allow float32 factors to be rounded to tf32 in this operation. `short_sums` counts where the
    factors were float8. `dual`: one kernel sums up this product and another one of the same left factor. `rows`: its
    kernel reduces the rows of the result, too.
    """

    accumulate: str
    tf32: bool = False
    short_sums: ShortSums = ShortSums.NONE
    dual: bool = False
    rows: bool = False


@dataclass(frozen=True)
class Blocks(Attributes):
    """How many neighbouring rows and columns of a matrix have one scale; 0: all of them."""

    sizes: tuple[int, int]


@dataclass(frozen=True)
class Scalar(Attributes):
    """A Python number that is passed at run time: the argument's place.

    `size` is its value as traced where it is an integer that follows the shapes of tensors, as a launch of a chain is
    passed; None where it may be another one in each call.
    """

    index: int
    size: int | None = None


@dataclass(frozen=True)
class Constant(Attributes):
    """A number that is known when the kernel is written."""

    value: Number


@dataclass(frozen=True)
class Sized(Attributes):
    """A number that follows the sizes of arguments; `value` is that at the traced sizes."""

    law: SizeLaw
    value: Number

    @property
    def size(self) -> int | None:
        """The value, where it is an integer that follows shapes alone."""
        follows = self.law.is_size and all(dim >= 0 for _, dim in self.law.places)
        return int(self.value) if follows else None


@dataclass(frozen=True)
class Iota(Attributes):
    """The coordinate along `dim` of the node's shape (int64)."""

    dim: int


@dataclass(frozen=True)
class Joined(Attributes):
    """The dimension along which two tensors lie one behind the other."""

    dim: int


@dataclass(frozen=True)
class Scan(Attributes):
    """What is combined of the elements up to each along `dim`, from the last one down where it is `reverse`.

    `operation` is sum, prod, max, min, logsumexp, or argmax and argmin: where the latest extreme is, NaN the first of
    all. `exclusive`: of the elements before each alone; the result may then be one longer than what is scanned. The
    operation linear has inputs (term, factor): h[t] = factor[t] * h[t - 1] + term[t]. `window`: of so many elements
    alone, 0 of all; what is scanned in rounds of doubled windows is made of these.
    """

    dim: int
    operation: str
    reverse: bool = False
    exclusive: bool = False
    window: int = 0


@dataclass(frozen=True)
class Recurrent(Attributes):
    """Steps of a recurrent layer: "lstm", "gru", "tanh" or "relu", the last one first where it is `reverse`.

    `roles` say what the inputs are: "given" (steps, rows, gates * units), what the gates are given of each step;
    "weights" (gates * units, units), which the state before is multiplied by; "bias", added to that product; "hidden"
    and "cell" (rows, units), the first states, zeros where they are not there. The result has the states of all steps,
    or of an LSTM with `cell` those cells that the last step leaves.
    """

    kind: str
    roles: tuple[str, ...]
    reverse: bool = False
    cell: bool = False

    @property
    def gates(self) -> int:
        """Numbers that each unit makes of a step."""
        return GATES[self.kind]


GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
"""The kinds of recurrent layers, and the gates of each."""


@dataclass(frozen=True)
class Carried(Attributes):
    """The number of a recurrence whose state before each step the node is, or as a `state` the one that a step makes.

    Only while steps are rerolled.
    """

    number: int


@dataclass(frozen=True)
class Sort(Attributes):
    """Elements along `dim` in rising or falling order, NaN as the largest, equal ones by their place.

    The result has the first of them, as many as its shape says, or with `places` where each of those lies (int64).
    """

    dim: int
    descending: bool = False
    places: bool = False


@dataclass(frozen=True)
class Transform(Attributes):
    """Which part of a Fourier transform along the last dimension: sums of z[j] * exp(sign * 2πi * j * k / length).

    The inputs are the real parts of z, and the imaginary ones where they are not 0; zeros are behind those that are
    given. The result has the sums from `start` on, as many as its shape says. `of_half`: z[j] are given up to the
    middle alone; the others are their conjugates, in reverse, and the sums are real. Imaginary parts of the first and
    the middle number count as 0 then.
    """

    length: int
    sign: int
    imag: bool = False
    of_half: bool = False
    start: int = 0


@dataclass(frozen=True)
class Scatter(Attributes):
    """What is combined of the elements along `dim` whose index is the coordinate of the result.

    `operation` is sum, prod, max, min, or last: the one in the last place. Where there is none the result is the
    operation's neutral element, for last 0. An index outside of the result counts for nothing. `alone`: no two elements
    along `dim` have the same index.
    """

    dim: int
    operation: str
    alone: bool = False


@dataclass(frozen=True)
class Search(Attributes):
    """Whether elements that equal the value count as before it (`right`)."""

    right: bool = False


@dataclass(frozen=True)
class Gather(Attributes):
    """Where the index counts."""

    dim: int


@dataclass(frozen=True)
class Reduction(Attributes):
    """The reduced dimensions, non-negative and sorted; the degrees of freedom that `var` takes off their size."""

    dims: tuple[int, ...]
    correction: float = 0.0


@dataclass(frozen=True)
class AttentionGradient(Attributes):
    """Of which factor of an attention it is the gradient: "q", "k" or "v"; `safe`: a row of -inf alone has zeros."""

    factor: str
    safe: bool = False


@dataclass(frozen=True)
class Groups(Attributes):
    """How many groups the rows of partial sums are in."""

    count: int


@dataclass(frozen=True)
class Reshaping(Attributes):
    """How a dense tensor is viewed in the shape of a `reshape`."""

    view: View
