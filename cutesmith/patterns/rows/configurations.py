"""Which plans a row-reduction kernel is tried with: how a row is spread over threads, where it waits, cache hints."""

from __future__ import annotations

import math
from typing import Any

from cutesmith.devices import SmVersion
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.rows.analysis import RowsAnalysis

BASE: dict[str, Any] = {
    "vector": 8,
    "elements_per_thread": 32,
    "min_threads": 128,
    "max_threads": 1024,
    "max_cluster": 1,
    "resident_elements": 64,
    "reload_elements": 32,
    "shared_bytes": 0,
    "hints": "none",
    "stores": "none",
    "threads_per_sm": 0,
}
"""One thread block a row of up to 1024 threads, 32 elements a thread in registers."""

LONG = {"resident_elements": 0, "reload_elements": 32}
"""Rows that would need too many registers: a thread takes 32 elements at a time and fetches them for each stage."""


BLOCK_BYTES = 100_000
"""Of a row that one block keeps in shared memory: two such blocks fit an SM."""

WIDE_BYTES = 200_000
"""Of a row: fewer were not measured with clusters. L2 holds some 250 such rows, two for each of 132 SMs."""

CLUSTER, CLUSTER_BLOCK_BYTES = 8, 200_000
"""Blocks that share a wide row, and what each of them keeps of it at most: one such block fits an SM."""

FULL = {"threads_per_sm": 2048}
"""Every thread that an SM can hold: more rows in flight for at most 32 registers a thread."""


def configurations(analysis: RowsAnalysis, sm: SmVersion) -> list[dict[str, Any]]:
    """Candidate plans, best guess first: elements a thread, threads a block, where a long row waits, cache hints.

    The order is what an H200 measured on bf16 rows (evals/results/h200); every candidate is correct for every shape.
    """
    sizes = [ITEM_BYTES[u.node.dtype] for u in analysis.uses if u.role == "element"]
    writes = [node for node in analysis.outputs if math.prod(node.shape) == math.prod(analysis.shape)]
    sizes += [ITEM_BYTES[node.dtype] for node in writes]
    base = {**BASE, "vector": max(1, 16 // max(2, min(sizes, default=4)))}
    width = max(1, sum(u.role == "element" for u in analysis.uses)) * max(2, max(sizes, default=2)) // 2
    if analysis.columns * width > 16384:
        row_bytes = analysis.columns * sum(ITEM_BYTES[u.node.dtype] for u in analysis.uses if u.role == "element")
        clusters, fits = sm.max_cluster >= CLUSTER, WIDE_BYTES < row_bytes <= CLUSTER * CLUSTER_BLOCK_BYTES
        changes = (_wide_rows(row_bytes) if writes and clusters and fits else []) + _long_rows(bool(writes), clusters)
    else:
        weighted = any(use.role == "column" for use in analysis.uses)
        changes = _short_rows(analysis.columns, bool(writes), width, weighted)
    found = [{**base, **change} for change in changes]
    # sm_86, sm_89 and sm_120 hold 1536 threads: asking for more would be no limit at all.
    return [{**c, "threads_per_sm": min(c["threads_per_sm"], sm.threads_per_sm)} for c in found]


def _short_rows(columns: int, writes: bool, width: int, weighted: bool) -> list[dict[str, Any]]:
    """Rows that fit the registers; `width` is the bytes an element takes in all tensors, in units of two."""
    counts = [32, 16, 64] if columns > 1024 else [16, 32, 8]
    counts = [max(8, count // (1 if width <= 2 else 2)) for count in counts]
    plain = [{"elements_per_thread": count} for count in counts]
    if not writes:
        return [{"elements_per_thread": count, "hints": "stream"} for count in counts[:2]] + plain
    lasting = [{**change, "hints": "last"} for change in plain]
    dense = [{"elements_per_thread": 16, "hints": "last", "threads_per_sm": threads} for threads in (2048, 1536)]
    if columns <= 1024:
        # A row a warp and two rows a block, so that no barrier waits: layer norm over 1024 columns 37.9 to 37.4 us.
        warps = [{"elements_per_thread": max(counts[:2]), "min_threads": 64}] if weighted else []
        return plain[:1] + warps + plain[1:2] + lasting[:1] + dense[:1] + plain[2:]
    # A weight and a bias cost registers: with at most 64 of them layer norm over 8192 columns went from 274 to 256 us.
    roomy = [{**lasting[0], "threads_per_sm": 1024}] if weighted else []
    return roomy + lasting[:2] + dense + plain[:1] + lasting[2:] + [{**plain[0], "hints": "keep"}]


def _wide_rows(row_bytes: int) -> list[dict[str, Any]]:
    """Rows of which neither a block's shared memory nor L2 holds all that are being worked on: a cluster's does.

    Against the best without clusters: softmax over 262144 columns of bf16 105 to 78 us, over 393216 of float32 1200 to
    1024, layer norm over 65536 of float32 660 to 614, x / mean(abs(x)) over 65535 1504 to 1217.
    """
    wide = {**LONG, "reload_elements": 16, "max_cluster": CLUSTER, "shared_bytes": CLUSTER_BLOCK_BYTES}
    alone = row_bytes > CLUSTER * BLOCK_BYTES  # a block alone on its SM wants all the threads that it can have
    return [{**wide, "max_threads": threads} for threads in ((1024, 512, 256) if alone else (512, 256, 1024))]


def _long_rows(writes: bool, clusters: bool) -> list[dict[str, Any]]:
    """Rows that wait in shared memory, in L1 and L2, or in the registers of a cluster."""
    if not writes:
        return [
            {**LONG, "max_threads": 256, "hints": "keep"},
            {**LONG, "max_threads": 256},
            {**LONG, "max_threads": 512, "reload_elements": 16, "hints": "keep"},
        ]
    kept = {**LONG, "shared_bytes": BLOCK_BYTES}
    found: list[dict[str, Any]] = [
        {**kept, "max_threads": 512, "reload_elements": 16},
        # Written lines leave L2 first: RMS norm over 32768 columns from 509.7 to 504.3 us, where a copy takes 508.
        {**LONG, "max_threads": 1024, "reload_elements": 16, "hints": "last", "stores": "first", **FULL},
        {**LONG, "max_threads": 1024, "reload_elements": 16, "hints": "keep"},
        {**LONG, "max_threads": 1024, "reload_elements": 8, "hints": "last", **FULL},
        {**LONG, "max_threads": 512, "reload_elements": 16, "hints": "last", **FULL},
        {**LONG, "max_threads": 512, "reload_elements": 16, "hints": "last", "threads_per_sm": 1536},
        {**kept, "max_threads": 1024, "reload_elements": 16},
        {**kept, "max_threads": 512},
    ]
    if clusters:
        found.append({"elements_per_thread": 64, "max_threads": 128, "max_cluster": CLUSTER})
    return found
