"""The pattern of attention's gradients on Hopper: a block has a tile of keys, and goes over the queries that see it.

Scores are computed transposed, keys down: the probabilities and their gradient are then, register for register, the
left operands of dV and dK, which stay in registers to the end. dQ takes the gradient from shared memory, and every
block adds its part in float32 by TMA: the order of these sums varies. A small kernel before sums dO * O over each row,
one behind rounds dQ (`examples_index/kernels/attention_backward_sm90.py` is such a kernel by hand).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.devices import RESERVED_SMEM_PER_BLOCK, SmVersion, parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention.band import bound_code, every_query_sees_a_key, seen_share
from cutesmith.patterns.attention.configurations import AttentionGradientConfiguration
from cutesmith.patterns.attention.gradient import GradientProblem, analyse
from cutesmith.patterns.attention.hopper import BARRIER_BYTES, layout_obstacles
from cutesmith.patterns.contraction.analysis import Matrix
from cutesmith.patterns.contraction.proposals import BYTES_PER_SECOND
from cutesmith.patterns.graph.attributes import TensorCode
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.writing.naming import SHARED_NAMES, ViewNames
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
    "acc at_m at_n scaled scored scale scale_log2 cpasync warp warpgroup pipeline sm90 SmemAllocator LayoutEnum "
    "OperandMajorMode "
    "PART WARPGROUPS KEYS QUERIES WIDTH STAGES THREADS LOAD_REGISTERS MATH_REGISTERS ROW_THREADS VECTOR SHARED LOG2_E "
    "q k v dout out logsumexp stats sums dq dk dv batch queries keys few tiles tensors shared sizes dims "
    "row_of_thread prepare_kernel finish_kernel gradient_kernel smem_tiles turned copy_tile multiply rounded places_of "
    "own_dims boxes in_order matrix_at batch_places launch_gradients compile_gradients access description "
    "with_row_stride mQ mdO mO mLse mStats mSums mK mV mdQ mdK mdV dtype row vector logarithm total dQ dK dV "
    "key query operand operand_at matrices"
)
RESERVED = SHARED_NAMES | set(_OWN.split())
"""Names that an argument of the problem may not have in the generated kernel."""

PART = 64
"""Rows of one wgmma."""

CONFIGURATIONS = tuple(AttentionGradientConfiguration(128, queries, 2) for queries in (64, 128))
"""128 keys are two warpgroups: each has a part of 64 x 64 of dQ, so that queries times width are 2 * 64 * 64."""

REGISTERS = 240
"""A thread's of arithmetic: two warpgroups leave as many."""

FLOPS = {64: 484e12, 128: 563e12}
"""A second, by width: an H200 takes 1419 and 2439 us for 4 x 16 x 4096, 780 and 1343 where it is causal."""

EDGE_QUERIES = 190
"""More for each tile of keys: its loads, and the mask's edge."""


@dataclass(frozen=True)
class AttentionGradientPlan(GraphPlan):
    """Gradients of a matched attention, ready to be rendered."""

    problem: GradientProblem
    pattern: str = "attention_gradient"

    def configurations(self, arch: str = "sm_90a") -> list[AttentionGradientConfiguration]:
        """The tiles that the architecture can run."""
        sm = parse_arch(arch).sm
        return [c for c in CONFIGURATIONS if not any(refusals(self.problem, c, sm))]

    def seconds(self, arch: str = "sm_90a") -> float:
        """Five products of what the mask leaves, the bytes of both small kernels, and what each score reads."""
        problem = self.problem
        rows, share = (
            math.prod(problem.batch) * problem.queries,
            seen_share(problem.band, problem.queries, problem.keys),
        )
        seen = problem.keys * min(1.0, share + EDGE_QUERIES / max(1, problem.queries))
        small = rows * problem.width * (2 + 2 + 4 + 4 + 2)  # dO, O, zeros where dQ is summed; its sums, dQ
        read = rows * seen * sum(ITEM_BYTES[o.dtype] for o in problem.operands if all(o.varies[-2:]))
        return 5 * 2 * rows * seen * problem.width / FLOPS[problem.width] + (small + read) / BYTES_PER_SECOND

    def why(self, configuration: AttentionGradientConfiguration) -> str:
        """What keeps the gradients of keys and values in registers."""
        c, problem = configuration, self.problem
        blocks = math.prod(problem.batch) * math.ceil(problem.keys / c.keys)
        told = f"{blocks} blocks of {c.keys} keys go over {c.queries} queries at a time, {c.stages} steps on their way"
        part = f"of heads of {problem.width} each of {c.warpgroups} warpgroups then has 64 x 64 of dQ"
        return f"{told}: {part}, and dK and dV stay in registers to the end."

    def tiled_shape(self) -> TiledShape:
        """Queries and keys; every edge is guarded."""
        return TiledShape(sizes=(self.problem.queries, self.problem.keys))

    def tiling(self, configuration: AttentionGradientConfiguration) -> Tiling:
        """A block's tile and what it takes."""
        c = configuration
        smem = shared_bytes(self.problem, c)
        return Tiling(threads=c.threads, tile=(c.queries, c.keys), smem_bytes=smem, settings=c.to_dict())

    def render(self, configuration: AttentionGradientConfiguration) -> str:
        """The kernel section: imports, kernels, launch, cached compile and `kernel_fn`."""
        context = _context(self.problem, configuration)
        return render_template("attention_gradient_sm90.py.j2", context)


