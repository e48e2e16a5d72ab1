"""The loops of a row-reduction kernel as text: one stage a round of reductions, then the stage that writes the outputs.

A stage visits the row's elements once, updates the accumulators of its reductions, and combines them over the threads
of the row. Row values (means, maxima, …) are statements between the stages.
"""

from __future__ import annotations

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Scalar
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, STORAGE_TYPE
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.rows.accumulators import PAST_THE_ROW, Accumulators, moments_of
from cutesmith.patterns.rows.analysis import RowsAnalysis, Space, output_space
from cutesmith.patterns.rows.combines import OPERATORS
from cutesmith.patterns.rows.moved_sums import TIMES_COLUMNS
from cutesmith.patterns.rows.parts import (
    Accumulator,
    Output,
    Phase,
    RowStore,
    Stage,
    Visit,
    root_of,
    store_type,
)
from cutesmith.patterns.rows.sized import sized_code
from cutesmith.patterns.rows.taken import is_taken
from cutesmith.patterns.rows.taken_places import PlaceWriter
from cutesmith.patterns.rows.variances import Degrees
from cutesmith.patterns.writing.expressions import Emitter, convert


class StageWriter:
    """Prints a `RowsAnalysis` as stages; `helpers` collects the device functions that the statements call."""

    def __init__(self, analysis: RowsAnalysis, visit: Visit, *, fast: bool, scalars: dict[int, str]) -> None:
        self.analysis = analysis
        self.visit = visit
        self.fast = fast
        self.helpers: set[str] = set()
        self.scalars = scalars
        self.prologue: list[str] = []  # row inputs, loaded before anything else
        self.gathers: list[str] = []  # single elements picked by a row input, loaded right after the row
        self._row_names: dict[Space, dict[int, str]] = {"full": {}, "row": {}}
        self._hoisted: dict[tuple[int, str], str] = {}
        self._pending: list[str] = []  # row statements since the last stage
        self._uses = {(id(use.node), use.space): use for use in analysis.uses}
        self._counter = 0
        self.accumulators = Accumulators(self._new, fast=fast)
        self._unpacks: list[str] = []  # of the phase being written
        self.places = PlaceWriter(analysis, visit, scalars, fast=fast, helpers=self.helpers)
        for use in (use for use in analysis.uses if use.role == "row"):
            self.prologue.append(f"{use.name}_row = {_computed(f'm_{use.name}[read_row]', use.node)}")
            self._row_names[use.space][id(use.node)] = f"{use.name}_row"

    def write(self, outputs: list[Output]) -> tuple[list[Stage], list[str], list[RowStore]]:
        """All stages, the row statements that follow the last one, and the stores of the row outputs."""
        elements = [output for output in outputs if output.role in ("element", "sum")]
        stages = []
        for level, reductions in enumerate(self.analysis.reductions):
            ready = [output for output in elements if self.analysis.level(output.node) == level]
            stages.append(self._reduction_stage(level, reductions, ready))
        done = [output for stage in stages for output in (*stage.stores, *stage.sums)]
        last = [output for output in elements if output not in done]
        if last:
            stages.append(self._output_stage(last))
        rows = [self._row_output(output) for output in outputs if output.role == "row"]
        statements, self._pending = self._pending, []
        return stages, statements, rows

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
            return sized_code(self.analysis, node, self.visit)
        if node.is_reduction:
            raise AssertionError(f"{node.op} is read before its stage")
        if node.op == "degrees":
            total, kind = self.row_value(node.inputs[0], space), COMPUTE_TYPE[node.dtype]
            divisor = f"{kind}(max({self.analysis.row_code} - {Degrees.of(node).correction}, 0))"
            variance = self._new("variance")  # of one sum there may be several, by their corrections
            self._pending.append(f"{variance} = {total} / {divisor}")
            return variance
        if node.op == TIMES_COLUMNS:
            return f"({self.row_value(node.inputs[0], space)} * Float32({self.analysis.row_code}))"
        if node.op == "reshape":
            (child,) = node.inputs
            return self.row_value(child, self.analysis.child_space(node, child, space))
        if node.op == "gather":
            return self._gather(node)
        if node.op == "iota":
            if self.analysis.rows_rank != 1:
                raise UnmatchedError(f"{node.origin or 'iota'} counts one of several row dimensions", operation="iota")
            return "read_row.to(Int64)"  # of a thread past the last row too: it may be a place to load from
        return None

    def _gather(self, node: Node) -> str:
        """x[row, index]: the expression of x evaluated at one column, from scalar loads that hit L2."""
        x, index = node.inputs
        at = self._new("column")
        early = self.analysis.level(index) == 0
        if early:
            self._early_index(at, index)
        else:
            self._pending.append(f"{at} = {self.row_value(index, 'full')}.to(Int32)")
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
        loaded = {(use.space, id(use.node)) for use in self.analysis.uses if use.role == "row"}
        names: dict[Space, dict[int, str]] = {
            space: {key: name for key, name in known.items() if (space, key) in loaded}
            for space, known in self._row_names.items()
        }
        self._pending, self._row_names = self.gathers, names
        self.gathers.append(f"{at} = {self.row_value(index, 'full')}.to(Int32)")
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
        loaded = _computed(f"m_{use.name}[{coordinate}]", node)
        (self.gathers if early else self._pending).append(f"{use.name}_{at} = {loaded}")
        return f"{use.name}_{at}"

    def _new(self, stem: str) -> str:
        self._counter += 1
        return f"{stem}_{self._counter}"

    # Stages

    def _reduction_stage(self, level: int, reductions: list[Node], ready: list[Output]) -> Stage:
        pairs = self.analysis.partners
        seconds = {id(pairs[id(node)]): node for node in reductions if id(node) in pairs}
        stage = Stage(", ".join(f"{node.op} of the row" for node in reductions), level + 1)
        emitter = self._element_emitter(stage)
        fused: list[Accumulator] = []
        for node in (node for node in reductions if id(node) not in pairs):
            accumulator = self.accumulators.of(node, seconds.get(id(node)))
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

    def _output_stage(self, outputs: list[Output]) -> Stage:
        names = ", ".join(output.name for output in outputs if output.role == "element")
        stage = Stage(f"write {names}" if names else "sum up rows", len(self.analysis.reductions) + 1)
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
        if suffix == "unit" and not self.visit.vectors_along_rows:
            return None  # the numbers of all rows of a thread would need too many registers
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
            if len(self.analysis.reduced) != 1:
                where = node.origin or "iota"
                raise UnmatchedError(f"{where} counts one of several column dimensions", operation="iota")
            return f"({self._column(stage)}).to(Int64)"
        if node.op != "input":
            return None
        use = self._uses[id(node), "full"]
        read = [*(self.places.write(use) if is_taken(node) else ()), use]
        stage.loads += [each for each in read if each not in stage.loads]
        kind = COMPUTE_TYPE[node.dtype]
        as_stored = node.dtype == "bool" or STORAGE_TYPE[node.dtype] == kind
        if not self.visit.vectors_along_rows:
            loaded = f"r_{use.name}[{'v, c' if use.role == 'element' else 'c'}]"
            return f"({loaded} != 0)" if node.dtype == "bool" else f"{loaded}{'' if as_stored else f'.to({kind})'}"
        loaded = f"r_{use.name}[None, c].load()"
        self._unpacks.append(f"{prefix}{use.name} = {loaded if as_stored else f'{loaded}.to({kind})'}")
        element = f"{prefix}{use.name}[v]"
        return f"({element} != 0)" if node.dtype == "bool" else element

    def _store(self, emitter: Emitter, outputs: list[Output], stage: Stage) -> None:
        for output in outputs:
            kind = store_type(output.node.dtype)
            if output.role == "sum":
                self._add_row(emitter, output, stage)
                continue
            waits = self.visit.stored(output.name, is_last=not stage.accumulators)
            emitter.lines.append(f"{waits} = {emitter.as_type(root_of(output.node), kind)}")
            stage.stores.append(output)

    def _add_row(self, emitter: Emitter, output: Output, stage: Stage) -> None:
        """Adds a row to the sums of its thread, but for one that is repeated past the last."""
        value, total = emitter.as_type(output.node.inputs[0], "Float32"), f"a_{output.name}[v, b * plan.chunks + c]"
        emitter.lines.append(f"{total} = {total} + ({value} if row < rows else Float32(0.0))")
        stage.sums.append(output)

    def _column(self, stage: Stage) -> str:
        return self.visit.column.format(index=f"index_{stage.number}")

    def _row_output(self, output: Output) -> RowStore:
        space = output_space(self.analysis, output.node)
        kind, storage = store_type(output.node.dtype), STORAGE_TYPE[output.node.dtype]
        code = self._row_emitter(space).as_type(output.node, kind)
        return RowStore(output.name, code, f".to({storage})" if kind != storage else "")

    # Reductions

    def _first_phase(self, emitter: Emitter, accumulator: Accumulator, stage: Stage) -> None:
        value = emitter.as_type(accumulator.node.inputs[0], "Float32")
        if accumulator.kind == "online":
            top = f"{accumulator.names[0]}_next"
            stage.opening.append(f"{top} = {accumulator.names[0]}")
            item = self._masked(emitter, stage, value, "Float32(-math.inf)")
            emitter.lines.append(f"{top} = combine_max_f32({top}, {item})")
        else:
            total = f"{accumulator.names[1]}_total"
            stage.opening.append(f"{total} = Float32(0.0)")
            item = self._masked(emitter, stage, value, "Float32(0.0)")
            emitter.lines.append(f"{total} = {total} + {item}")

    def _masked(self, emitter: Emitter, stage: Stage, value: str, neutral: str, *, with_place: bool = False) -> str:
        """The name of an element's value, or of `neutral` where its step lies past the end of the row.

        `with_place`: NAME_at is its column; a padded one must lose against every real one, also where those are -inf.
        """
        item, index = self._new("item"), f"index_{stage.number}"
        emitter.lines.append(f"{item} = {value}")
        masks = [f"{item} = {item} if {index} < {self.visit.steps} else {neutral}"]
        if with_place:
            emitter.lines.append(f"{item}_at = {self._column(stage)}")
            masks.append(f"{item}_at = {item}_at if {index} < {self.visit.steps} else {PAST_THE_ROW}")
        emitter.lines.append("\n    ".join(["if const_expr(not plan.even):", *masks]))
        return item

    def _second_phases(self, stage: Stage, fused: list[Accumulator]) -> None:
        first = stage.phases[-1]
        emitter = self._element_emitter(stage)
        for accumulator in fused:
            value = emitter.as_type(accumulator.node.inputs[0], "Float32")
            if accumulator.kind == "online":
                first.after += self._sum_exponentials(emitter, accumulator.names, stage, value)
            else:
                first.after += self._sum_deviations(emitter, accumulator.names, stage, value)
        self._phase(stage, emitter)

    def _sum_exponentials(self, emitter: Emitter, names: tuple[str, ...], stage: Stage, value: str) -> list[str]:
        """Statements before the loop, which brings what is summed so far to the new maximum."""
        top, total = names
        # Subtract first: the scaled maximum of a row of finfo.min (a masked one) would be -inf, and exp of it NaN.
        power = self.accumulators.exponential.format(f"{value} - {top}_shift")
        item = self._masked(emitter, stage, power, "Float32(0.0)")
        emitter.lines.append(f"{total} = {total} + {item}")
        return [
            f"{top}_shift = shift_of({top}_next)",
            f"{total} = {total} * {self.accumulators.exponential.format(f'{top} - {top}_shift')}",
            f"{top} = {top}_next",
        ]

    def _sum_deviations(self, emitter: Emitter, names: tuple[str, ...], stage: Stage, value: str) -> list[str]:
        """Deviations from the thread's pivot, the mean of its first block of vectors, and their squares.

        `moments_of` moves both to the mean at the end, so that how the pivot was rounded does not matter: around 1000 a
        float32 mean is off by 3e-5, which squared gaps between the means of threads would keep. The first block is
        part of the row: a pivot far from the row's mean makes the variance as large, and little cancels.
        """
        count, pivot, residual, deviation = names
        item = self._masked(emitter, stage, f"{value} - {pivot}", "Float32(0.0)")
        sums = f"{residual} = {residual} + {item}\n{deviation} = {deviation} + {item} * {item}"
        emitter.lines.append(sums)
        return [
            f"{count}_here = count_here(b, place, plan)",
            f"{pivot} = pivot_of({pivot}_total, {count}_here) if {count} == Float32(0.0) else {pivot}",
            f"{count} = {count} + {count}_here",
        ]

    def _accumulate(self, emitter: Emitter, accumulator: Accumulator, stage: Stage) -> None:
        node, names = accumulator.node, accumulator.names
        if node.op in ("any", "all"):
            value = f"(Int32(1) if {emitter.as_type(node.inputs[0], 'Boolean')} else Int32(0))"
        else:
            value = emitter.as_type(node.inputs[0], accumulator.types[0])
        with_place = len(names) == 2
        item = self._masked(emitter, stage, value, accumulator.starts[0], with_place=with_place)
        state, given = ", ".join(names), f"{item}, {item}_at" if with_place else item
        sign = OPERATORS.get(accumulator.combine)
        combined = f"{state} {sign} {given}" if sign else f"{accumulator.combine}({state}, {given})"
        emitter.lines.append(f"{state} = {combined}")

    def _finish(self, accumulator: Accumulator) -> None:
        """Statements after the threads have combined, and the names that the reductions' values have from now on."""
        names, known = accumulator.names, self._row_names["full"]
        if accumulator.kind == "moments":
            lines, names = moments_of(accumulator, self._new("mean"))
            self._pending += lines
        if accumulator.kind != "plain":
            known.update(zip(map(id, accumulator.nodes), names[-2:], strict=True))
            return
        node, name = accumulator.node, names[-1]
        if node.op == "mean":
            self._pending.append(f"{name} = {name} / {accumulator.types[0]}({self.analysis.row_code})")
        if node.op in ("any", "all") or COMPUTE_TYPE[node.dtype] == "Boolean":
            self._pending.append(f"{name}_is = {name} != 0")
            name = f"{name}_is"
        if node.op in ("argmax", "argmin"):
            self._pending.append(f"{name}_at = {name}.to(Int64)")
            name = f"{name}_at"
        known[id(node)] = name


def _computed(loaded: str, node: Node) -> str:
    """An element as it lies in memory, in the type that it is computed in."""
    return convert(loaded, STORAGE_TYPE[node.dtype], COMPUTE_TYPE[node.dtype])
