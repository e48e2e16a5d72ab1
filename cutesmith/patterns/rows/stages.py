"""The loops of a row-reduction kernel as text: one stage a round of reductions, then the stage that writes the outputs.

A stage visits the row's elements once, updates the accumulators of its reductions, and combines them over the threads
of the row. Row values (means, maxima, …) are statements between the stages.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import Node, Scalar
from cutesmith.patterns.rows.analysis import Degrees, RowsAnalysis, Space, TensorUse, output_space
from cutesmith.patterns.rows.parts import Accumulator, Output, Phase, Stage, highest, lowest, root_of, store_type
from cutesmith.patterns.rows.sized import sized_code
from cutesmith.patterns.writing.expressions import Emitter, literal

LOG2E = repr(math.log2(math.e))


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
        self._unpacks: list[str] = []  # of the phase being written
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
            return self.scalars[Scalar.of(node).index]
        if node.op == "sized":
            return sized_code(self.analysis, node)
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
        correction = Degrees.of(node).correction
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
        self._unpacks = []
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
            emitter.lines.append(f"f_{output.name}[v] = {emitter.as_type(root_of(output.node), kind)}")
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
            start = lowest(value) if node.op == "argmax" else highest(value)
            return Accumulator(
                (node,), (f"{name}_value", name), (start, "Int32(0x7FFFFFFF)"), combine, (value, "Int32")
            )
        if node.op in ("any", "all"):
            start, combine = ("Int32(0)", "combine_or") if node.op == "any" else ("Int32(1)", "combine_and")
            self.combines.add(combine)
            return Accumulator((node,), (name,), (start,), combine, ("Int32",))
        family = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}[node.op]
        kind = "Int32" if kind == "Boolean" else kind
        start = {"add": literal(0, kind), "mul": literal(1, kind), "max": lowest(kind), "min": highest(kind)}[family]
        combine = f"combine_{family}"
        if family in ("max", "min"):
            combine = {"Float32": f"{combine}_f32", "Float64": f"{combine}_f64"}.get(kind, f"{combine}_int")
        self.combines.add(combine)
        return Accumulator((node,), (name,), (start,), combine, (kind,))

    def _fused_accumulator(self, node: Node, partner: Node) -> Accumulator:
        if node.op == "max":
            names: tuple[str, ...] = (self._new("max"), self._new("sum_exp"))
            self.combines |= {"combine_max_f32", "combine_add", "shift_of", self._rescale}
            starts: tuple[str, ...] = ("Float32(-math.inf)", "Float32(0.0)")
        else:
            names = tuple(map(self._new, ("count", "pivot", "residual", "deviation")))
            self.combines |= {"combine_add", "pivot_of", "squared_deviations", "count_here"}
            starts = ("Float32(0.0)",) * 4
        kind = "online" if node.op == "max" else "moments"
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
        for accumulator in fused:
            value = emitter.as_type(accumulator.node.inputs[0], "Float32")
            if accumulator.kind == "online":
                self._sum_exponentials(first, emitter, accumulator, stage, value)
            else:
                self._sum_deviations(first, emitter, accumulator, stage, value)
        self._phase(stage, emitter)

    def _sum_exponentials(
        self, first: Phase, emitter: Emitter, accumulator: Accumulator, stage: Stage, value: str
    ) -> None:
        top, total = accumulator.names
        first.after += [
            f"{top}_shift = shift_of({top}_next)",
            f"{total} = {total} * {self._rescale}({top}, {top}_shift)",
            f"{top} = {top}_next",
        ]
        # Subtract first: the scaled maximum of a row of finfo.min (a masked one) would be -inf, and exp of it NaN.
        shifted = f"({value} - {top}_shift) * {LOG2E}"
        power = f"cute.math.exp2({shifted}, fastmath=True)" if self.fast else f"cute.math.exp({value} - {top}_shift)"
        self._masked(emitter, stage, power, "Float32(0.0)", lambda item: f"{total} = {total} + {item}")

    def _sum_deviations(
        self, first: Phase, emitter: Emitter, accumulator: Accumulator, stage: Stage, value: str
    ) -> None:
        """Deviations from the thread's pivot, the mean of its first block of vectors, and their squares.

        `_moments` moves both to the mean at the end, so that how the pivot was rounded does not matter: around 1000 a
        float32 mean is off by 3e-5, which squared gaps between the means of threads would keep. The first block is
        part of the row: a pivot far from the row's mean makes the variance as large, and little cancels.
        """
        count, pivot, residual, deviation = accumulator.names
        first.after += [
            f"{count}_here = count_here(b, place, plan)",
            f"{pivot} = pivot_of({pivot}_total, {count}_here) if {count} == Float32(0.0) else {pivot}",
            f"{count} = {count} + {count}_here",
        ]
        sums = "{0} = {0} + {1}\n{2} = {2} + {1} * {1}"
        self._masked(
            emitter, stage, f"{value} - {pivot}", "Float32(0.0)", lambda item: sums.format(residual, item, deviation)
        )

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
        if accumulator.kind == "moments":
            names = self._moments(accumulator)
        if accumulator.kind != "plain":
            known.update(zip(map(id, accumulator.nodes), names[-2:], strict=True))
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

    def _moments(self, accumulator: Accumulator) -> tuple[str, str]:
        """The mean, and the squared deviations from it, of what was summed around a pivot; NaN without columns.

        The corrected two-pass algorithm of Chan, Golub and LeVeque (The American Statistician 37, 1983).
        """
        _, pivot, residual, deviation = accumulator.names
        mean = self._new("mean")
        self._pending += [
            f"{mean}_step = {residual} / Float32(plan.columns)",
            f"{mean} = {pivot} + {mean}_step",
            f"{deviation} = squared_deviations({deviation}, {residual}, {mean}_step)",
        ]
        return mean, deviation
