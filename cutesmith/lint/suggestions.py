"""What was meant by a name that does not exist: a table of names that older texts and models invent, then likeness."""

from __future__ import annotations

import difflib

from cutesmith.lint.symbols import SymbolTable

# Names that were removed or never existed, with what does the same job in nvidia-cutlass-dsl 4.8.
KNOWN = {
    "cutlass.cute.make_fragment": "cute.make_rmem_tensor",
    "cutlass.cute.make_register_tensor": "cute.make_rmem_tensor",
    "cutlass.cute.make_rmem": "cute.make_rmem_tensor",
    "cutlass.cute.make_gmem_ptr": "cute.runtime.make_ptr(dtype, address, cute.AddressSpace.gmem)",
    "cutlass.cute.make_smem_ptr": "cutlass.memory.SmemAllocator().allocate_tensor(…)",
    "cutlass.cute.copy_if": "cute.copy(atom, src, dst, pred=predicate)",
    "cutlass.cute.print_latex": "cutlass.cute.viz.print_latex",
    "cutlass.cute.from_dlpack": "cutlass.cute.runtime.from_dlpack",
    "cutlass.from_dlpack": "cutlass.cute.runtime.from_dlpack",
    "cutlass.cute.syncthreads": "cute.arch.sync_threads",
    "cutlass.cute.sync_threads": "cute.arch.sync_threads",
    "cutlass.cute.arch.syncthreads": "cute.arch.sync_threads",
    "cutlass.cute.arch.barrier_sync": "cute.arch.barrier",
    "cutlass.cute.arch.syncwarp": "cute.arch.sync_warp",
    "cutlass.cute.thread_idx": "cute.arch.thread_idx",
    "cutlass.cute.block_idx": "cute.arch.block_idx",
    "cutlass.cute.block_dim": "cute.arch.block_dim",
    "cutlass.cute.grid_dim": "cute.arch.grid_dim",
    "cutlass.cute.pipeline": "cutlass.pipeline",
    "cutlass.cute.utils": "cutlass.utils",
    "cutlass.cute.memory": "cutlass.memory",
    "cutlass.cute.arch.mbar.init": "cute.arch.mbarrier_init",
    "cutlass.cute.arch.mbar.arrive": "cute.arch.mbarrier_arrive",
    "cutlass.cute.arch.mbar.wait": "cute.arch.mbarrier_wait",
    "cutlass.cute.arch.mbar.try_wait": "cute.arch.mbarrier_try_wait",
    "cutlass.cute.arch.mbar.expect_tx": "cute.arch.mbarrier_expect_tx",
    "cutlass.cute.arch.shfl_xor": "cute.arch.shuffle_sync_bfly",
    "cutlass.cute.arch.shfl_xor_sync": "cute.arch.shuffle_sync_bfly",
    "cutlass.cute.arch.shuffle_xor_sync": "cute.arch.shuffle_sync_bfly",
    "cutlass.cute.arch.shfl_down_sync": "cute.arch.shuffle_sync_down",
    "cutlass.cute.arch.shfl_sync": "cute.arch.shuffle_sync",
    "cutlass.cute.math.sigmoid": "1 / (1 + cute.math.exp(-x)), or 0.5 * cute.math.tanh(0.5 * x) + 0.5",
    "cutlass.cute.math.relu": "cute.where(x < 0, cute.full_like(x, 0), x)",
    "cutlass.cute.math.silu": "x / (1 + cute.math.exp(-x))",
    "cutlass.cute.math.gelu": "0.5 * x * (1 + cute.math.erf(x * 0.7071067811865476))",
    "cutlass.cute.relu": "cute.where(x < 0, cute.full_like(x, 0), x)",
    "cutlass.cute.maximum": "cute.where(a > b, a, b)",
    "cutlass.cute.float32": "cutlass.Float32",
    "cutlass.cute.float16": "cutlass.Float16",
    "cutlass.float32": "cutlass.Float32",
    "cutlass.float16": "cutlass.Float16",
    "cutlass.bfloat16": "cutlass.BFloat16",
    "cutlass.int32": "cutlass.Int32",
    "cutlass.compile": "cute.compile",
    "cutlass.cute.range": "cutlass.range",
    "cutlass.cute.range_constexpr": "cutlass.range_constexpr",
    "cutlass.cute.const_expr": "cutlass.const_expr",
}
LIKENESS = 0.72  # difflib ratio below which a suggestion misleads


def suggest(symbols: SymbolTable, parent: str, missing: str) -> list[str]:
    """Up to three names that may have been meant by `parent.missing`, the best first, as they are written in code."""
    known = KNOWN.get(f"{parent}.{missing}")
    if known:
        return [known]
    elsewhere = [short(dotted) for dotted in symbols.homes(missing)[:1]]
    public = [name for name in symbols.names(parent) if not name.startswith("_")]
    near = difflib.get_close_matches(missing, public, n=2, cutoff=LIKENESS)
    found = elsewhere + [short(f"{parent}.{name}") for name in near]
    return list(dict.fromkeys(found))[:3]


def did_you_mean(symbols: SymbolTable, parent: str, missing: str) -> str:
    """`Did you mean a or b?`, or an empty string."""
    found = suggest(symbols, parent, missing)
    return f"Did you mean {' or '.join(found)}?" if found else ""


def short(dotted: str) -> str:
    """A dotted name as kernels write it: `cute.…` for `cutlass.cute.…`."""
    return dotted.removeprefix("cutlass.") if dotted.startswith("cutlass.cute.") else dotted
