"""What the templates of attention take: the names in a kernel, the code of its views, checks and calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from cutesmith.patterns.attention import hopper
from cutesmith.patterns.attention.analysis import AttentionProblem
from cutesmith.patterns.attention.band import bound_code
from cutesmith.patterns.attention.configurations import AttentionConfiguration, HopperAttentionConfiguration
from cutesmith.patterns.contraction.epilogue import Epilogue, Operand, Output
from cutesmith.patterns.graph.dtypes import stored_types
from cutesmith.patterns.graph.results import Result
from cutesmith.patterns.writing.naming import SHARED_NAMES, Parameter, ViewNames
from cutesmith.patterns.writing.templating import (
    broadcast_checks,
    fitting_checks,
    launcher_key,
    returned,
    size_checks,
    type_check,
)

Form = AttentionConfiguration | HopperAttentionConfiguration
_OWN = (
    "acc at_m at_n score score_inside epilogue cpasync warp SmemAllocator QUERIES KEYS WARPS THREADS width "
    "value_width LOG2_E LOWEST HIGHEST queries keys padded tile_layout load_tile matrices access description LAUNCHERS "
    "vectors step steps blocks batch m first end whole row column rows columns dtype scores highest shrink powers "
    "total inverse values result clipped tiled_mma smem atom tensor tensors WARPGROUPS ROWS STAGES QUERY_STAGES "
    "LOAD_REGISTERS MATH_REGISTERS FAR WARPGROUP_BARRIER TURN_BARRIER own_dims boxes matrix_at operand_at as_weights "
    "weights batch_places multiply score_tile softmax_step attention_kernel launch_attention pipeline warpgroup sm90 "
    "LayoutEnum OperandMajorMode scaled scale_log2 row_max row_sum places row_places dims row_scores first_row state "
    "sink begin_rows first_keys first_tiles all_tiles behind part_end load_part copy_part transposed tma_K2 tma_V2 mK2 "
    "mV2 K2 V2 k2 v2 ring tiles halves count units waves resident sizes offset far most apart per_matrix tile_of part "
    "place load parts logarithms in_order part_of combine_kernel parts_of VALUES unit share p written "
    "tiled tile_vector tiles_of as_scores copy_scores_tile beside reached LN2 logsumexp mL mR rows_of "
    "store one begin mine lane barrier back tile sums mQ mK mV mO sQ sK sV tRcR tma_Q tma_K tma_V tma_O Q K V O"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""


class KernelContext:
    """What the templates take: names, code and calls of one attention."""

    def __init__(self, problem: AttentionProblem) -> None:
        self.problem = problem
        scores = (problem.score, problem.score_inside, problem.scale, problem.sink)
        self.epilogues = (*(each for each in scores if each is not None), problem.output)
        own = {*(operand.name for operand in self.operands), *(output.name for output in problem.output.outputs)}
        self.views = ViewNames({*problem.arguments, *RESERVED, *own})

    @cached_property
    def operands(self) -> list[Operand]:
        """All that the scores and the output read, each once."""
        return list({o.name: o for epilogue in self.epilogues for o in epilogue.operands}.values())

    @cached_property
    def numbers(self) -> list[Parameter]:
        """All numbers that are passed at run time, each once."""
        return list({n.name: n for epilogue in self.epilogues for n in epilogue.numbers}.values())

    def of(self, configuration: Form) -> dict[str, object]:
        problem, output = self.problem, self.problem.output.outputs[0]
        matrices = {name: self.views.name(matrix.code) for name, (matrix, _) in problem.matrices.items()}
        operands = [self.views.name(o.passed) for o in self.operands]
        band = problem.band
        on_hopper = isinstance(configuration, HopperAttentionConfiguration)
        in_parts = on_hopper and hopper.reads_in_parts(problem)
        tiled = hopper.tiled_operands(problem) if on_hopper else []
        acc = "scores[(v, r, x), 0, 0]" if on_hopper else "tSrS[i]"
        parts = ["first_keys", "first_tiles"] if problem.more else []
        read = [*(f"m_{o.name}" for o in problem.score.operands), *(f"tile_{o.name}" for o in tiled)]
        scores = [*parts, *read, *(number.name for number in self.numbers)]
        return {
            "c": configuration,
            "p": problem,
            "plain_inside": problem.score_inside.is_identity,
            "scale_log2": f"{problem.scale.call('Float32(1.0)', [], [], 'scaled')} * LOG2_E"
            if problem.scale
            else "Float32(LOG2_E)",
            "stores_by_tma": hopper.stores_by_tma(problem),
            "parts": in_parts,
            "tiled": tiled,
            "score_arguments": ["queries", "keys", *scores],
            **self._sink(),
            "by_keys": {o.name for function in (problem.score, problem.sink) if function for o in function.operands},
            "matrices": matrices,
            "along": [dim for _, dim in problem.matrices.values()],
            "operands": self.operands,
            "types": stored_types(self._dtypes(in_parts)),
            "operand_tensors": operands,
            "apart": list(dict.fromkeys(self.views.name(o.passed) for o in self.operands if o.rank > 2)),
            "numbers": self.numbers,
            "band_numbers": [n for n in self.numbers if n.name in self._band_names],
            "helpers": sorted({helper for epilogue in self.epilogues for helper in epilogue.helpers}),
            "lower": [bound_code(offset, problem.arguments) for offset in band.lower],
            "upper": [bound_code(offset, problem.arguments) for offset in band.upper],
            "clips": any(offset.argument is not None for offset in (*band.lower, *band.upper)),
            "score_call": self._call(problem.score, acc, "score"),
            "inside_call": self._call(problem.score_inside, acc, "score_inside"),
            "output_call": self._call(problem.output, "sums[v]", "epilogue"),
            "vector_operands": [o for o in problem.score.operands if not any(o.varies[-2:])],
            "inside_operands": {o.name for o in problem.score_inside.operands},
            "output": output,
            "views": [*self.views.lines, *dict.fromkeys(law for each in self.epilogues for law in each.laws)],
            "checks": [
                *size_checks(problem.arguments, problem.graph, problem.graph.checked),
                *broadcast_checks(problem.arguments, problem.graph),
            ],
            "first_checks": [
                *type_check(problem.arguments, problem.graph),
                *self._fitting(matrices, "sums" if in_parts else output.name),
            ],
            "key": launcher_key(list(dict.fromkeys([*matrices.values(), *operands]))),
            "allocated": self._allocated(problem.result, f"{matrices['q']}.shape[-2]", f"{matrices['v']}.shape[-1]"),
            "logsumexp": self._logsumexp(matrices["q"]),
            "returns": returned(self._returned(output), as_tuple=problem.graph.returns_tuple),
        }

    def _sink(self) -> dict[str, object]:
        """What `begin_rows` takes, and how it calls the sink."""
        if (sink := self.problem.sink) is None:
            return {}
        arguments = ["scale_log2", "queries", *(f"m_{o.name}" for o in sink.operands), *(n.name for n in sink.numbers)]
        return {"sink_call": self._call(sink, "", "sink"), "sink_arguments": arguments}

    def _fitting(self, matrices: Mapping[str, str], result: str) -> Iterator[str]:
        """The statements that refuse what scores or `result`, which the first launch stores, are broadcast to."""
        keys = " + ".join(f"{matrices[name]}.shape[-1]" for name in ("k", "k2") if name in matrices)
        of_keys, problem = f"(*{result}.shape[:-1], {keys})", self.problem
        for epilogue in (problem.score, problem.sink, problem.output):
            if epilogue:
                shape = f"{result}.shape" if epilogue is problem.output else of_keys
                yield from fitting_checks([self.views.name(o.passed) for o in epilogue.operands], shape)

    @property
    def _band_names(self) -> set[str]:
        """Numbers that the mask's band depends on."""
        offsets = (*self.problem.band.lower, *self.problem.band.upper)
        return {self.problem.arguments[o.argument] for o in offsets if o.argument is not None}

    def _allocated(self, result: Result, *last: str) -> tuple[str, str]:
        """The code of a result's sizes as they lie in memory, `last` behind the batch, and of its view in order."""
        if not result.is_reordered:
            return f"(*batch, {', '.join(last)})", ""
        sizes, view = result.laid_out([*(f"batch[{dim}]" for dim in range(len(self.problem.batch))), *last])
        return f"({sizes})", view

    def _logsumexp(self, queries: str) -> dict[str, object] | None:
        """The type of the log-sum-exp and how it is allocated; None where the function does not return it."""
        if (found := self.problem.logsumexp) is None:
            return None
        allocated = self._allocated(found.result, f"{queries}.shape[-2]")
        return {"dtype": found.dtype, "allocated": allocated, "infinite": found.infinite}

    def _dtypes(self, in_parts: bool) -> list[str]:
        """Those of the tensors that the launch takes; sums of parts have float32."""
        problem = self.problem
        written = [problem.output.outputs[0].dtype, *([problem.logsumexp.dtype] if problem.logsumexp else [])]
        return [problem.dtype, *(o.dtype for o in self.operands), *written, *(["float32"] if in_parts else [])]

    def _returned(self, output: Output) -> list[str]:
        """The code of what is returned: the result as the function sees it, and the log-sum-exp in its place."""
        codes = [self._seen(self.problem.result, output.name)]
        if found := self.problem.logsumexp:
            codes.insert(found.place, self._seen(found.result, "logsumexp"))
        return codes

    def _seen(self, result: Result, code: str) -> str:
        for view in result.views:
            code = view.code(code, self.problem.arguments)
        return code

    def _call(self, epilogue: Epilogue, acc: str, name: str) -> str:
        loaded = [operand.loaded(f"l_{operand.name}") for operand in epilogue.operands]
        places = {"at_m": "row", "at_n": "column"}
        return epilogue.call(acc, loaded, [places[each] for each in epilogue.coordinates], name)
