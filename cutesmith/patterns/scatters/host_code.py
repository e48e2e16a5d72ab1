"""What the kernels of both forms of a scatter pass to their launches, and the statements of `kernel_fn` around them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from cutesmith.patterns.contraction.epilogue import Epilogue, Operand, Output
from cutesmith.patterns.graph.dtypes import stored_types
from cutesmith.patterns.graph.nodes import nodes_of
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.size_laws import size_code
from cutesmith.patterns.scatters.analysis import ScatterProblem
from cutesmith.patterns.writing.naming import ViewNames
from cutesmith.patterns.writing.templating import first_checks, returned, size_checks


@dataclass(frozen=True)
class Passed:
    """The functions of a kernel by the place where they are called: in the frame, or in the result; its outputs.

    `gathered` are tensors that the kernel itself reads at computed places, beside those that the functions read.
    """

    problem: ScatterProblem
    arguments: tuple[str, ...]
    in_frame: tuple[Epilogue, ...]
    in_result: tuple[Epilogue, ...]
    outputs: tuple[Output, ...]
    gathered: tuple[Operand, ...] = ()

    @property
    def functions(self) -> tuple[Epilogue, ...]:
        """All of them."""
        return (*self.in_frame, *self.in_result)

    def context(self, reserved: set[str], buffers: Collection[str] = ()) -> dict[str, object]:
        """Variables of both templates; `reserved` are the names that they bind, `buffers` dtypes of scratch."""
        problem, names, functions = self.problem, list(self.arguments), self.functions
        taken = (*self.gathered, *(tensor for function in functions for tensor in function.taken))
        whole = list(dict.fromkeys(taken))
        read = list(dict.fromkeys(operand for function in self.in_frame for operand in function.operands))
        late = list(dict.fromkeys(operand for function in self.in_result for operand in function.operands))
        operands, made = [*whole, *read, *late], [output.name for output in self.outputs]
        views = ViewNames({*names, *reserved, *(o.name for o in operands), *made})
        inputs = {o.name: views.name(o.passed) for o in operands}
        passed = [*(inputs[o.name] for o in operands), *made]
        returns = [_returned(o.name, o.dtype) for o in self.outputs]
        return {
            "p": problem,
            "whole": whole,
            "read": read,
            "late": late,
            "outputs": list(self.outputs),
            "types": stored_types([*(o.dtype for o in operands), *(o.dtype for o in self.outputs), *buffers]),
            "arguments": names,
            "numbers": list(dict.fromkeys(number for function in functions for number in function.numbers)),
            "helpers": list(dict.fromkeys(helper for function in functions for helper in function.helpers)),
            "title": "scatter: " + ", ".join(dict.fromkeys(each.operation for each in problem.combined)),
            "place": ", ".join(f"at_{dim}" for dim in range(len(problem.frame))),
            "views": [*views.lines, *dict.fromkeys(law for function in functions for law in function.laws)],
            "frame": _frame_code(problem, names, read, inputs),
            "count": _count_code(problem, names, late, inputs),
            "device": passed[0],
            "checks": size_checks(names, problem.graph, problem.graph.checked),
            "first_checks": first_checks(names, problem.graph),
            "passed": passed,
            "dtypes": [f"{name}.dtype" for name in dict.fromkeys(inputs.values())],
            "returns": returned(returns, as_tuple=problem.graph.returns_tuple),
        }


def coordinates(dims: Sequence[int], name: str) -> Iterator[str]:
    """Statements for the coordinates of a number of places in these dimensions, of which the last runs fastest."""
    for at, dim in enumerate(dims):
        inner = "".join(f" // size_of_{other}" for other in dims[at + 1 :])
        yield f"at_{dim} = {name}{inner} % size_of_{dim}" if at else f"at_{dim} = {name}{inner}"


def _frame_code(problem: ScatterProblem, names: list[str], read: list[Operand], inputs: dict[str, str]) -> str:
    """Code of the shape of what is combined; a size that nothing but a tensor read anywhere has follows from laws."""
    shapes = list(dict.fromkeys(f"{inputs[operand.name]}.shape" for operand in read))
    if read and broadcast([operand.shape[-operand.rank :] for operand in read]) == problem.frame:
        return f"tuple(torch.broadcast_shapes({', '.join(shapes)}))"
    given = nodes_of(tuple(each for node in problem.scatters for each in node.inputs))
    sizes = next((each.sizes for each in given if each.shape == problem.frame and each.sizes), problem.frame)
    return f"({', '.join(size_code(size, names) for size in sizes)},)"


def _count_code(problem: ScatterProblem, names: list[str], late: list[Operand], inputs: dict[str, str]) -> str:
    """Code of the number of places along the dimension of the index."""
    dim, rank = problem.dim, len(problem.shape)
    for operand in late:
        if operand.shape[dim] == problem.shape[dim] != 1 and operand.rank >= rank - dim:
            return f"{inputs[operand.name]}.shape[{dim - rank}]"
    sizes = problem.scatters[0].sizes
    return size_code(sizes[dim] if sizes else problem.shape[dim], names)


def _returned(name: str, dtype: str) -> str:
    return f"{name}.view(torch.bool)" if dtype == "bool" else name
