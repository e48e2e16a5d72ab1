"""The pattern of attention: a block keeps a tile of queries and goes over the keys once, with an online softmax.

The scores of a tile never leave the registers of the warp that made them, and become the operand of the second product
as they lie (FlashAttention-2, arXiv 2307.08691). Tiles of keys outside the mask's band are left out.

Of the two templates, `attention.py.j2` uses mma.sync and cp.async, with one buffer for keys and one for values: the
next keys are copied while the values are multiplied, the next values while the scores are. `attention_sm90.py.j2` is
for Hopper: a warp loads by TMA into rings, and warpgroups multiply by wgmma, the softmax of one beside the products of
the other (FlashAttention-3, arXiv 2407.08608).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cutesmith.devices import SmVersion, parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention import hopper
from cutesmith.patterns.attention.analysis import AttentionProblem, analyse
from cutesmith.patterns.attention.band import Offset, seen_share
from cutesmith.patterns.attention.hopper import SM_COUNT, padded
from cutesmith.patterns.attention.shared_keys import with_heads_as_rows
from cutesmith.patterns.configurations import AttentionConfiguration, HopperAttentionConfiguration
from cutesmith.patterns.contraction.epilogue import Epilogue, Operand, Output
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.graph.results import Result
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.writing.naming import SHARED_NAMES, Parameter, ViewNames
from cutesmith.patterns.writing.templating import (
    broadcast_checks,
    fitting_checks,
    launcher_key,
    render_template,
    returned,
    size_checks,
    type_check,
)
from cutesmith.runtime.tiling import TiledShape, Tiling

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
Form = AttentionConfiguration | HopperAttentionConfiguration
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""

TILES = ((128, 64, 8), (64, 64, 4), (128, 32, 8), (128, 128, 8), (64, 128, 4), (64, 32, 4), (32, 64, 2))
"""(queries, keys, warps): each warp has 16 rows of queries. FlashAttention-2 takes the first for widths to 128."""

REGISTERS = 190
"""A thread has 255: what is left holds the operands of an instruction, addresses and the scores' function."""

STEP_KEYS = 24
"""What a step of sm_90a's kernel costs beside its keys: barriers, and scores that wait for each other."""

ENOUGH = 64
"""Multiprocessors that read as much together as the memory gives."""

PARTS_SECONDS = 13e-6
"""Keys that are read in parts take so much longer than their bytes: 8 x 16384 keys of 128 take 34 us on an H200, where
as one part each they take 131; 8 x 131072 take 137 and 1002."""

FLOPS_PER_SECOND = 275e12
"""Of the form by mma.sync on an H200, at 8192 queries and keys: 263 with heads of 64, 291 with heads of 128."""

HOPPER_FLOPS, HOPPER_FLOPS_OF_WIDTH = 710e12, 7.9e12
"""Of sm_90a's form: of long rows with heads of 128, and by width with narrower ones, where exponentials take longer."""

EDGE_KEYS = 190
"""More for each row of queries: the first loads, the last stores, the mask's edge. With the rates above it is fitted to
16 sizes on an H200 (evals/results/h200/patterns)."""

INSTRUCTIONS = 132 * 128 * 1.755e9
"""Of single lanes, a second."""

READ_INSTRUCTIONS = 2
"""To read what a score has an element of, and to convert it."""

READ_APART = 1.1e-12
"""Seconds more where each lane loads an element of another row: with a mask of 16 bits 64 heads of 64, 4096 queries and
keys took an H200 1808 µs, where 584 are predicted without it."""

L2_BYTES = 5.5e12
"""A second."""

BYTES_OF_ONE = 66e9
"""A second that one multiprocessor of an H200 reads: 8 heads of 16384 keys take 131 µs, of 131072 keys 1002."""