def match(graph: Graph) -> AttentionGradientPlan:
    """A plan, or UnmatchedError where the graph does not return gradients of one attention of arguments."""
    plan = AttentionGradientPlan(graph, analyse(graph, RESERVED))
    for obstacle in layout_obstacles(plan.problem.matrices, plan.problem.batch):
        raise UnmatchedError(obstacle, operation="")
    if not plan.configurations():
        raise UnmatchedError(f"heads of {plan.problem.width} elements: 64 or 128 are taken", operation="")
    return plan


def shared_bytes(problem: GradientProblem, c: AttentionGradientConfiguration) -> int:
    """Keys and values, the rings of queries, of their gradient and of dS, parts of dQ, statistics, barriers."""
    tiles = 2 * c.keys * problem.width + c.stages * c.queries * (2 * problem.width + c.keys)
    of_float32 = c.warpgroups * PART * PART + 2 * c.queries * c.stages
    return 2 * tiles + 4 * of_float32 + BARRIER_BYTES + RESERVED_SMEM_PER_BLOCK


def refusals(problem: GradientProblem, c: AttentionGradientConfiguration, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why the template would not run so."""
    if sm.number != 90:
        yield f"sm_{sm.number} has no wgmma"
    if problem.width not in FLOPS or c.queries * problem.width != c.warpgroups * PART * PART:
        yield f"{c.warpgroups} warpgroups do not have 64 x 64 of {c.queries} x {problem.width} elements of dQ each"
    registers = (2 * c.keys * (c.queries + problem.width)) // (c.threads - 128) + PART * PART // 128
    if registers > REGISTERS:
        yield f"{registers} registers a thread for scores and sums: there are {REGISTERS}"
    if (needed := shared_bytes(problem, c)) > sm.smem_per_block:
        yield f"{needed} bytes of shared memory: sm_{sm.number} has {sm.smem_per_block} bytes a block"


def _context(problem: GradientProblem, configuration: AttentionGradientConfiguration) -> dict[str, object]:
    """What the template takes."""
    own = {operand.name for operand in problem.operands}
    views, band, scale = ViewNames({*problem.arguments, *RESERVED, *own}), problem.band, problem.scale
    functions = [each for each in (scale, problem.score) if each]
    codes = (problem.q.code, *map(_transposed, (problem.k, problem.v)), problem.of_result.code)
    q, k, v, dout, out, logsumexp = matrices = [
        views.name(code) for code in (*codes, problem.result.code, problem.logsumexp)
    ]
    operands = [views.name(operand.passed) for operand in problem.operands]
    return {
        "c": configuration,
        "p": problem,
        "hopper": True,
        "numbers": list({number.name: number for each in functions for number in each.numbers}.values()),
        "operands": problem.operands,
        "operand_tensors": operands,
        "score": _score_call(problem),
        "scale": scale.call("Float32(1.0)", [], [], "scaled"),
        "shared": problem.shared,
        "helpers": sorted({helper for each in functions for helper in each.helpers}),
        "lower": [bound_code(offset, problem.arguments) for offset in band.lower],
        "upper": [bound_code(offset, problem.arguments) for offset in band.upper],
        "checks": [
            *size_checks(problem.arguments, problem.graph, problem.graph.checked),
            *broadcast_checks(problem.arguments, problem.graph),
        ],
        "first_checks": [
            *type_check(problem.arguments, problem.graph),
            *_seen_keys_check(problem),
            *fitting_checks(operands, "(*batch, queries, keys)"),
        ],
        "views": [*views.lines, *dict.fromkeys(law for each in functions for law in each.laws)],
        "q": q,
        "k": k,
        "v": v,
        "dout": dout,
        "out": out,
        "logsumexp": logsumexp,
        "matrices": matrices,
        "types": stored_types([problem.q.dtype, "float32", *(o.dtype for o in problem.operands)]),
        "key": launcher_key(list(dict.fromkeys([*matrices, *operands]))),
        "returned": returned([f"d{of}" for of in problem.of], as_tuple=problem.graph.returns_tuple),
    }


def _transposed(matrix: Matrix) -> TensorCode:
    """The code of the transposed matrix: without the step that transposes it, where that is the last one."""
    *batch, rows, columns = range(len(matrix.shape))
    code, turned = matrix.code, f"{{0}}.permute({', '.join(map(str, (*batch, columns, rows)))})"
    return TensorCode(code.name, code.steps[:-1]) if code.steps[-1:] == (turned,) else code.then("{0}.mT")


def _score_call(problem: GradientProblem) -> str:
    """The code of a score of its sum; "" where that is a multiple alone."""
    if (score := problem.score) is None:
        return ""
    loaded = [operand.loaded(f"l_{operand.name}") for operand in score.operands]
    places = {"at_m": "query", "at_n": "key"}
    return score.call("scores[i]", loaded, [places[each] for each in score.coordinates], "scored")


def _seen_keys_check(problem: GradientProblem) -> Iterator[str]:
    """Lines that refuse sizes of which a window hides whole rows, unless the traced ones have such rows."""
    if problem.band.lower and every_query_sees_a_key(problem.band, problem.queries, problem.keys):
        lower = max(offset.constant for offset in problem.band.lower)
        yield f"if queries > keys + {-lower}:"
        yield '    raise ValueError(f"this kernel takes queries that each see a key: {queries = }, {keys = }")'
