"""The loops of a row-reduction kernel as text: one stage a round of reductions, then the stage that writes the outputs.

A stage visits the row's elements once, updates the accumulators of its reductions, and combines them over the threads of
the row. Row values (means, maxima, …) are statements between the stages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.expressions import COMPUTE_TYPE, STORAGE_TYPE, Emitter, literal
from cutesmith.patterns.graph import Node
from cutesmith.patterns.rows_analysis import RowsAnalysis, Space, TensorUse, output_space

LOG2E = repr(math.log2(math.e))

COMBINES = {
    "shift_of": '''
@cute.jit
def shift_of(maximum: Float32) -> Float32:
    """What to subtract before exp: the maximum, or 0 where all is -inf (exp gives 0 there, not NaN)."""
    return maximum if maximum > Float32(-math.inf) else Float32(0.0)
''',
    "rescale_fast": '''
def rescale_fast(maximum, shift):
    """exp(maximum - shift): brings a sum of exponentials to a new maximum."""
    return cute.math.exp2(maximum * 1.4426950408889634 - shift * 1.4426950408889634, fastmath=True)
''',
    "rescale": '''
def rescale(maximum, shift):
    """exp(maximum - shift): brings a sum of exponentials to a new maximum."""
    return cute.math.exp(maximum - shift)
''',
    "quotient": '''
@cute.jit
def quotient(total: Float32, count: Float32) -> Float32:
    """total / count, or 0 for no elements."""
    return total / count if count > Float32(0.0) else Float32(0.0)
''',
    "count_here": '''
@cute.jit
def count_here(b, place: Int32, plan: cutlass.Constexpr) -> Float32:
    """How many elements of the row this thread holds in its block `b` of vectors."""
    count = Float32(plan.chunks * plan.vector)
    if const_expr(not plan.even):
        held = Int32(0)
        for c in range_constexpr(plan.chunks):
            inside = (b * plan.chunks + c) * (plan.threads * plan.cluster) + place < plan.vectors
            held = held + (Int32(plan.vector) if inside else Int32(0))
        count = held.to(Float32)
    return count
''',
    "combine_moments": '''
def combine_moments(count, mean, deviation, other_count, other_mean, other_deviation):
    """Count, mean and sum of squared deviations of two sets together (Chan, Golub, LeVeque 1983)."""
    total = count + other_count
    gap = other_mean - mean
    share = quotient(other_count, total)
    return total, mean + gap * share, deviation + other_deviation + gap * gap * count * share
''',
    "combine_add": """
def combine_add(a, b):
    return a + b
""",
    "combine_mul": """
def combine_mul(a, b):
    return a * b
""",
    "combine_or": """
def combine_or(a, b):
    return a | b
""",
    "combine_and": """
def combine_and(a, b):
    return a & b
""",
    "combine_max_f32": """
def combine_max_f32(a, b):
    return cute.arch.fmax(a, b, nan=True)  # NaN wins, as in torch.amax
""",
    "combine_min_f32": """
def combine_min_f32(a, b):
    return cute.arch.fmin(a, b, nan=True)  # NaN wins, as in torch.amin
""",
    "combine_max_f64": """
def combine_max_f64(a, b):
    return cute.math.max(a, b, propagate_nan=True)
""",
    "combine_min_f64": """
def combine_min_f64(a, b):
    return cute.math.min(a, b, propagate_nan=True)
""",
    "combine_max_int": """
@cute.jit
def combine_max_int(a, b):
    return a if a > b else b
""",
    "combine_min_int": """
@cute.jit
def combine_min_int(a, b):
    return a if a < b else b
