"""Where the vectors of an argument lie that is read at places: statements of a kernel that compute them."""

from __future__ import annotations

import functools

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Iota, Scalar, Sized
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.rows.analysis import RowsAnalysis, TensorUse
from cutesmith.patterns.rows.parts import Places, Visit
from cutesmith.patterns.rows.sized import sized_code
from cutesmith.patterns.rows.taken import TakenInput, nodes_of_places
from cutesmith.patterns.writing.expressions import Emitter, convert
from cutesmith.patterns.writing.reading import place_code


class PlaceWriter:
    """Writes the places of each argument once.

    `written` has them by the argument's name, `read` what they are computed from, and `coordinates` the dimensions of
    rows that they follow. `scalars` names the numbers that the kernel takes.
    """

    def __init__(
        self, analysis: RowsAnalysis, visit: Visit, scalars: dict[int, str], *, fast: bool, helpers: set[str]
    ) -> None:
        self.analysis, self.visit, self.scalars, self.fast, self.helpers = analysis, visit, scalars, fast, helpers
        self.written: dict[str, Places] = {}
        self.read: list[TensorUse] = []
        self.coordinates: set[int] = set()
        self._uses = {id(use.node): use for use in analysis.uses if use.space == "full"}
        self._given: dict[str, None] = {}  # names that the places which are being written read

    def write(self, use: TensorUse) -> list[TensorUse]:
        """Write where the vectors of an argument lie; what says so, which is loaded before them.

        Raises UnmatchedError where a value of rows does.
        """
        read = [self._uses[id(each)] for each in nodes_of_places([use.node]) if each.op == "input"]
        if any(each.role == "row" for each in read):
            raise UnmatchedError(f"{use.node.where} takes from places that are values of rows", operation="take")
        if use.name not in self.written:
            self.read += [each for each in read if each not in self.read]
            self._given = {}
            leaf = functools.partial(self._leaf, use)
            emitter = Emitter(leaf, fast=self.fast, helpers=self.helpers, prefix=f"{use.name}_")
            codes = [place_code(emitter, place) for place in use.node.inputs]
            tests = [f"({code} >= 0) & ({code} < m_{use.name}.shape[{dim}])" for dim, code in enumerate(codes)]
            self.written[use.name] = Places(list(self._given), emitter.lines, codes, " & ".join(tests))
        return read

    def _leaf(self, use: TensorUse, node: Node) -> str | None:
        """What a place is made of, for the first row of a vector: all of its rows have it in common."""
        if node.op == "input":
            read = self._uses[id(node)]
            loaded = f"{self._named(f'r_{read.name}')}[{'0, c' if read.role == 'element' else 'c'}]"
            is_bool = node.dtype == "bool"
            return (
                f"({loaded} != 0)" if is_bool else convert(loaded, STORAGE_TYPE[node.dtype], COMPUTE_TYPE[node.dtype])
            )
        if node.op == "iota":
            return self._coordinate(use, node)
        if node.op == "sized":
            dim = TakenInput.of(use.node).dim_of(Sized.of(node).law)
            return sized_code(self.analysis, node, self.visit) if dim is None else f"Int64(m_{use.name}.shape[{dim}])"
        return self._named(self.scalars[Scalar.of(node).index]) if node.op == "scalar" else None

    def _coordinate(self, use: TensorUse, node: Node) -> str:
        """That of the column, or of the row along a dimension."""
        dim = Iota.of(node).dim + self.analysis.rank - len(node.shape)
        if (dim,) == self.analysis.reduced:
            return "column.to(Int64)"
        if dim in self.analysis.reduced:
            raise UnmatchedError(f"{use.node.where} counts one of several column dimensions", operation="iota")
        self.coordinates.add(dim)
        return self._named(f"coordinate_{dim}")

    def _named(self, name: str) -> str:
        self._given[name] = None
        return name
