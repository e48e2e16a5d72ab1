"""Which configurations a row-reduction kernel is tried with, the most promising first."""

from __future__ import annotations

import math
from dataclasses import replace

from cutesmith.devices import SmVersion
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.rows.analysis import RowsAnalysis
from cutesmith.patterns.rows.configuration import RowsConfiguration
from cutesmith.patterns.rows.spread import Spread, spread_row

BLOCK_BYTES = 112 << 10
"""Of a row that one block keeps in shared memory: two such blocks, with their partial results, fit an SM of 228 KB."""

PARTIAL_BYTES = 2048
"""Of a block's shared memory that a row leaves to the partial results of warps."""

WIDE_BYTES = 200_000
"""Of a row: fewer were not measured with clusters. L2 holds some 250 such rows, two for each of 132 SMs."""

CLUSTER, CLUSTER_BLOCK_BYTES = 8, 200_000
"""Blocks that share a wide row, and what each of them keeps of it at most: one such block fits an SM."""

SUMMED_ELEMENTS, SUMMING_THREADS = 8, 1024
"""Of a thread whose rows are summed up, and such threads of an SM: 64 registers each."""

FEW_ROWS = 264
"""Two for each SM of an H200: a block has 64 KB on their way then, by 1024 threads of 64 bytes each.

Sums of 128 rows of 100352 in bfloat16 took 17.0 us on an H200 by 256 threads a row, which have 16 KB on their way.
"""

FULL = 2048
"""Threads an SM: every one that it can hold, so more rows in flight for at most 32 registers a thread."""

HINTS = {
    "stream": "Loads pass L1, as nothing is read twice.",
    "keep": "Loads pass L1, and L2 keeps their lines longer than others.",
    "last": "L2 keeps the lines of loads longer than others.",
}
"""What the hints of loads are for."""

SEVERAL_ROWS = 1024
"""Columns of rows of which a block has several: L1 has what neighbours share.

Norms and rotary embeddings of 64 heads of 4096 tokens took 38.3 us on an H200 where heads are neighbours, 41.9 where
tokens are, which read the tables from L2.
"""


def item_bytes(analysis: RowsAnalysis) -> list[int]:
    """Of the tensors that are read or written element by element, in bytes an element."""
    read = [use.node for use in analysis.uses if use.role == "element"]
    return [ITEM_BYTES[node.dtype] for node in (*read, *_written(analysis))]


def _has_tables(analysis: RowsAnalysis) -> bool:
    """Whether rows have the elements of a tensor several times, as heads have those of a rotation.

    Loads without a hint are not repeated: 2 x 4096 tokens of 32 heads took 47.4 us on an H200 so, 50.3 where L2 keeps
    their lines.
    """
    uses = [use.node for use in analysis.uses if use.role == "element"]
    return any(math.prod(analysis.sizes(node.shape, analysis.reduced)) < analysis.columns for node in uses)


def _written(analysis: RowsAnalysis) -> list[Node]:
    return [node for node in analysis.outputs if math.prod(node.shape) == math.prod(analysis.shape)]