""",
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
    """One reduction's running state: variable names, their start values, and the device function that combines two.

    `kind` is `plain`, or a fused pair: `online` (maximum, sum of exponentials) or `moments` (count, mean, squared deviations).
    """

    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    starts: tuple[str, ...]
    combine: str
    types: tuple[str, ...]
    kind: str = "plain"

    @property
    def node(self) -> Node:
        """The reduction, or the first half of a fused pair."""
        return self.nodes[0]


@dataclass
class Phase:
    """One loop over the vectors that a thread holds: what it unpacks, its statements an element, and what follows it."""

    unpack: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


@dataclass
class Stage:
    """One visit to the row: statements before the loop, what it loads and stores, and inside it."""

    title: str
    number: int = 0
    before: list[str] = field(default_factory=list)
    loads: list[TensorUse] = field(default_factory=list)
    opening: list[str] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
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
        self.gathers: list[str] = []  # single elements picked by a row input, loaded right after the row
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
        early = self.analysis.level(index) == 0
        if early:
            self._early_index(at, index)
        else:
            picked = self.row_value(index, "full")
            self._pending.append(f"{at} = {picked}.to(Int32)")
        emitter = Emitter(
            lambda child: self._leaf_at(child, at, early),
            fast=self.fast,
            names={},
            helpers=self.helpers,
            prefix=f"{at}_",
        )
        value = emitter.value(x)
        self._pending.extend(emitter.lines)
        return value

    def _early_index(self, at: str, index: Node) -> None:
        """Compute a column index from row inputs alone, ahead of all row statements, so that its load starts early."""
        saved = self._pending, self._row_names
        loaded = {
            (space, id(use.node)): use for use in self.analysis.uses if use.role == "row" for space in [use.space]
        }
        names = {
            space: {key: known[key] for where, key in loaded if where == space} for space, known in saved[1].items()
        }
        self._pending, self._row_names = self.gathers, names
        picked = self.row_value(index, "full")
        self.gathers.append(f"{at} = {picked}.to(Int32)")
        self._pending, self._row_names = saved

    def _leaf_at(self, node: Node, at: str, early: bool) -> str | None:
        if not self.analysis.is_element(node, "full") and node.op != "constant":
            return self.row_value(node, "full")
        if node.op == "iota":
            return f"{at}.to(Int64)"
        if node.op != "input":
            return None
        use = self._uses[id(node), "full"]
        coordinate = f"(read_row, {at})" if use.role == "element" else at
        loaded = f"m_{use.name}[{coordinate}]"
        code = f"({loaded} != 0)" if node.dtype == "bool" else f"{loaded}.to({COMPUTE_TYPE[node.dtype]})"
        (self.gathers if early else self._pending).append(f"{use.name}_{at} = {code}")
        return f"{use.name}_{at}"

    def _new(self, stem: str) -> str:
        self._counter += 1
        return f"{stem}_{self._counter}"

    # Stages

    def _reduction_stage(self, level: int, reductions: list[Node], ready: list[Output]) -> Stage:
        seconds = {id(second): first for second, first in self._pairs(reductions)}
        stage = Stage(", ".join(f"{node.op} of the row" for node in reductions), level + 1)
        partners = {id(first): node for node in reductions for first in [seconds.get(id(node))] if first is not None}
        emitter = self._element_emitter(stage)
        fused: list[Accumulator] = []
        for node in reductions:
            if id(node) in seconds:
                continue
            accumulator = self._accumulator(node, partners.get(id(node)))
            stage.accumulators.append(accumulator)
            if accumulator.kind == "plain":
                self._accumulate(emitter, accumulator, stage)
            else:
                fused.append(accumulator)
                self._first_phase(emitter, accumulator, stage)
        self._store(emitter, ready, stage)
        self._phase(stage, emitter)
        if fused:
            self._second_phases(stage, fused)
        stage.before, self._pending = self._pending, []
        for accumulator in stage.accumulators:
            self._finish(accumulator)
        return stage

    def _pairs(self, reductions: list[Node]) -> list[tuple[Node, Node]]:
        partners = self.analysis.partners
        return [(node, partners[id(node)]) for node in reductions if id(node) in partners]

    def _output_stage(self, outputs: list[Output]) -> Stage:
        stage = Stage("write " + ", ".join(output.name for output in outputs), len(self.analysis.reductions) + 1)
        emitter = self._element_emitter(stage)
        self._store(emitter, outputs, stage)
        self._phase(stage, emitter)
        stage.before, self._pending = self._pending, []
        return stage

    def _phase(self, stage: Stage, emitter: Emitter) -> Phase:
        """Close the phase that `emitter` has filled; its unpacking was collected on the way."""
        phase = Phase(self._unpacks, emitter.lines)
        self._unpacks = []
        stage.phases.append(phase)
        return phase

    def _element_emitter(self, stage: Stage) -> Emitter:
        self._unpacks: list[str] = []
        prefix = f"s{stage.number}{'b' if stage.phases else ''}_"
        return Emitter(
            lambda node: self._element_leaf(node, stage, prefix),
            fast=self.fast,
            names={},
            helpers=self.helpers,
            prefix=prefix,
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

    def _element_leaf(self, node: Node, stage: Stage, prefix: str) -> str | None:
        if node.op == "constant":
            return None
        if not self.analysis.is_element(node, "full"):
            return self.row_value(node, "full")
        if node.op == "iota":
            return f"(index_{stage.number} * plan.vector + v).to(Int64)" if self._one_column_dimension(node) else None
        if node.op != "input":
            return None
        use = self._uses[id(node), "full"]
        if use not in stage.loads:
            stage.loads.append(use)
        self._unpacks.append(f"{prefix}{use.name} = {self._unpacked(use)}")
        element = f"{prefix}{use.name}[v]"
        return f"({element} != 0)" if node.dtype == "bool" else element

    def _unpacked(self, use: TensorUse) -> str:
        loaded = f"r_{use.name}[None, c].load()"
        kind = COMPUTE_TYPE[use.node.dtype]
        return loaded if use.node.dtype == "bool" or STORAGE_TYPE[use.node.dtype] == kind else f"{loaded}.to({kind})"

    def _one_column_dimension(self, node: Node) -> bool:
        if self.analysis.columns_rank != 1:
            raise UnmatchedError(f"{node.origin or 'iota'} counts one of several column dimensions", operation="iota")
        return True

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

    def _accumulator(self, node: Node, partner: Node | None) -> Accumulator:
        name = self._new(node.op)
        kind = COMPUTE_TYPE[node.dtype]
        if partner is not None:
            return self._fused_accumulator(node, partner)
        if node.op in ("argmax", "argmin"):
            value = COMPUTE_TYPE[node.inputs[0].dtype]
            value = "Int32" if value == "Boolean" else value
            combine = f"combine_{node.op}"
            self.combines.add(combine)
            start = _lowest(value) if node.op == "argmax" else _highest(value)
            return Accumulator(
                (node,), (f"{name}_value", name), (start, "Int32(0x7FFFFFFF)"), combine, (value, "Int32")
            )
        if node.op in ("any", "all"):
            start, combine = ("Int32(0)", "combine_or") if node.op == "any" else ("Int32(1)", "combine_and")
            self.combines.add(combine)
            return Accumulator((node,), (name,), (start,), combine, ("Int32",))
        family = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}[node.op]
        kind = "Int32" if kind == "Boolean" else kind
        start = {"add": literal(0, kind), "mul": literal(1, kind), "max": _lowest(kind), "min": _highest(kind)}[family]
        combine = f"combine_{family}"
        if family in ("max", "min"):
            combine = {"Float32": f"{combine}_f32", "Float64": f"{combine}_f64"}.get(kind, f"{combine}_int")
        self.combines.add(combine)
        return Accumulator((node,), (name,), (start,), combine, (kind,))

    def _fused_accumulator(self, node: Node, partner: Node) -> Accumulator:
        if node.op == "max":
            names = (self._new("max"), self._new("sum_exp"))
            self.combines |= {"combine_max_f32", "combine_add", "shift_of", self._rescale}
            starts, kind = ("Float32(-math.inf)", "Float32(0.0)"), "online"
        else:
            names = (self._new("count"), self._new("mean"), self._new("deviation"))
            self.combines |= {"combine_add", "combine_moments", "quotient"}
            starts, kind = ("Float32(0.0)",) * 3, "moments"
        return Accumulator((node, partner), names, starts, self._rescale, ("Float32",) * len(names), kind)

    @property
    def _rescale(self) -> str:
        return "rescale_fast" if self.fast else "rescale"

    def _first_phase(self, emitter: Emitter, accumulator: Accumulator, stage: Stage) -> None:
        value = emitter.as_type(accumulator.node.inputs[0], "Float32")
        if accumulator.kind == "online":
            top = f"{accumulator.names[0]}_next"
            stage.opening.append(f"{top} = {accumulator.names[0]}")
            self._masked(
                emitter, stage, value, "Float32(-math.inf)", lambda item: f"{top} = combine_max_f32({top}, {item})"
            )
        else:
            total = f"{accumulator.names[1]}_total"
            stage.opening.append(f"{total} = Float32(0.0)")
            self._masked(emitter, stage, value, "Float32(0.0)", lambda item: f"{total} = {total} + {item}")

    def _masked(self, emitter: Emitter, stage: Stage, value: str, neutral: str, use: Callable[[str], str]) -> None:
        """`use` of an element, or of `neutral` where the vector lies past the end of the row."""
        item = self._new("item")
        emitter.lines.append(f"{item} = {value}")
        mask = f"{item} = {item} if index_{stage.number} < plan.vectors else {neutral}"
        emitter.lines.append(f"if const_expr(not plan.even):\n    {mask}")
        emitter.lines.append(use(item))

    def _second_phases(self, stage: Stage, fused: list[Accumulator]) -> None:
        first = stage.phases[-1]
        emitter = self._element_emitter(stage)
        closing: list[str] = []
        for accumulator in fused:
            value = emitter.as_type(accumulator.node.inputs[0], "Float32")
            if accumulator.kind == "online":
                self._sum_exponentials(first, emitter, accumulator, stage, value)
            else:
                self._sum_deviations(first, emitter, accumulator, stage, value, closing)
        self._phase(stage, emitter).after.extend(closing)

    def _sum_exponentials(
        self, first: Phase, emitter: Emitter, accumulator: Accumulator, stage: Stage, value: str
    ) -> None:
        top, total = accumulator.names
        first.after += [
            f"{top}_shift = shift_of({top}_next)",
            f"{total} = {total} * {self._rescale}({top}, {top}_shift)",
            f"{top} = {top}_next",
        ]
        shifted = f"{value} * {LOG2E} - {top}_shift * {LOG2E}"
        power = f"cute.math.exp2({shifted}, fastmath=True)" if self.fast else f"cute.math.exp({value} - {top}_shift)"
        self._masked(emitter, stage, power, "Float32(0.0)", lambda item: f"{total} = {total} + {item}")

    def _sum_deviations(
        self, first: Phase, emitter: Emitter, accumulator: Accumulator, stage: Stage, value: str, closing: list[str]
    ) -> None:
        count, mean, deviation = accumulator.names
        first.after += [
            f"{count}_here = count_here(b, place, plan)",
            f"{mean}_here = quotient({mean}_total, {count}_here)",
            f"{deviation}_here = Float32(0.0)",
        ]
        self.combines.add("count_here")
        square = f"({value} - {mean}_here) * ({value} - {mean}_here)"
        self._masked(
            emitter, stage, square, "Float32(0.0)", lambda item: f"{deviation}_here = {deviation}_here + {item}"
        )
        state = ", ".join(accumulator.names)
        here = ", ".join(f"{name}_here" for name in accumulator.names)
        closing.append(f"{state} = combine_moments({state}, {here})")

    def _accumulate(self, emitter: Emitter, accumulator: Accumulator, stage: Stage) -> None:
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
        index = f"index_{stage.number}"
        state, arguments = ", ".join(accumulator.names), item
        masks = [f"{item} = {item} if {index} < plan.vectors else {start}"]
        if len(accumulator.names) == 2:
            # A padded column must lose against every real one, also where the real ones are -inf.
            emitter.lines.append(f"{item}_at = {index} * plan.vector + v")
            masks.append(f"{item}_at = {item}_at if {index} < plan.vectors else Int32(0x7FFFFFFF)")
            arguments = f"{item}, {item}_at"
        emitter.lines.append("\n    ".join(["if const_expr(not plan.even):", *masks]))
        emitter.lines.append(f"{state} = {accumulator.combine}({state}, {arguments})")

    def _finish(self, accumulator: Accumulator) -> None:
        """Statements after the threads have combined, and the names that the reductions' values have from now on."""
        names, known = accumulator.names, self._row_names["full"]
        if accumulator.kind != "plain":
            for node, name in zip(accumulator.nodes, names[-2:], strict=True):
                known[id(node)] = name
            return
        node, name = accumulator.node, names[-1]
        if node.op == "mean":
            self._pending.append(f"{name} = {name} / {accumulator.types[0]}(plan.columns)")
        if node.op in ("any", "all") or COMPUTE_TYPE[node.dtype] == "Boolean":
            self._pending.append(f"{name}_is = {name} != 0")
            name = f"{name}_is"
        if node.op in ("argmax", "argmin"):
            self._pending.append(f"{name}_at = {name}.to(Int64)")
            name = f"{name}_at"
        known[id(node)] = name


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
