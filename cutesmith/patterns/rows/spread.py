"""How a configuration spreads a row over threads: what `plan_rows` of the rendered kernel decides when it runs."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.rows.configuration import RowsConfiguration
from cutesmith.runtime.tiling import Tiling

REGISTER_BYTES = 4


@dataclass(frozen=True)
class Spread:
    """`threads` a row, each with `blocks` x `chunks` vectors of `vector` elements, in `cluster` thread blocks.

    A block has `rows` rows. `shared`: what does not fit the registers waits in shared memory, `kept` vectors a block.
    """

    vectors: int
    vector: int
    threads: int
    rows: int
    chunks: int
    blocks: int
    cluster: int
    kept: int
    shared: bool


def spread_row(columns: int, vector: int, configuration: RowsConfiguration, kept_bytes: int) -> Spread:
    """A row of `columns` elements, read `vector` at a time, of which `kept_bytes` a column wait between visits.

    The template `rows.py.j2` holds the same rules for the sizes of a call.
    """
    c, vectors = configuration, columns // vector
    threads = max(1, -(-columns // c.elements_per_thread))
    threads = 1 << (threads - 1).bit_length() if threads < 32 else -(-threads // 32) * 32
    cluster = 1
    while threads > c.max_threads and cluster < c.max_cluster:
        threads, cluster = -(-threads // 64) * 32, cluster * 2
    threads = min(threads, c.max_threads)
    chunks, blocks = max(1, -(-vectors // (threads * cluster))), 1
    if chunks * vector > c.resident_elements:
        in_flight = max(1, c.reload_elements // vector)
        chunks, blocks = in_flight, -(-chunks // in_flight)
    rows = max(1, c.min_threads // threads) if cluster == 1 and blocks == 1 else 1
    kept = vectors if cluster == 1 else threads * chunks * blocks
    shared = blocks > 1 and 0 < kept * vector * kept_bytes <= c.shared_bytes
    return Spread(vectors, vector, threads, rows, chunks, blocks, cluster, kept, shared)


def rows_tiling(columns: int, vector: int, configuration: RowsConfiguration, kept_bytes: int) -> Tiling:
    """The tiling of a rows kernel for rows of `columns` elements that allow `vector` elements an access.

    Registers are a lower bound: a thread keeps at least one value of each of its elements from one visit to the next,
    the tensor's own or, of several tensors, a float32 made of them. Shared memory is the row's, without the few partial
    results.
    """
    spread = spread_row(columns, vector, configuration, kept_bytes)
    threads = spread.threads * spread.rows
    held = spread.chunks * vector * min(kept_bytes, REGISTER_BYTES) if spread.blocks == 1 else 0
    width = -(-spread.vectors // spread.cluster) * vector
    return Tiling(
        threads=threads,
        tile=(spread.rows, max(vector, width)),
        cluster=(spread.cluster, 1, 1),
        vector=vector,
        smem_bytes=spread.kept * vector * kept_bytes if spread.shared else 0,
        registers=-(-held // REGISTER_BYTES),
        blocks_per_sm=configuration.threads_per_sm // threads,
        settings=configuration.to_dict(),
    )
