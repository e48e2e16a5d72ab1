"""The pattern of contractions: a product of matrices or a batch of them, and pointwise work on its result.

A block computes a tile of the result: cp.async fills a ring of shared-memory stages ahead of the arithmetic, mma.sync
sums up in registers, and the epilogue reads its operands and writes its outputs in vectors of a row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cutesmith.devices import SmVersion, parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.analysis import ContractionProblem, analyse, by_windows
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration
from cutesmith.patterns.contraction.blackwell.kernel import blackwell_context
from cutesmith.patterns.contraction.blackwell.legality import needs_launches as blackwell_needs_launches
from cutesmith.patterns.contraction.blackwell.legality import obstacles as blackwell_obstacles
from cutesmith.patterns.contraction.blackwell.legality import shared_bytes as blackwell_shared_bytes
from cutesmith.patterns.contraction.blackwell.prediction import predict as blackwell_predict
from cutesmith.patterns.contraction.blackwell.prediction import why as blackwell_why
from cutesmith.patterns.contraction.blackwell.proposals import proposals as blackwell_proposals
from cutesmith.patterns.contraction.computed import Computed
from cutesmith.patterns.contraction.configurations import DirectConfiguration, SkinnyConfiguration
from cutesmith.patterns.contraction.direct import direct_context, direct_proposals, direct_seconds, direct_why
from cutesmith.patterns.contraction.direct import shared_bytes as direct_shared_bytes
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.hopper.kernel import hopper_context
from cutesmith.patterns.contraction.hopper.legality import copied_factors, moved_outputs, obstacles
from cutesmith.patterns.contraction.hopper.legality import shared_bytes as hopper_shared_bytes
from cutesmith.patterns.contraction.hopper.prediction import LAUNCH_SECONDS, predict
from cutesmith.patterns.contraction.hopper.prediction import why as hopper_why
from cutesmith.patterns.contraction.hopper.proposals import proposals as hopper_proposals
from cutesmith.patterns.contraction.kernel import RESERVED, Form, product_context
from cutesmith.patterns.contraction.legality import refusals, shared_bytes, threads
from cutesmith.patterns.contraction.proposals import predicted_seconds, proposals, why
from cutesmith.patterns.contraction.skinny import shared_bytes as skinny_shared_bytes
from cutesmith.patterns.contraction.skinny import skinny_context, skinny_proposals, skinny_seconds, skinny_why
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.pattern_plan import GraphPlan
from cutesmith.patterns.writing.templating import render_template
from cutesmith.runtime.tiling import TiledShape, Tiling

Own = HopperConfiguration | BlackwellConfiguration
HOPPER = parse_arch("sm_90a").sm


@dataclass(frozen=True)
class OwnForm:
    """What an architecture's own form of a product says of itself; `needs_launches`: others beside the kernel."""

    obstacles: Callable[[ContractionProblem, SmVersion], Iterator[str]]
    proposals: Callable[[ContractionProblem, SmVersion], Sequence[Own]]
    needs_launches: Callable[[ContractionProblem, Any], bool]


HOPPER_FORM = OwnForm(obstacles, hopper_proposals, lambda p, c: bool(copied_factors(p, c) or moved_outputs(p, c)))
BLACKWELL_FORM = OwnForm(blackwell_obstacles, blackwell_proposals, blackwell_needs_launches)


