"""The loops of a row-reduction kernel as text: one stage a round of reductions, then the stage that writes the outputs.

A stage visits the row's elements once, updates the accumulators of its reductions, and combines them over the threads of
the row. Row values (means, maxima, …) are statements between the stages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.expressions import COMPUTE_TYPE, STORAGE_TYPE, Emitter, literal
from cutesmith.patterns.graph import Node
from cutesmith.patterns.rows_analysis import RowsAnalysis, Space, TensorUse, output_space

COMBINES = {
    "combine_add": '''
def combine_add(a, b):
    return a + b
''',
    "combine_mul": '''
def combine_mul(a, b):
    return a * b
''',
    "combine_or": '''
def combine_or(a, b):
    return a | b
''',
    "combine_and": '''
def combine_and(a, b):
    return a & b
''',
    "combine_max_f32": '''
def combine_max_f32(a, b):
    return cute.arch.fmax(a, b, nan=True)  # NaN wins, as in torch.amax
''',
    "combine_min_f32": '''
def combine_min_f32(a, b):
    return cute.arch.fmin(a, b, nan=True)  # NaN wins, as in torch.amin
''',
    "combine_max_f64": '''
def combine_max_f64(a, b):
    return cute.math.max(a, b, propagate_nan=True)
''',
    "combine_min_f64": '''
def combine_min_f64(a, b):
    return cute.math.min(a, b, propagate_nan=True)
''',
    "combine_max_int": '''
@cute.jit
def combine_max_int(a, b):
    return a if a > b else b
''',
    "combine_min_int": '''
@cute.jit
def combine_min_int(a, b):
    return a if a < b else b
''',
    "combine_argmax": '''
@cute.jit
def combine_argmax(a, at_a, b, at_b):
    """The larger value and its place; the earlier place on a tie; NaN is larger than any number."""
    larger = (b > a) | ((b != b) & (a == a))
    tied = (b == a) | ((b != b) & (a != a))
    better = larger | (tied & (at_b < at_a))
    return (b if better else a), (at_b if better else at_a)
''',
    "combine_argmin": '''
@cute.jit
def combine_argmin(a, at_a, b, at_b):
    """The smaller value and its place; the earlier place on a tie; NaN is smaller than any number."""
    smaller = (b < a) | ((b != b) & (a == a))
    tied = (b == a) | ((b != b) & (a != a))
    better = smaller | (tied & (at_b < at_a))
    return (b if better else a), (at_b if better else at_a)
''',
}
"""Device functions that combine two partial states of a reduction, as source text."""

_INT_LIMITS = {"Int32": (-(2**31), 2**31 - 1), "Int64": (-(2**63), 2**63 - 1)}


@dataclass
class Accumulator:
    """One reduction's running state: variable names, their start values, and the device function that combines two."""

    node: Node
    names: tuple[str, ...]
    starts: tuple[str, ...]
    combine: str
    types: tuple[str, ...]


@dataclass
class Stage:
    """One visit to the row: statements before the loop, what it loads and stores, and inside it."""

    title: str
    before: list[str] = field(default_factory=list)
    loads: list[TensorUse] = field(default_factory=list)
    unpack: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    accumulators: list[Accumulator] = field(default_factory=list)
    stores: list[Output] = field(default_factory=list)


@dataclass
class Output:
    """One output tensor: its name, role (`element` or `row`), and the torch dtype."""

    name: str
    role: str
    node: Node