def proposals(analysis: RowsAnalysis, kept_bytes: int, sm: SmVersion) -> list[RowsConfiguration]:
    """Candidates, best guess first: elements a thread, threads a block, where a long row waits, cache hints.

    `kept_bytes` a column wait between visits: of what is read once, such as a norm's weights, nothing does.
    The order is what an H200 measured on bf16 rows (evals/results/h200); every candidate is correct for every shape.
    """
    sizes, writes = item_bytes(analysis), _written(analysis)
    base = RowsConfiguration(vector=max(1, 16 // max(2, min(sizes, default=4))))
    width = max(1, sum(u.role == "element" for u in analysis.uses)) * max(2, max(sizes, default=2)) // 2
    if analysis.partial_sums:
        return _summed_rows(
            base, len(analysis.partial_sums), min(CLUSTER_BLOCK_BYTES, sm.smem_per_block - PARTIAL_BYTES)
        )
    if analysis.columns * width > 16384:
        row_bytes = analysis.columns * kept_bytes
        clusters, fits = sm.max_cluster >= CLUSTER, WIDE_BYTES < row_bytes <= CLUSTER * CLUSTER_BLOCK_BYTES
        read = sum(use.role in ("element", "column") for use in analysis.uses)
        crowded = read > 1 and analysis.vector(base.vector) == 1
        found = _wide_rows(base, row_bytes, crowded) if writes and clusters and fits else []
        if not writes and analysis.rows <= FEW_ROWS:
            found.append(replace(base, resident_elements=0, max_threads=1024, reload_elements=max(8, 32 // width)))
        found += _long_rows(
            base, row_bytes, min(BLOCK_BYTES, sm.smem_per_block - PARTIAL_BYTES), bool(writes), clusters
        )
    else:
        weighted = any(use.role == "column" for use in analysis.uses)
        found = _short_rows(base, analysis.columns, analysis.slices, bool(writes), width, weighted)
        if analysis.slices > 1 and _has_tables(analysis):
            found.sort(key=lambda each: each.hints != "none")
        if analysis.columns <= SEVERAL_ROWS and analysis.sharing != analysis.kept:
            found.insert(0, replace(found[0], neighbours=True))
    # sm_86, sm_89 and sm_120 hold 1536 threads: asking for more would not limit anything.
    return [replace(c, threads_per_sm=min(c.threads_per_sm, sm.threads_per_sm)) for c in found]


def _summed_rows(base: RowsConfiguration, sums: int, shared_bytes: int) -> list[RowsConfiguration]:
    """Rows that are summed up as well: a thread has a sum for each of its elements, whichever row it works on.

    A block has few rows on their way, unless the next ones go to shared memory while it works on one. Two sums spill
    beside 64 registers.
    """
    few = replace(base, elements_per_thread=SUMMED_ELEMENTS, threads_per_sm=SUMMING_THREADS)
    more = replace(base, elements_per_thread=2 * SUMMED_ELEMENTS, threads_per_sm=SUMMING_THREADS // 2)
    ahead = [replace(each, shared_bytes=shared_bytes) for each in ((few, more) if sums == 1 else (more, few))]
    return [*ahead, few, more, replace(few, hints="stream"), replace(more, hints="stream")]


def _short_rows(
    base: RowsConfiguration, columns: int, slices: int, writes: bool, width: int, weighted: bool
) -> list[RowsConfiguration]:
    """Rows that fit the registers; `width` is the bytes an element takes in all tensors, in units of two.

    A thread has as many elements of each slice. A gate of normed halves of 4096 columns took 57.1 us on an H200 by 16
    of each, 58.9 by 32, and 124 by 32 in 64 registers.
    """
    counts = [32, 16, 64] if columns > 1024 and slices == 1 else [16, 32, 8]
    counts = [max(8, count // (1 if width <= 2 else 2)) for count in counts]
    if weighted and not writes:
        # A matrix times a vector: 32 bytes a thread. 8192 x 2048 took 15.3 us with 64 and 14.6 with 32 in bf16, two
        # matrices of 14336 x 4096 63.7 and 61.1.
        counts = list(dict.fromkeys([max(base.vector, 16 // width), *counts]))
    plain = [replace(base, elements_per_thread=count) for count in counts]
    if not writes:
        return [replace(each, hints="stream") for each in plain[:2]] + plain
    lasting = [replace(each, hints="last") for each in plain]
    sixteen = replace(base, elements_per_thread=16, hints="last")
    dense = [replace(sixteen, threads_per_sm=threads) for threads in (FULL, 1536) if slices == 1]
    if columns <= 1024:
        # A row a warp and two rows a block, so that no barrier waits: layer norm over 1024 columns 37.9 to 37.4 us.
        warps = [replace(base, elements_per_thread=max(counts[:2]), min_threads=64)] if weighted else []
        return plain[:1] + warps + plain[1:2] + lasting[:1] + dense[:1] + plain[2:]
    # A weight and a bias cost registers: with at most 64 of them layer norm over 8192 columns went from 274 to 256 us.
    roomy = [replace(lasting[0], threads_per_sm=1024)] if weighted and slices == 1 else []
    return roomy + lasting[:2] + dense + plain[:1] + lasting[2:] + [replace(plain[0], hints="keep")]


def _wide_rows(base: RowsConfiguration, row_bytes: int, crowded: bool) -> list[RowsConfiguration]:
    """Rows of which neither a block's shared memory nor L2 holds all that are being worked on: a cluster's does.

    Against the best without clusters: softmax over 262144 columns of bf16 105 to 78 us, over 393216 of float32 1200 to
    1024, layer norm over 65536 of float32 660 to 614, x / mean(abs(x)) over 65535 1504 to 1217.
    `crowded`: single elements of several tensors are on their way. Of three, 16 of each do not fit the 64 registers
    that a thread of 1024 has (30 stores and 39 loads spill), 8 do.
    """
    wide = replace(base, resident_elements=0, reload_elements=16, max_cluster=CLUSTER, shared_bytes=CLUSTER_BLOCK_BYTES)
    alone = row_bytes > CLUSTER * BLOCK_BYTES  # a block alone on its SM wants all the threads that it can have
    most = replace(wide, max_threads=1024, reload_elements=8 if crowded else 16)
    fewer = [replace(wide, max_threads=threads) for threads in (512, 256)]
    return [most, *fewer] if alone else [*fewer, most]


def _long_rows(
    base: RowsConfiguration, row_bytes: int, block_bytes: int, writes: bool, clusters: bool
) -> list[RowsConfiguration]:
    """Rows that wait in shared memory, in L1 and L2, or in the registers of a cluster.

    They would need too many registers: a thread takes a few elements at a time and fetches them for each stage.
    """
    long = replace(base, resident_elements=0)
    if not writes:
        return [
            replace(long, max_threads=256, hints="keep"),
            replace(long, max_threads=256),
            replace(long, max_threads=512, reload_elements=16, hints="keep"),
        ]
    kept, sixteen = replace(long, shared_bytes=block_bytes), replace(long, reload_elements=16)
    # Where shared memory limits an SM to two blocks, they need 1024 threads each to have as many loads on their way:
    # a group norm of 98 KB a group took 93 us by 800 threads, 127 by two blocks of 416 that share a group.
    few = 2 * BLOCK_BYTES < 3 * row_bytes <= 3 * block_bytes
    found = [
        *([replace(kept, max_threads=1024, reload_elements=16)] if few else []),
        replace(kept, max_threads=512, reload_elements=16),
        # Written lines leave L2 first: RMS norm over 32768 columns from 509.7 to 504.3 us, where a copy takes 508.
        replace(sixteen, max_threads=1024, hints="last", stores="first", threads_per_sm=FULL),
        replace(sixteen, max_threads=1024, hints="keep"),
        replace(long, max_threads=1024, reload_elements=8, hints="last", threads_per_sm=FULL),
        replace(sixteen, max_threads=512, hints="last", threads_per_sm=FULL),
        replace(sixteen, max_threads=512, hints="last", threads_per_sm=1536),
        *([] if few else [replace(kept, max_threads=1024, reload_elements=16)]),
        replace(kept, max_threads=512),
    ]
    if clusters:
        found.append(replace(base, elements_per_thread=64, max_threads=128, max_cluster=CLUSTER))
    return found


def why(analysis: RowsAnalysis, kept_bytes: int, visits: int, c: RowsConfiguration) -> str:
    """Sentences: where a row waits between so many visits, hints of its loads, and who shares a multiprocessor."""
    spread = spread_row(analysis.columns, analysis.vector(c.vector), c, kept_bytes)
    told = [f"A row of {analysis.columns} elements {_waiting(spread, kept_bytes, visits)}."]
    if analysis.partial_sums:
        told.append(f"A thread sums up its columns of all rows in {c.elements_per_thread} registers for each sum.")
    if spread.rows > 1:
        told.append(f"{spread.rows} rows share a block of {spread.threads * spread.rows} threads.")
    if c.neighbours:
        told.append("Rows that read the same of a table follow each other, so that L1 has it.")
    if c.hints in HINTS:
        told.append(HINTS[c.hints])
    if c.threads_per_sm:
        told.append(f"Registers are limited so that {c.threads_per_sm} threads share a multiprocessor.")
    return " ".join(told)


def _waiting(spread: Spread, kept_bytes: int, visits: int) -> str:
    """What becomes of a row from its first visit to its last."""
    threads = f"{spread.threads} thread{'s' if spread.threads > 1 else ''}"
    threads += f" in each of {spread.cluster} blocks of a cluster" if spread.cluster > 1 else ""
    vectors = f"{spread.chunks} vector{'s' if spread.chunks > 1 else ''} of {spread.vector}"
    if spread.blocks == 1:
        stays = f"stays in registers for {visits} visits" if visits > 1 else "is read once"
        return f"{stays}: {threads} have {vectors} each"
    if spread.shared:
        kilobytes = spread.kept * spread.vector * kept_bytes / 1024
        return f"waits in {kilobytes:.3g} KB of a block's shared memory, as {threads} hold {vectors} each at a time"
    again = f"is read by {visits} visits, from L2 after the first" if visits > 1 else "is read once"
    return f"{again}: {threads} load {vectors} each at a time"
