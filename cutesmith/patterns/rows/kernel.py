"""The text of a row-reduction kernel, whatever configuration it is rendered in: what `rows.py.j2` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Groups, Input, Reshaping, Scalar, TensorCode
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, ITEM_BYTES, stored_types
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.rows.analysis import RowsAnalysis, TensorUse, output_space
from cutesmith.patterns.rows.combines import COMBINES, combine_source
from cutesmith.patterns.rows.parts import ALONG_ROWS, Output, RowStore, Stage, Tensor, Visit, root_of
from cutesmith.patterns.rows.slices import slice_of, slices_of
from cutesmith.patterns.rows.stages import StageWriter
from cutesmith.patterns.rows.taken import TakenInput, is_taken
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.naming import SHARED_NAMES, Parameter, ViewNames, as_stored, fresh_name, safe_names
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS
from cutesmith.patterns.writing.templating import launcher_key, returned, size_checks, with_ones_in_front

_OWN = (
    "rows columns max as_matrix row lane slot place read_row smem partials ahead b read write copy_async "
    "Layout ROLES KEPT REDUCED THREADS_PER_SM EVICT_FIRST EVICT_LAST rows_kernel launch_rows compile_rows "
    "block vector neighbour inside known pitch columns_kernel launch_columns compile_columns power_of_two"
)
OF_ELEMENTS = ("element", "taken")
"""Roles of tensors that change along both rows and columns."""
_RESERVED = SHARED_NAMES | {*_OWN.split(), "operator", *COMBINES}
"""Names that an argument of the problem may not have in the generated kernel."""


@dataclass(frozen=True)
class RowsKernel:
    """Statements and names for the places of the template.

    `kept_bytes` a column are of tensors that are read more than once; `repeats`: one is expanded along the row.
    """

    title: str
    kept_dims: tuple[int, ...]
    reduced_dims: tuple[int, ...]
    is_trailing: bool
    matrices: bool
    several: bool
    whole: str | None
    rows_code: str
    partials: list[str]
    helpers: list[str]
    levels: list[Stage]
    tensors: list[Tensor]
    sliced: bool
    scalars: list[Parameter]
    prologue: list[str]
    vectors: list[Tensor]
    stores: list[Tensor]
    sums: list[Tensor]
    groups: int
    early: list[Tensor]
    coordinates: list[int]
    gathers: list[str]
    stages: list[Stage]
    kept: list[Tensor]
    kept_bytes: int
    epilogue: list[str]
    row_stores: list[RowStore]
    roles: str
    roles_used: list[str]
    reads_again: bool
    repeats: bool
    tensor_names: list[str]
    types: dict[str, str]
    full_shape: str
    checks: list[str]
    extreme: str
    needs_columns: bool
    arguments: list[str]
    views: list[str]
    allocations: list[str]
    key: list[str]
    returns: str


def write_kernel(
    graph: Graph, analysis: RowsAnalysis, visit: Visit = ALONG_ROWS, slices: Sequence[Sequence[Node]] = ()
) -> RowsKernel:
    """The kernel of an analysed graph, whose outputs are made of these `slices`, where its rows have some.

    Raises UnmatchedError for an operation that cannot be written in a row.
    """
    return _Writer(graph, analysis, visit, slices or [(node,) for node in analysis.outputs]).kernel()


class _Writer:
    def __init__(self, graph: Graph, analysis: RowsAnalysis, visit: Visit, slices: Sequence[Sequence[Node]]) -> None:
        self.graph, self.analysis, self.visit = graph, analysis, visit
        self.arguments = safe_names([argument.name for argument in graph.arguments], _RESERVED)
        self.views = ViewNames(self.arguments)
        self.inputs: list[Tensor] = []
        self.wholes: dict[tuple[object, ...], Tensor] = {}
        self.read: list[Tensor] = []  # by each use: an input, or a slice of one
        for use in analysis.uses:
            sliced = analysis.slices > 1 and use.role in ("element", "column")
            self.read.append(self._sliced(use) if sliced else self._input(use))
        self.outputs = [self._output(place, nodes) for place, nodes in enumerate(slices)]
        self.written = [each for output in self.outputs for each in output.slices or [output]]

    def kernel(self) -> RowsKernel:
        scalars = self._scalars()
        names = {index: scalar.name for index, scalar in scalars.items()}
        writer = StageWriter(self.analysis, self.visit, fast=is_fast(self.graph), scalars=names)
        stages, epilogue, row_stores = writer.write(self.written)
        outputs = [Tensor(o.name, self._role_of(o), o.node.dtype, slices=len(o.slices) or 1) for o in self.outputs]
        for tensor in self.read:
            tensor.places = writer.places.written.get(tensor.name)
        first = {use.name for use in writer.places.read}
        early = [t for t in self.read if t.role in OF_ELEMENTS or t.name in first]
        for place in range(len(stages)):
            self._distribute(stages, place, early)
        kept = list({t.name: t for stage in stages for t in stage.kept}.values())
        sources = [combine_source(n, self.visit).strip("\n") for n in sorted(writer.accumulators.combines)]
        partials = [source for source in sources if "= functools.partial(" in source.split("\n")[0]]
        functions = [source for source in sources if source not in partials]
        functions += [SPECIAL_FUNCTIONS[n] for n in sorted(writer.helpers)]
        tensors = self.inputs + outputs
        return RowsKernel(
            title=self._title(),
            kept_dims=self.analysis.kept,
            reduced_dims=self.analysis.reduced,
            is_trailing=self.analysis.is_trailing,
            matrices=self._are_matrices(tensors),
            several=len(self.inputs) > 1,
            whole=self._whole(),
            rows_code=self._rows_code(outputs),
            partials=partials,
            helpers=[function.strip("\n") for function in functions],
            levels=[stage for stage in stages if stage.accumulators],
            tensors=tensors,
            sliced=self.analysis.slices > 1,
            scalars=list(scalars.values()),
            prologue=writer.prologue,
            vectors=[t for t in self.read if t.role in ("element", "column", "taken")],
            stores=[t for output in self.outputs if output.role == "element" for t in _stored(output)],
            sums=[t for t in outputs if t.role == "sum"],
            groups=next((Groups.of(node).count for node in self.analysis.partial_sums), 0),
            early=early,
            coordinates=sorted(writer.places.coordinates),
            gathers=writer.gathers,
            stages=stages,
            kept=kept,
            kept_bytes=sum(ITEM_BYTES[t.dtype] for t in kept),
            epilogue=epilogue,
            row_stores=row_stores,
            roles=repr(tuple(t.role for t in tensors)),
            roles_used=list(dict.fromkeys(t.role for t in tensors)),
            reads_again=any(t.again for stage in stages for t in stage.reload),
            repeats=any(self.analysis.run_of(use) for use in self.analysis.uses),
            tensor_names=[t.name for t in tensors],
            types=stored_types(t.dtype for t in tensors),
            full_shape=self._full_shape(),
            checks=size_checks(self.arguments, self.graph, self.graph.checked),
            extreme=self._extreme(),
            needs_columns=not any(o.role == "row" for o in self.outputs),
            arguments=self.arguments,
            views=self.views.lines,
            allocations=[self._allocation(o) for o in self.outputs],
            key=launcher_key([t.name for t in self.inputs]),
            returns=returned([self._result(o) for o in self.outputs], as_tuple=self.graph.returns_tuple),
        )

    def _are_matrices(self, tensors: list[Tensor]) -> bool:
        """Whether each tensor is rows x columns as the kernel takes it, or one of both, and none is broadcast."""
        analysis = self.analysis
        shapes = {"element": analysis.shape, "row": analysis.rows_shape, "column": analysis.columns_shape, "sum": ()}
        fitting = all(shapes.get(t.role) == t.shape for t in self.inputs) and all(t.role in shapes for t in tensors)
        is_matrix = (analysis.kept, analysis.reduced, analysis.slices) == ((0,), (1,), 1)
        return is_matrix and fitting and self._whole() is not None

    def _extreme(self) -> str:
        """The first reduction that PyTorch refuses for a row without elements: a maximum that was asked for as such."""
        asked = ("amax", "amin", "max", "min", "aminmax", "argmax", "argmin")
        for node in (node for level in self.analysis.reductions for node in level):
            if node.op in ("max", "min", "argmax", "argmin") and node.origin.operation in asked:
                return node.origin.operation
        return ""

    def _title(self) -> str:
        rounds = (", ".join(dict.fromkeys(node.op for node in level)) for level in self.analysis.reductions)
        return f"{'; then '.join(rounds)} over {self.analysis.over}"

    def _input(self, use: TensorUse) -> Tensor:
        argument = self.arguments[Input.of(use.node).index]
        code = Input.of(use.node).code(self.arguments)
        role = "kept row" if use.role == "row" and use.space == "full" else use.role
        role = "taken" if is_taken(use.node) else role
        shape = use.node.shape
        if role == "kept row" and self._only_unsqueezed(use):
            code, role, shape = TensorCode(argument), "row", self.analysis.rows_shape
        code = as_stored(code, use.node.dtype)
        is_own = not code.steps and argument not in {tensor.name for tensor in self.inputs}
        use.name = argument if is_own else self.views.another(code, f"{argument}_1")
        self.inputs.append(Tensor(use.name, role, use.node.dtype, shape))
        return self.inputs[-1]

    def _sliced(self, use: TensorUse) -> Tensor:
        """A slice of an argument; the kernel takes the whole once for all slices of it."""
        seen = Input.of(use.node)
        key = seen.index, seen.views, use.role
        if key not in self.wholes:
            self.wholes[key] = self._input(use)
            self.wholes[key].slices = slices_of(use.node)
        whole, number = self.wholes[key], slice_of(use.node)
        use.name = fresh_name(f"{whole.name}_{number}", self._names())
        return Tensor(use.name, whole.role, whole.dtype, use.node.shape, whole=whole.name, number=number)

    def _only_unsqueezed(self, use: TensorUse) -> bool:
        """Whether the argument has one value a row and its views only append dimensions of size 1: 1 us less a call.

        Without an input of the whole shape, that is what all inputs broadcast to, views included.
        """
        argument = self.graph.arguments[Input.of(use.node).index]
        return (
            any(map(self._is_whole, self.analysis.uses))
            and argument.shape == self.analysis.rows_shape
            and use.node.shape == self._kept_shape
            and all(".unsqueeze(" in view.source for view in Input.of(use.node).views)
        )

    def _scalars(self) -> dict[int, Parameter]:
        """The numbers that the kernel takes, by the place of the argument."""
        kinds: dict[int, str] = {}
        for node in nodes_of(self.analysis.outputs):
            if node.op == "scalar":
                kinds[Scalar.of(node).index] = COMPUTE_TYPE[node.dtype]
        return {index: Parameter(self.arguments[index], kind) for index, kind in sorted(kinds.items())}

    def _output(self, place: int, slices: Sequence[Node]) -> Output:
        """An output of the function, which is made of these slices."""
        name = fresh_name("out" if len(self.graph.outputs) == 1 else f"out_{place}", self._names())
        element = self.analysis.is_element(root_of(slices[0]), output_space(self.analysis, slices[0]))
        if not element or self.analysis.slices == 1:
            role = "sum" if slices[0].op == "partial_sums" else "element" if element else "row"
            return Output(name, role, slices[0])
        parts = [Output(fresh_name(f"{name}_{at}", self._names()), "element", node) for at, node in enumerate(slices)]
        return Output(name, "element", self.graph.outputs[place], parts)

    def _names(self) -> set[str]:
        return {*self.arguments, *(tensor.name for tensor in (*self.inputs, *self.read))}

    def _distribute(self, stages: list[Stage], place: int, early: list[Tensor]) -> None:
        """Fill in where a stage finds each of the tensors that it reads."""
        stage, by_name = stages[place], {t.name: t for t in self.read}
        loads = [by_name[use.name] for use in stage.loads]
        before = {use.name for other in stages[:place] for use in other.loads}
        later = {use.name for other in stages[place + 1 :] for use in other.loads}
        again = {t.name for t in loads if t.role in OF_ELEMENTS and t.name in before}
        kept = {t.name for t in loads if t.role in OF_ELEMENTS and t.name in before | later}
        stage.reload = [replace(t, again=t.name in again) for t in loads]
        stage.kept = [t for t in loads if t.name in kept]
        stage.fresh = [t for t in loads if t.name not in kept]
        stage.late = [t for t in loads if t.name not in before | {e.name for e in early}]

    def _whole(self) -> str | None:
        """An input whose shape is that of the whole problem."""
        read = zip(self.analysis.uses, self.read, strict=True)
        return next((tensor.taken for use, tensor in read if self._is_whole(use)), None)

    def _is_whole(self, use: TensorUse) -> bool:
        return use.role == "element" and use.node.shape == self.analysis.shape and not is_taken(use.node)

    def _of_whole_rank(self, code: str) -> str:
        """Code of a shape with the ones in front that no input has."""
        ranks = [len(use.node.shape) for use in self.analysis.uses if use.space == "full"]
        return with_ones_in_front(code, ranks, self.analysis.rank)

    def _full_shape(self) -> str:
        whole = self._whole()
        names = [t.name for t in self.inputs]
        if whole is not None:
            return self._of_slices(f"tensors[{names.index(whole)}].shape", 1)
        return self._of_whole_rank(self._broadcast([f"tensors[{at}]" for at in range(len(self.inputs))]))

    def _of_slices(self, shape: str, count: int) -> str:
        """Code of the whole's shape, in rows of so many slices."""
        slices = next((t.slices for t in self.inputs if t.name == self._whole()), count)
        if slices == count:
            return shape
        return f"(*{shape}[:-1], {shape}[-1] // {slices}{f' * {count}' if count > 1 else ''})"

    def _shape_code(self) -> str:
        whole = self._whole()
        if whole is not None:
            return f"{whole}.shape"
        if self.analysis.slices > 1:
            raise UnmatchedError("no input has the sizes of the slices of rows", operation="")
        return self._of_whole_rank(self._broadcast([tensor.name for tensor in self.inputs]))

    def _broadcast(self, names: Sequence[str]) -> str:
        """Code of the shape that the inputs of these names broadcast to."""
        full = [(name, use.node) for name, use in zip(names, self.analysis.uses, strict=True) if use.space == "full"]
        if any(is_taken(node) for _, node in full):
            self._require_all_sizes([node for _, node in full])
        shapes = [TakenInput.of(node).shape_code(name) if is_taken(node) else f"{name}.shape" for name, node in full]
        return f"torch.broadcast_shapes({', '.join(shapes)})"

    def _require_all_sizes(self, nodes: Sequence[Node]) -> None:
        """UnmatchedError where places alone say how many there are, as those of a line that is padded with zeros."""
        given = broadcast([TakenInput.of(node).given_shape(node) if is_taken(node) else node.shape for node in nodes])
        if (1,) * (self.analysis.rank - len(given)) + given != self.analysis.shape:
            raise UnmatchedError("no input has all sizes of what is read at places", operation="take")

    @property
    def _kept_shape(self) -> tuple[int, ...]:
        """The whole shape with 1 in place of the columns."""
        reduced = self.analysis.reduced
        return tuple(1 if dim in reduced else size for dim, size in enumerate(self.analysis.shape))

    def _role_of(self, output: Output) -> str:
        """That of an output as it is allocated: a row value with or without the reduced dimensions."""
        if output.role != "row":
            return output.role
        node, rows = output.node, self.analysis.rows_shape
        reshaped = node.op == "reshape" and node.shape != rows  # what is viewed in another shape is allocated as it was
        shape = node.inputs[0].shape if reshaped else node.shape
        return "kept row" if shape == self._kept_shape != rows else "row"

    def _rows_code(self, outputs: list[Tensor]) -> str:
        """Code of the number of rows: of an output's shape, or of the whole input's beside nothing but sums of rows."""
        output = next((t for t in reversed(outputs) if t.role != "sum"), None)
        if output is None:
            output = next((t for t in self.inputs if t.name == self._whole()), None)
        if output is None:
            raise UnmatchedError("no input has all elements of the rows that are summed up", operation="partial_sums")
        if output.role != "element":
            return f"math.prod({output.name}.shape)"
        if self.analysis.is_trailing:
            return f"math.prod({output.name}.shape[:{self.analysis.rows_rank}])"
        return " * ".join(f"{output.name}.shape[{dim}]" for dim in self.analysis.kept) or "1"

    def _allocation(self, output: Output) -> str:
        node, whole = output.node, self._whole()
        any_input = whole or self.inputs[0].name
        dtype = f"torch.{node.dtype}"
        if output.role == "element" and whole is not None and self._of_slices(whole, len(output.slices) or 1) == whole:
            same = node.dtype == next(t.dtype for t in self.inputs if t.name == whole) and node.dtype != "bool"
            dtype = "" if same else f"dtype={_store_dtype(node.dtype)}, "
            return f"{output.name} = torch.empty_like({whole}, {dtype}memory_format=torch.contiguous_format)"
        dtype = _store_dtype(node.dtype)
        shapes = {argument.name: argument.shape for argument in self.graph.arguments}
        twin = next((t for t in self.inputs if t.role == "row" and shapes.get(t.name) == node.shape), None)
        if output.role == "row" and twin is not None:
            # 2 us on the host instead of 4 for torch.empty with a shape and a device
            return (
                f"{output.name} = torch.empty_like({twin.name}, dtype={dtype}, memory_format=torch.contiguous_format)"
            )
        if output.role == "sum":
            columns = f"*{self._shape_code()}[{self.analysis.rows_rank}:]"
            return f"{output.name} = torch.empty((GROUPS, {columns}), dtype={dtype}, device={any_input}.device)"
        elements = self._of_slices(self._shape_code(), len(output.slices) or 1)
        shape = elements if output.role == "element" else self._rows_shape_code(output)
        return f"{output.name} = torch.empty({shape}, dtype={dtype}, device={any_input}.device)"

    def _rows_shape_code(self, output: Output) -> str:
        """The shape in which an output of row values is allocated."""
        whole, analysis, keeps = self._shape_code(), self.analysis, self._role_of(output) == "kept row"
        if analysis.is_trailing:
            rows = f"{whole}[:{analysis.rows_rank}]"
            return f"(*{rows}, {', '.join(['1'] * len(analysis.reduced))})" if keeps else rows
        dims = range(analysis.rank) if keeps else analysis.kept
        if self._whole() is None:
            size, which = ("1 if dim in REDUCED else size", "") if keeps else ("size", " if dim not in REDUCED")
            return f"[{size} for dim, size in enumerate({whole}){which}]"
        sizes = ["1" if dim in analysis.reduced else f"{whole}[{dim}]" for dim in dims]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def _result(self, output: Output) -> str:
        code = f"{output.name}.view(torch.bool)" if output.node.dtype == "bool" else output.name
        if output.role == "sum":
            return code
        *rows, columns = self.analysis.shape
        shape, as_allocated = output.node.shape, (*rows, columns * (len(output.slices) or 1))
        if output.role == "row":
            as_allocated = self._kept_shape if self._role_of(output) == "kept row" else self.analysis.rows_shape
        if shape == as_allocated:
            return code
        if output.node.op != "reshape" or output.node.inputs[0].shape != as_allocated:
            raise UnmatchedError(f"{output.node.origin or 'reshape'} reshapes an output", operation="reshape")
        return Reshaping.of(output.node).view.code(code, self.arguments)


def _stored(output: Output) -> list[Tensor]:
    """What is stored of an output of elements: all of it, or each slice."""
    if not output.slices:
        return [Tensor(output.name, output.role, output.node.dtype)]
    slices = enumerate(output.slices)
    return [Tensor(each.name, each.role, each.node.dtype, whole=output.name, number=at) for at, each in slices]


def _store_dtype(dtype: str) -> str:
    return "torch.uint8" if dtype == "bool" else f"torch.{dtype}"
