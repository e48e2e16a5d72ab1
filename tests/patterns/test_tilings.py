"""How configurations cut a problem up, and which are skipped before they compile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from cutesmith.devices import SM_VERSIONS
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.generation.drafting import render_valid
from cutesmith.patterns.graph.attributes import Input, Reduction
from cutesmith.patterns.graph.nodes import Argument, Graph, Node, Origin
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.rows.configuration import RowsConfiguration
from cutesmith.patterns.rows.plan import RowsPlan
from cutesmith.runtime.tiling import Tiling


def softmax_like(columns: int, dtype: str = "bfloat16") -> Graph:
    """exp(x) / sum(exp(x)): a value of every element waits for the reduction."""
    shape = (64, columns)
    argument = Argument("x", "tensor", dtype, shape, (columns, 1))
    x = Node("input", (), shape, dtype, Input.whole(0, shape, (columns, 1)))
    exponential = Node("exp", (x,), shape, dtype)
    down = Node("sum", (exponential,), (64, 1), dtype, Reduction((1,)), origin=Origin("sum", "aten.sum at line 1"))
    return Graph((argument,), (Node("div", (exponential, down), shape, dtype),), ((columns, 1),), False)


def tilings(graph: Graph, arch: str = "sm_90a") -> list[Tiling]:
    plan = plan_kernel(graph, arch)
    return [plan.tiling(c) for c in plan.configurations(arch)]


def test_a_row_that_waits_in_registers_says_how_many():
    plan = plan_kernel(softmax_like(4096), "sm_90a")
    tiling = plan.tiling(replace(plan.configurations("sm_90a")[0], elements_per_thread=32, threads_per_sm=0))
    assert (tiling.threads, tiling.tile, tiling.vector) == (128, (1, 4096), 8)
    assert tiling.registers == 32 * 2 // 4  # 32 elements of 16 bits
    assert tiling.settings["elements_per_thread"] == 32 and tiling.smem_bytes == 0


def test_rows_in_shared_memory_and_in_clusters():
    found = tilings(softmax_like(32768))
    assert {65536, 0} == {tiling.smem_bytes for tiling in found}
    assert {1, 4} == {tiling.cluster[0] for tiling in found}
    four = next(tiling for tiling in found if tiling.cluster == (4, 1, 1))
    assert four.tile == (1, 8192) and four.threads == 128 and four.registers == 32  # 64 elements of 16 bits


@dataclass(frozen=True)
class Proposing(RowsPlan):
    """A plan with other ideas of what is worth trying: changes of the pattern's first configuration."""

    changes: tuple[dict[str, Any], ...] = ()

    def configurations(self, arch: str = "sm_90a") -> list[RowsConfiguration]:
        base = replace(super().configurations("sm_90a")[0], threads_per_sm=0)
        return [replace(base, **change) for change in self.changes]


def proposing(columns: int, *changes: dict[str, Any], dtype: str = "float32") -> Proposing:
    plan = plan_kernel(softmax_like(columns, dtype), "sm_90a")
    return Proposing(plan.graph, plan.analysis, plan.kernel, changes=changes)


GREEDY = {"elements_per_thread": 64, "threads_per_sm": 2048}


def test_a_residency_that_the_kept_row_does_not_allow_is_skipped_with_its_reason():
    """64 float32 elements a thread are as many registers, of which 2048 threads could have 32 each."""
    sections, skipped = render_valid(proposing(8192, GREEDY, {"elements_per_thread": 16}), "sm_90a", 8)
    assert [item.configuration.elements_per_thread for item in sections] == [16]
    assert [item.configuration.elements_per_thread for item in skipped] == [64]
    assert "registers leave room for" in skipped[0].refusals[0]


def test_a_skipped_configuration_makes_room_for_another():
    counts = ({"elements_per_thread": count} for count in (16, 32, 8))
    sections, skipped = render_valid(proposing(8192, GREEDY, *counts), "sm_90a", 2)
    assert [item.tiling.settings["elements_per_thread"] for item in sections] == [16, 32] and len(skipped) == 1


def test_where_nothing_is_left_the_first_refusal_is_told():
    clusters = proposing(32768, {"elements_per_thread": 64, "max_threads": 128, "max_cluster": 4}, dtype="bfloat16")
    assert render_valid(clusters, "sm_90a", 8)[1] == []
    with pytest.raises(UnmatchedError, match="no configuration of rows runs on sm_80: .*sm_80 has no clusters"):
        render_valid(clusters, "sm_80", 8)


@pytest.mark.parametrize("arch", [sm.default_arch for sm in SM_VERSIONS.values()])
def test_what_the_patterns_propose_for_an_architecture_runs_there(arch):
    plan = plan_kernel(softmax_like(32768), arch)
    assert render_valid(plan, arch, 100)[1] == []


def test_elementwise_blocks_are_vectors_times_threads():
    x = Node("input", (), (64, 128), "float32", Input.whole(0, (64, 128), (128, 1)))
    argument = Argument("x", "tensor", "float32", (64, 128), (128, 1))
    graph = Graph((argument,), (Node("exp", (x,), (64, 128), "float32"),), ((128, 1),), False)
    plan = plan_kernel(graph, "sm_90a")
    first = tilings(graph)[0]
    assert first.tile == (first.threads * first.vector * first.settings["vectors"],) and first.vector == 4
    assert plan.tiled_shape().sizes == (8192,) and plan.tiled_shape().element_bytes == 4
