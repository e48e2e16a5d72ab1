"""The form in which a line is transformed: as complex numbers, as pairs of real ones, or to such pairs."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.contraction.epilogue import Epilogue
from cutesmith.patterns.graph.attributes import Transform
from cutesmith.patterns.graph.line_lengths import complex_count
from cutesmith.patterns.graph.nodes import Node


@dataclass(frozen=True)
class Form:
    """The sizes of a transform: `given` numbers of a line make `wanted` ones of the result, from `start` on."""

    length: int
    given: int
    start: int
    wanted: int
    is_inverse: bool
    is_real: bool
    of_half: bool

    @property
    def end(self) -> int:
        """The first number of the result that is not wanted."""
        return self.start + self.wanted

    @property
    def in_pairs(self) -> bool:
        """Whether neighbouring real numbers of a line are taken for one complex number."""
        half = self.length // 2 + 1
        return self.is_real and self.length % 2 == 0 and self.end <= half and not self.is_inverse

    @property
    def to_pairs(self) -> bool:
        """Whether half a spectrum is given; the results are real, and two of them are one complex number."""
        return self.of_half and self.length % 2 == 0

    @property
    def is_mirrored(self) -> bool:
        """Whether half a spectrum is given, of which the other half is read in reverse."""
        return self.of_half and self.length % 2 == 1

    @property
    def count(self) -> int:
        """Complex numbers of a line."""
        return complex_count(self.length, in_pairs=self.in_pairs or self.to_pairs)

    @property
    def there(self) -> int:
        """Of these numbers those that are given; behind them lie zeros."""
        return min(self.count, -(-self.given // 2) if self.in_pairs else self.given)

    @property
    def loads_pairs(self) -> bool:
        """Whether two neighbouring elements of a line may be read together."""
        return self.in_pairs and self.given % 2 == 0

    @property
    def stores_pairs(self) -> bool:
        """Whether two neighbouring results may be stored together."""
        return self.to_pairs and self.start % 2 == 0 and self.wanted % 2 == 0


@dataclass(frozen=True)
class Line:
    """One transform, and the function that gives the parts of its numbers, by its name in the kernel.

    `held` is the name of its place in shared memory, `end` that of the names of its parts.
    """

    node: Node
    element: Epilogue
    name: str
    held: str
    end: str = ""

    @staticmethod
    def form_of(node: Node) -> Form:
        """The form of a part of a transform."""
        t = Transform.of(node)
        sizes = t.length, node.inputs[0].shape[-1], t.start, node.shape[-1]
        return Form(*sizes, is_inverse=t.sign > 0, is_real=len(node.inputs) == 1, of_half=t.of_half)

    @property
    def form(self) -> Form:
        """Its sizes, and how its numbers are taken."""
        return self.form_of(self.node)

    @property
    def count(self) -> int:
        """Complex numbers of it."""
        return self.form.count

    @property
    def in_pairs(self) -> bool:
        """Whether neighbouring real numbers are taken for one complex number."""
        return self.form.in_pairs

    @property
    def to_pairs(self) -> bool:
        """Whether two neighbouring results are one complex number."""
        return self.form.to_pairs