@dataclass(frozen=True)
class ContractionPlan(GraphPlan):
    """A matched product, ready to be rendered in any of its configurations."""

    problem: ContractionProblem
    pattern: str = "contraction"

    def configurations(self, arch: str = "sm_90a") -> Sequence[Form]:
        """Those of the form that is predicted to be the fastest, the best guess first."""
        if arch not in self._found:  # cuts of a graph are compared by the times of all their launches
            self._found[arch] = self._configurations(arch)
        return self._found[arch]

    @functools.cached_property
    def _found(self) -> dict[str, Sequence[Form]]:
        return {}

    def _configurations(self, arch: str) -> Sequence[Form]:
        if isinstance(self.problem.b, Computed):
            return skinny_proposals(self.problem, parse_arch(arch).sm)
        tiled, direct = self._tiled(arch), direct_proposals(self.problem, parse_arch(arch).sm)
        sizes_stay_free = tiled and self.problem.graph.free_sizes  # channels and taps are part of a direct kernel
        if self.problem.order or not direct or sizes_stay_free:
            return tiled
        return direct if not tiled or self.seconds(direct[0]) < self.seconds(tiled[0]) else tiled

    def _tiled(self, arch: str) -> Sequence[Form]:
        """Tiles that the architecture can run; of its own form where that serves, with the launches that it needs."""
        sm = parse_arch(arch).sm
        problem, windowed = self.problem, by_windows(self.problem)
        own = BLACKWELL_FORM if "tcgen05.mma" in sm.tensor_cores else HOPPER_FORM
        found = [] if any(own.obstacles(problem, sm)) else [*own.proposals(problem, sm)]
        if arithmetic_of(problem) is Arithmetic.FLOAT8 or problem.order:
            return found
        if found and not own.needs_launches(problem, found[0]) and not self._is_grouped:
            return found
        if windowed is not problem and not any(own.obstacles(windowed, sm)):
            found += [c for c in own.proposals(windowed, sm) if c.joined]
            found = sorted(dict.fromkeys(found), key=self.seconds)
        others = [c for c in proposals(problem) if not any(refusals(problem, c, sm))]
        with_copies = self.seconds(found[0]) if found else math.inf
        return found if not others or with_copies < self.seconds(others[0]) else others

    @property
    def _is_grouped(self) -> bool:
        """Whether it is a convolution with weights for each group of channels: few fill little of wgmma's tile."""
        weights, seen = self.problem.product.inputs
        return seen.op == "windows" and math.prod(weights.shape[:-2]) > 1

    def problem_for(self, configuration: Form) -> ContractionProblem:
        """As a configuration takes it: where images follow each other, their points are windows."""
        joined = isinstance(configuration, HopperConfiguration | BlackwellConfiguration) and configuration.joined
        return by_windows(self.problem) if joined else self.problem

    def seconds(self, configuration: Form) -> float:
        """Predicted for an H200, of tcgen05 for a B200."""
        if isinstance(configuration, BlackwellConfiguration):
            return blackwell_predict(self.problem_for(configuration), configuration).seconds
        if isinstance(configuration, HopperConfiguration):
            return predict(self.problem_for(configuration), configuration).seconds
        if isinstance(configuration, DirectConfiguration):
            return LAUNCH_SECONDS + direct_seconds(self.problem, configuration)
        if isinstance(configuration, SkinnyConfiguration):
            return LAUNCH_SECONDS + skinny_seconds(self.problem, configuration)
        return LAUNCH_SECONDS + predicted_seconds(self.problem, configuration)

    def why(self, configuration: Form) -> str:
        """The tiles, their waves, and what is launched beside them."""
        if isinstance(configuration, BlackwellConfiguration):
            return blackwell_why(self.problem_for(configuration), configuration)
        if isinstance(configuration, HopperConfiguration):
            return hopper_why(self.problem_for(configuration), configuration)
        if isinstance(configuration, DirectConfiguration):
            return direct_why(self.problem, configuration)
        if isinstance(configuration, SkinnyConfiguration):
            return skinny_why(self.problem, configuration)
        return why(self.problem, configuration)

    def tiled_shape(self) -> TiledShape:
        """Rows and columns of the result; every edge is guarded."""
        return TiledShape(sizes=(self.problem.m, self.problem.n))

    def tiling(self, configuration: Form) -> Tiling:
        """A block's tile and what it takes."""
        c = configuration
        if isinstance(c, HopperConfiguration):
            smem = hopper_shared_bytes(self.problem_for(c), c)
            return Tiling(threads=c.threads, tile=(c.tile_m, c.tile_n), smem_bytes=smem, settings=c.to_dict())
        if isinstance(c, DirectConfiguration):
            smem, tile = direct_shared_bytes(self.problem, c), (c.features, c.threads * c.positions)
            return Tiling(threads=c.threads, tile=tile, smem_bytes=smem, settings=c.to_dict())
        if isinstance(c, SkinnyConfiguration):
            smem, tile = skinny_shared_bytes(c), (c.tokens, c.lines * c.warps_n)
            return Tiling(threads=c.threads, tile=tile, smem_bytes=smem, settings=c.to_dict())
        if isinstance(c, BlackwellConfiguration):
            smem = blackwell_shared_bytes(self.problem_for(c), c)
            return Tiling(threads=c.threads, tile=(c.tile_m, c.tile_n), smem_bytes=smem, settings=c.to_dict())
        return Tiling(
            threads=threads(c),
            tile=(c.tile_m, c.tile_n),
            smem_bytes=shared_bytes(self.problem, c),
            settings=c.to_dict(),
        )

    def render(self, configuration: Form) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        problem = self.problem_for(configuration)
        context, own, template = product_context(problem, configuration), dict[str, object](), "contraction"
        if isinstance(configuration, HopperConfiguration):
            template, own = "contraction_sm90", hopper_context(problem, configuration)
        elif isinstance(configuration, DirectConfiguration):
            template, own = "contraction_direct", direct_context(problem, configuration)
        elif isinstance(configuration, SkinnyConfiguration):
            template, own = "contraction_skinny", skinny_context(problem)
        elif isinstance(configuration, BlackwellConfiguration):
            template, own = "contraction_sm100", blackwell_context(problem, configuration)
        return render_template(f"{template}.py.j2", context | own)


def match(graph: Graph) -> ContractionPlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not part of a product's kernel."""
    problem = analyse(graph, RESERVED)
    if arithmetic_of(problem) is Arithmetic.FLOAT8 and (wrong := next(obstacles(problem, HOPPER), None)):
        raise UnmatchedError(wrong, operation=problem.product.where)
    plan = ContractionPlan(graph, problem)
    if problem.order and not plan.configurations():
        raise UnmatchedError("only Hopper's product of windows puts positions in order", operation="depth_to_space")
    return plan