@dataclass(frozen=True)
class AttentionPlan(GraphPlan):
    """A matched attention, ready to be rendered in any of its configurations."""

    problem: AttentionProblem
    pattern: str = "attention"

    def configurations(self, arch: str = "sm_90a") -> list[AttentionConfiguration] | list[HopperAttentionConfiguration]:
        """Tiles that the architecture can run, the best guess first; of sm_90a's own form where that serves."""
        sm, problem = parse_arch(arch).sm, self.problem
        if not any(hopper.obstacles(problem, sm)):
            served = [c for c in hopper.CONFIGURATIONS if not any(hopper.refusals(problem, c, sm))]
            if served:
                return sorted(served, key=lambda c: _predicted_cost(problem, c))
        found = [AttentionConfiguration(*tile) for tile in TILES]
        fitting = [c for c in found if not any(refusals(problem, c, sm))]
        return sorted(fitting, key=lambda c: _predicted_cost(problem, c))

    def seconds(self, arch: str = "sm_90a") -> float:
        """The time of what no mask lets the kernel leave out: products, scores, keys and masks from L2."""
        on_hopper = any(isinstance(c, HopperAttentionConfiguration) for c in self.configurations(arch))
        rate = min(HOPPER_FLOPS, self.problem.width * HOPPER_FLOPS_OF_WIDTH) if on_hopper else FLOPS_PER_SECOND
        queries, keys = self.problem.queries, self.problem.keys
        seen = seen_share(self.problem.band, queries, keys)
        share = seen + EDGE_KEYS / max(1, keys)
        in_parts = on_hopper and hopper.reads_in_parts(self.problem)
        busy, more = (ENOUGH, PARTS_SECONDS) if in_parts else (min(ENOUGH, self._tiles), 0.0)
        arithmetic = self.algorithmic_flops * share / rate + seen * self._scores * self._seconds_of_a_score(on_hopper)
        return max(arithmetic, seen * self._l2_bytes / L2_BYTES, self.algorithmic_bytes / busy / BYTES_OF_ONE + more)

    def _seconds_of_a_score(self, on_hopper: bool) -> float:
        """What the function of a score takes, and what it reads."""
        read = [operand for operand in self.problem.score_inside.operands if operand.varies[-1]]
        tiled = hopper.tiled_operands(self.problem) if on_hopper else []
        apart = sum(operand not in tiled and operand.varies[-2] for operand in read)
        return (self.problem.instructions + READ_INSTRUCTIONS * len(read)) / INSTRUCTIONS + apart * READ_APART

    @property
    def _scores(self) -> int:
        return math.prod(self.problem.batch) * self.problem.queries * self.problem.keys

    @property
    def _l2_bytes(self) -> int:
        """Of keys, values and masks, which each tile of queries reads."""
        problem = self.problem
        of_a_key = ITEM_BYTES[problem.dtype] * (problem.width + problem.value_width)
        of_a_score = sum(ITEM_BYTES[o.dtype] for o in problem.score_inside.operands if all(o.varies[-2:]))
        return self._tiles * problem.keys * of_a_key + self._scores * of_a_score

    @property
    def _tiles(self) -> int:
        return max(1, math.prod(self.problem.batch) * math.ceil(self.problem.queries / hopper.MOST_QUERIES))

    def why(self, configuration: Form) -> str:
        """The tiles that waves of blocks decided by, and who has the registers."""
        c, problem = configuration, self.problem
        blocks = math.prod(problem.batch) * math.ceil(problem.queries / c.queries)
        told = (
            f"{blocks} tiles of {c.queries} queries, on {SM_COUNT} multiprocessors, go over the keys {c.keys} at a time"
        )
        if not isinstance(c, HopperAttentionConfiguration):
            return (
                f"{told}: of those that fit registers and shared memory, these leave the least of the last wave idle."
            )
        told += f", {c.stages} steps in shared memory. The registers of {c.warpgroups} warpgroups hold scores and sums"
        told += ", and products of one go beside the softmax of the other." if c.turns else "."
        return told + (" Several blocks share the keys of a tile." if hopper.reads_in_parts(problem) else "")

    def tiled_shape(self) -> TiledShape:
        """Queries and keys; every edge is guarded."""
        return TiledShape(sizes=(self.problem.queries, self.problem.keys))

    def tiling(self, configuration: Form) -> Tiling:
        """A block's tile and what it takes."""
        c = configuration
        if isinstance(c, HopperAttentionConfiguration):
            smem = hopper.shared_bytes(self.problem, c)
            return Tiling(threads=c.threads, tile=(c.queries, c.keys), smem_bytes=smem, settings=c.to_dict())
        return Tiling(
            threads=32 * c.warps,
            tile=(c.queries, c.keys),
            smem_bytes=shared_bytes(self.problem, c),
            settings=c.to_dict(),
        )

    def render(self, configuration: Form) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        on_hopper = isinstance(configuration, HopperAttentionConfiguration)
        template = "attention_sm90.py.j2" if on_hopper else "attention.py.j2"
        context = _Context(self.problem).of(configuration) | {"hopper": on_hopper}
        if isinstance(configuration, HopperAttentionConfiguration):
            context["query_stages"] = hopper.query_stages(self.problem, configuration)
        return render_template(template, context)


