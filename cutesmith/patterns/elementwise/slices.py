"""The text of an elementwise kernel whose results are few slices along a dimension: planes of an image, as of a stack.

Each slice is another function of what is read. A thread computes an element of all slices, and reads once what they
share; they are outputs of one kernel, which lie in one tensor.
"""

from __future__ import annotations

from dataclasses import replace

from cutesmith.patterns.elementwise.kernel import RESERVED, ElementwiseKernel, ElementwiseWriter, Tensor, value_of
from cutesmith.patterns.elementwise.lanes import LanedGraph
from cutesmith.patterns.graph.dtypes import stored_dtype
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.writing.naming import fresh_name
from cutesmith.patterns.writing.templating import returned


class SlicesWriter(ElementwiseWriter):
    """Writes it: the slices as outputs, which are views of the results."""

    def __init__(self, graph: LanedGraph) -> None:
        self._results, self._count = graph.graph.outputs, len(graph.lanes)
        self._dim = len(value_of(graph.graph.outputs[0]).shape) + graph.dim
        super().__init__(graph.apart)

    def kernel(self) -> ElementwiseKernel:
        """The kernel."""
        several = len(self._results) > 1
        names = [fresh_name(f"out_of_{at}" if several else "out", self._names()) for at in range(len(self._results))]
        results = list(zip(names, self._results, strict=True))
        allocations = [line for at, (name, output) in enumerate(results) for line in self._allocated(name, output, at)]
        returns = returned([self._viewed(*each) for each in results], as_tuple=self.graph.returns_tuple)
        return replace(super().kernel(), allocations=allocations, returns=returns)

    def _names(self) -> set[str]:
        return {*self.arguments, *RESERVED, *(each.name for each in (*self.inputs, *self.outputs))}

    def _allocated(self, name: str, output: Node, place: int) -> list[str]:
        """The statements that allocate a result, and take its slices apart."""
        shape = "(*{0}[:{1}], {2}, *{0}[{1}:])".format(self._shape_code(), self._dim, self._count)
        device = (self.inputs[0].name if self.inputs else self.arguments[0]) + ".device"
        slices = ", ".join(each.name for each in self.outputs[place :: len(self._results)])
        return [
            f"{name} = torch.empty({shape}, dtype=torch.{stored_dtype(output.dtype)}, device={device})",
            f"{slices} = {name}.unbind({self._dim})",
        ]

    def _viewed(self, name: str, output: Node) -> str:
        """A result as the function returns it."""
        return self._returned(Tensor(name, output.dtype, output))