class StageWriter:
    """Prints a `RowsAnalysis` as stages; `helpers` collects the device functions that the statements call."""

    def __init__(self, analysis: RowsAnalysis, *, fast: bool, scalars: dict[int, str]) -> None:
        self.analysis = analysis
        self.fast = fast
        self.helpers: set[str] = set()
        self.combines: set[str] = set()
        self.scalars = scalars
        self.prologue: list[str] = []  # row inputs, loaded before anything else
        self._row_names: dict[Space, dict[int, str]] = {"full": {}, "row": {}}
        self._hoisted: dict[tuple[int, str], str] = {}
        self._pending: list[str] = []  # row statements since the last stage
        self._uses = {(id(use.node), use.space): use for use in analysis.uses}
        self._counter = 0
        for use in analysis.uses:
            if use.role == "row":
                self._load_row(use)

    def write(self, outputs: list[Output]) -> tuple[list[Stage], list[str], list[str]]:
        """All stages, the row statements that follow the last one, and the stores of the row outputs."""
        stages = []
        for level, reductions in enumerate(self.analysis.reductions):
            stages.append(self._reduction_stage(level, reductions, self._ready(outputs, level)))
        last = [output for output in outputs if output.role == "element" and not self._written(output, stages)]
        if last:
            stages.append(self._output_stage(last))
        rows = [self._row_output(output) for output in outputs if output.role == "row"]
        statements, self._pending = self._pending, []
        return stages, statements, rows

    def _ready(self, outputs: list[Output], level: int) -> list[Output]:
        return [o for o in outputs if o.role == "element" and self.analysis.level(o.node) == level]

    def _written(self, output: Output, stages: list[Stage]) -> bool:
        return any(output in stage.stores for stage in stages)

    def _load_row(self, use: TensorUse) -> None:
        name = f"{use.name}_row"
        kind = COMPUTE_TYPE[use.node.dtype]
        loaded = f"m_{use.name}[read_row]"
        code = f"{loaded} != 0" if use.node.dtype == "bool" else f"{loaded}.to({kind})"
        self.prologue.append(f"{name} = {code}")
        self._row_names[use.space][id(use.node)] = name

    # Row values

    def row_value(self, node: Node, space: Space) -> str:
        """The name or literal of a value that is constant along the row."""
        return self._row_emitter(space).value(node)

    def _row_emitter(self, space: Space) -> Emitter:
        emitter = Emitter(
            lambda node: self._row_leaf(node, space),
            fast=self.fast,
            names=self._row_names[space],
            helpers=self.helpers,
            prefix="row_",
        )
        emitter.lines = self._pending
        return emitter

    def _row_leaf(self, node: Node, space: Space) -> str | None:
        if node.op == "scalar":
            return self.scalars[int(node.attrs["index"])]
        if node.is_reduction:
            raise AssertionError(f"{node.op} is read before its stage")
        if node.op == "degrees":
            return self._degrees(node, space)
        if node.op == "reshape":
            (child,) = node.inputs
            return self.row_value(child, self.analysis.child_space(node, child, space))
        if node.op == "gather":
            return self._gather(node)
        if node.op == "iota":
            return self._row_coordinate(node)
        return None

    def _degrees(self, node: Node, space: Space) -> str:
        total = self.row_value(node.inputs[0], space)
        kind = COMPUTE_TYPE[node.dtype]
        correction = node.attrs["correction"]
        self._pending.append(f"{total}_var = {total} / {kind}(max(plan.columns - {correction}, 0))")
        return f"{total}_var"

    def _row_coordinate(self, node: Node) -> str:
        if self.analysis.rows_rank != 1:
            raise UnmatchedError(f"{node.origin or 'iota'} counts one of several row dimensions", operation="iota")
        return "row.to(Int64)"

    def _gather(self, node: Node) -> str:
        """x[row, index]: the expression of x evaluated at one column, from scalar loads that hit L2."""
        x, index = node.inputs
        at = self._new("column")
        picked = self.row_value(index, "full")
        self._pending.append(f"{at} = {picked}.to(Int32)")
        emitter = Emitter(
            lambda child: self._leaf_at(child, at), fast=self.fast, names={}, helpers=self.helpers, prefix=f"{at}_"
        )
        value = emitter.value(x)
        self._pending.extend(emitter.lines)
        return value

    def _leaf_at(self, node: Node, at: str) -> str | None:
        if not self.analysis.is_element(node, "full") and node.op != "constant":
            return self.row_value(node, "full")
        if node.op == "iota":
            return f"{at}.to(Int64)"
        if node.op != "input":
            return None
        use = self._uses[id(node), "full"]
        coordinate = f"(read_row, {at})" if use.role == "element" else at
        loaded = f"m_{use.name}[{coordinate}]"
        return f"({loaded} != 0)" if node.dtype == "bool" else f"{loaded}.to({COMPUTE_TYPE[node.dtype]})"

    def _new(self, stem: str) -> str:
        self._counter += 1
        return f"{stem}_{self._counter}"

    # Stages

    def _reduction_stage(self, level: int, reductions: list[Node], ready: list[Output]) -> Stage:
        accumulators = [self._accumulator(node) for node in reductions]
        stage = Stage(", ".join(f"{node.op} of the row" for node in reductions))
        stage.accumulators = accumulators
        emitter = self._element_emitter(stage)
        for accumulator in accumulators:
            self._accumulate(emitter, accumulator)
        self._store(emitter, ready, stage)
        self._close(stage, emitter)
        for accumulator in accumulators:
            self._row_names["full"][id(accumulator.node)] = self._finish(accumulator, stage)
        return stage

    def _output_stage(self, outputs: list[Output]) -> Stage:
        stage = Stage("write " + ", ".join(output.name for output in outputs))
        emitter = self._element_emitter(stage)
        self._store(emitter, outputs, stage)
        self._close(stage, emitter)
        return stage

    def _close(self, stage: Stage, emitter: Emitter) -> None:
        stage.body = emitter.lines
        stage.before, self._pending = self._pending, []

    def _element_emitter(self, stage: Stage) -> Emitter:
        return Emitter(
            lambda node: self._element_leaf(node, stage),
            fast=self.fast,
            names={},
            helpers=self.helpers,
            hoist=self._hoist,
        )

    def _hoist(self, node: Node, suffix: str, code: str) -> str | None:
        if self.analysis.is_element(node, "full") or node.op == "constant":
            return None
        key = (id(node), suffix)
        if key not in self._hoisted:
            value = self.row_value(node, "full")
            name = f"{value}_{suffix}" if value.isidentifier() else self._new(suffix)
            self._pending.append(f"{name} = {code.format(value)}")
            self._hoisted[key] = name
        return self._hoisted[key]

    def _element_leaf(self, node: Node, stage: Stage) -> str | None:
        if node.op == "constant":
            return None
        if not self.analysis.is_element(node, "full"):
            return self.row_value(node, "full")
        if node.op == "iota":
            return self._column_coordinate(node)
        if node.op != "input":
            return None
        use = self._uses[id(node), "full"]
        if use not in stage.loads:
            stage.loads.append(use)
            stage.unpack.append(f"{use.name}_vector = {self._unpacked(use)}")
        return f"{use.name}_vector[v] != 0" if node.dtype == "bool" else f"{use.name}_vector[v]"

    def _unpacked(self, use: TensorUse) -> str:
        loaded = f"r_{use.name}[None, c].load()"
        kind = COMPUTE_TYPE[use.node.dtype]
        return loaded if use.node.dtype == "bool" or STORAGE_TYPE[use.node.dtype] == kind else f"{loaded}.to({kind})"

    def _column_coordinate(self, node: Node) -> str:
        if self.analysis.columns_rank != 1:
            raise UnmatchedError(f"{node.origin or 'iota'} counts one of several column dimensions", operation="iota")
        return "(index * plan.vector + v).to(Int64)"

    def _store(self, emitter: Emitter, outputs: list[Output], stage: Stage) -> None:
        for output in outputs:
            kind = store_type(output.node.dtype)
            emitter.lines.append(f"f_{output.name}[v] = {emitter.as_type(_root(output.node), kind)}")
            stage.stores.append(output)

    def _row_output(self, output: Output) -> str:
        space = output_space(self.analysis, output.node)
        kind, storage = store_type(output.node.dtype), STORAGE_TYPE[output.node.dtype]
        code = self._row_emitter(space).as_type(output.node, kind)
        return f"m_{output.name}[row] = {code}" + (f".to({storage})" if kind != storage else "")

    # Reductions

    def _accumulator(self, node: Node) -> Accumulator:
        name = self._new(node.op)
        kind = COMPUTE_TYPE[node.dtype]
        if node.op in ("argmax", "argmin"):
            value = COMPUTE_TYPE[node.inputs[0].dtype]
            value = "Int32" if value == "Boolean" else value
            combine = f"combine_{node.op}"
            self.combines.add(combine)
            start = _lowest(value) if node.op == "argmax" else _highest(value)
            return Accumulator(node, (f"{name}_value", name), (start, "Int32(0x7FFFFFFF)"), combine, (value, "Int32"))
        if node.op in ("any", "all"):
            start, combine = ("Int32(0)", "combine_or") if node.op == "any" else ("Int32(1)", "combine_and")
            self.combines.add(combine)
            return Accumulator(node, (name,), (start,), combine, ("Int32",))
        family = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}[node.op]
        kind = "Int32" if kind == "Boolean" else kind
        start = {"add": literal(0, kind), "mul": literal(1, kind), "max": _lowest(kind), "min": _highest(kind)}[family]
        combine = f"combine_{family}"
        if family in ("max", "min"):
            combine = {"Float32": f"{combine}_f32", "Float64": f"{combine}_f64"}.get(kind, f"{combine}_int")
        self.combines.add(combine)
        return Accumulator(node, (name,), (start,), combine, (kind,))

    def _accumulate(self, emitter: Emitter, accumulator: Accumulator) -> None:
        node = accumulator.node
        x = node.inputs[0]
        kind = accumulator.types[0]
        if node.op in ("any", "all"):
            condition = emitter.as_type(x, "Boolean")
            value = f"(Int32(1) if {condition} else Int32(0))"
        else:
            value = emitter.as_type(x, kind)
        (start, *_) = accumulator.starts
        item = self._new("item")
        emitter.lines.append(f"{item} = {value}")
        emitter.lines.append(f"if const_expr(not plan.even):\n    {item} = {item} if index < plan.vectors else {start}")
        state, arguments = ", ".join(accumulator.names), item
        if len(accumulator.names) == 2:
            # A padded column must lose against every real one, also where the real ones are -inf.
            emitter.lines.append(f"{item}_at = index * plan.vector + v")
            emitter.lines.append(f"if const_expr(not plan.even):\n    {item}_at = {item}_at if index < plan.vectors else Int32(0x7FFFFFFF)")
            arguments = f"{item}, {item}_at"
        emitter.lines.append(f"{state} = {accumulator.combine}({state}, {arguments})")

    def _finish(self, accumulator: Accumulator, stage: Stage) -> str:
        node, name = accumulator.node, accumulator.names[-1]
        if node.op == "mean":
            self._pending.append(f"{name} = {name} / {accumulator.types[0]}(plan.columns)")
        if node.op in ("any", "all"):
            self._pending.append(f"{name} = {name} != 0")
        elif COMPUTE_TYPE[node.dtype] == "Boolean":
            self._pending.append(f"{name} = {name} != 0")
        if node.op in ("argmax", "argmin"):
            self._pending.append(f"{name}_at = {name}.to(Int64)")
            return f"{name}_at"
        return name


def store_type(dtype: str) -> str:
    """DSL type of an output's register fragment before it is narrowed to its storage type."""
    return "Int32" if dtype == "bool" else COMPUTE_TYPE[dtype]


def _root(node: Node) -> Node:
    """An element output that is only reshaped at the very end holds the same elements in the same order."""
    return node.inputs[0] if node.op == "reshape" else node


def _lowest(kind: str) -> str:
    return f"{kind}(-math.inf)" if kind.startswith("Float") else f"{kind}({_INT_LIMITS[kind][0]})"


def _highest(kind: str) -> str:
    return f"{kind}(math.inf)" if kind.startswith("Float") else f"{kind}({_INT_LIMITS[kind][1]})"