def match(graph: Graph) -> AttentionPlan:
    """A plan, or UnmatchedError where the graph is not one attention of arguments whose rows are contiguous."""
    problem = with_heads_as_rows(analyse(graph, RESERVED))
    for matrix, dim in problem.matrices.values():
        if matrix.strides[dim] != 1 and matrix.shape[dim] != 1:
            raise UnmatchedError(f"the rows of {matrix.code.name} are not contiguous", operation="")
        if matrix.shape[dim] % 2 or any(step % 2 for step in matrix.strides[:-2]):
            raise UnmatchedError(f"a row of {matrix.code.name} does not begin at 4 bytes", operation="")
    if not AttentionPlan(graph, problem).configurations():
        raise UnmatchedError(f"heads of {problem.width} and {problem.value_width} elements do not fit", operation="")
    return AttentionPlan(graph, problem)


def shared_bytes(problem: AttentionProblem, c: AttentionConfiguration) -> int:
    """The tiles of queries, keys and values."""
    return 2 * ((c.queries + c.keys) * padded(problem.width) + c.keys * padded(problem.value_width))


def refusals(problem: AttentionProblem, c: AttentionConfiguration, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why the template would not run so."""
    if c.queries != 16 * c.warps:
        yield f"{c.warps} warps do not have 16 of {c.queries} rows each"
    registers = padded(problem.value_width) // 2 + c.keys // 2 + c.keys // 4
    if registers > REGISTERS:
        yield f"{registers} registers a thread for sums, scores and weights: more than {REGISTERS} spill"
    if (needed := shared_bytes(problem, c)) > sm.smem_per_block:
        yield f"{needed} bytes of shared memory: sm_{sm.number} has {sm.smem_per_block} bytes a block"


def _predicted_cost(problem: AttentionProblem, c: Form) -> float:
    """Of all waves of blocks: scores, edges of tiles included, and keys and values that each block reads again."""
    blocks = math.prod(problem.batch) * math.ceil(problem.queries / c.queries)
    if isinstance(c, HopperAttentionConfiguration):
        favoured = 0.999 if c.turns else 1
        return favoured * math.ceil(blocks / SM_COUNT) * _steps(problem, c) * (c.keys + STEP_KEYS) * (c.queries + 48)
    resident = max(1, 8 // c.warps)
    waves = math.ceil(blocks / (SM_COUNT * resident))
    return waves * resident * math.ceil(problem.keys / c.keys) * c.keys * (c.queries + 48)


def _steps(problem: AttentionProblem, c: HopperAttentionConfiguration) -> float:
    """Of a tile of queries, on average. A mask's edge crosses one step where tiles end with steps, else two."""
    if not (problem.band.lower or problem.band.upper):
        return math.ceil(problem.keys / c.keys)
    seen = problem.keys * seen_share(problem.band, problem.queries, problem.keys) + c.queries / 2
    return seen / c.keys + (c.queries % c.keys != 0)


def bound_code(offset: Offset, names: Sequence[str]) -> str:
    """What is added to a row for one end of its band; `names` are those of the function's arguments."""
    if offset.argument is None:
        return f" + {offset.constant}" if offset.constant else ""
    sign = "-" if offset.factor < 0 else "+"
    return f" {sign} clipped({names[offset.argument]})" + (f" + {offset.constant}" if offset.constant else "")


class _Context:
    """What the template takes."""

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
