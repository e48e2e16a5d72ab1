"""What the source of an example says of itself: entry symbols, features, dtypes and architectures, found by its names.

Nothing is imported or run. A notebook counts as the code of its cells, one after the other, without the lines that only
IPython understands. Detection reads identifiers, never comments or docstrings: a kernel that only speaks of clusters
does not use them. What names cannot tell (causal masking hidden in an enum, say) is added by hand in
`examples_index/curation/`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from cutesmith.errors import UsageError
from cutesmith.examples.index.records import Example
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES
from cutesmith.syntax import parse_python

RULES: dict[str, str] = {
    "tma": r"CopyBulkTensorTile|make_tiled_tma_atom|cp_async_bulk_tensor|PipelineTma|create_tensor_map"
    r"|\btma_(load|partition)|TMALoad",
    "tma_store": r"CopyBulkTensorTileS2G|PipelineTmaStore|cp_async_bulk_tensor_global_shared|tma_store",
    "tma_multicast": r"TileG2SMulticast|multicast_mask|mcast_mask|cluster_shape_to_tma_atom",
    "tma_reduce": r"CopyReduceBulkTensorTile",
    "bulk_copy": r"cp_async_bulk_(shared_cluster|shared_cta|global|prefetch)|CopyBulkG2S|CopyBulkS2G",
    "tensormap_update": r"TensorMapManager|update_tma_descriptor|tensormap_replace|update_tensormap|TensormapDesc",
    "cp_async": r"cpasync\.CopyG2SOp|cp_async_shared_global|cp_async_commit_group|PipelineCpAsync",
    "ldmatrix": r"LdMatrix|\.ldmatrix|get_smem_load_atom",
    "stmatrix": r"StMatrix|\.stmatrix|get_smem_store_(op|atom)",
    "swizzle": r"make_swizzle|make_smem_layout_(atom|a|b|epi)\b|\.Swizzle|SmemSwizzle|TensorMapSwizzle|load_swizzled",
    "vectorized_copy": r"num_bits_per_copy|autovec_copy|make_layout_tv|load_vector|VectorizedLoad|masked_load|vecsize",
    "predication": r"elem_less|\bpred\b|\bpredicate|masked_(load|store)",
    "prefetch": r"cute\.prefetch\b|bulk_prefetch|prefetch_dist|tma_prefetch|PrefetchTile",
    "smem": r"SmemAllocator|alloc_smem|SharedStorage|AddressSpace\.smem|get_smem_requirements",
    "dsmem": r"\.mapa\b|store_shared_remote|map_shared_rank|set_block_rank|PipelineStas",
    "tmem": r"tmem|Tmem",
    "simt": r"MmaUniversalOp",
    "mma_sync": r"\bwarp\.Mma|nvgpu\.warp\.Mma|MmaSM120|get_sm120_mma",
    "wgmma": r"warpgroup\.(Mma|wait_group|commit_group|fence|Field)|sm90_utils\.make_trivial_tiled_mma",
    "tcgen05": r"tcgen05",
    "two_cta": r"use_2cta|CtaGroup\.TWO|CTAGroup\.CTA_2|USE_2CTA",
    "block_scaled": r"blockscaled|block_scale|BlockScale|sf_vec_size|SF_VEC_SIZE|MmaMX",
    "pipeline": r"Pipeline(Tma|Cp|Umma|Async|Clc)|PipelineConfig|num_stages|_stages?\b|NUM_STAGES",
    "warp_specialization": r"\b(self\.)?\w*(tma|mma|load|epi|epilog|epilogue|dma|producer|softmax)\w*_warp(_ids?)?\b"
    r"|_WARP\b|create_\w+_task\b|warp_group_role|is_dma_warp|PRODUCER|producer_warp",
    "register_reallocation": r"setmaxregister|warpgroup_reg_(de)?alloc",
    "persistent": r"Persistent|TileScheduler|tile_sched|WorkQueue",
    "dynamic_scheduler": r"Clc[A-Z]|clc_|try_cancel|DynamicPersistent",
    "cluster": r"cluster_shape|cluster_arrive|cluster_wait|block_idx_in_cluster|block_in_cluster|CLUSTER|cluster_n\b",
    "rasterization": r"raster_(tile|factor|order)|RasterOrder|rasteri[sz]|swizzle_size",
    "split_k": r"split_k|SplitK|split_kv",
    "mbarrier": r"mbarrier_|Mbarrier|PipelineTma|PipelineUmma",
    "named_barrier": r"NamedBarrier|barrier_cta_(sync|arrive)|cute\.arch\.barrier\b|arrive_and_wait",
    "task_scheduling": r"task_scheduling|\bTaskManager|cutlass\.ts\b",
    "warp_shuffle": r"shuffle_sync|\.Shfl|shfl_sync|warp_reduc(e|tion)",
    "warp_vote": r"vote_(sync|any|all|uni|ballot)|VoteSync|\.vote",
    "redux": r"redux_sync",
    "elect": r"elect_one|elect_sync",
    "block_reduction": r"block_reduce|cta_reduce|row_reduce",
    "cluster_reduction": r"cluster_reduce|cluster_tree_reduce",
    "atomics": r"\.atomic_|prims\.red\b|red_add|atomicrmw|red_async",
    "grid_sync": r"\bcooperative\b",
    "epilogue_fusion": r"epilogue_op|epilogue_fn|EFC|gemm_epilogue|epi_ops|fused_gelu|epi_visit",
    "bias": r"\b[mgs]Bias|fused_bias|add_bias|\b_?bias_(vec|tensor|tile)",
    "activation": r"\w*(gelu|relu|silu|sigmoid|swiglu)\w*",
    "residual": r"\b[mgst]?Residual\b|^residual$",
    "amax": r"\bamax|_amax",
    "batched": r"\bbmm\b|mnkl|\bmnl\b",
    "ptr_array": r"ptr_array|tensor_of_ptrs|ptrs_abc",
    "varlen": r"varlen|cum_seqlen|cu_seqlen|Varlen",
    "moe": r"\bMoE|\bmoe_|expert_(idx|cnt|shape)",
    "online_softmax": r"softmax_rescale|softmax_step|rescale_O|correction_rescale|online_softmax",
    "causal": r"is_causal|\bcausal",
    "sliding_window": r"window_size",
    "paged_kv": r"page_table|paged",
    "block_sparse": r"(produce|consume)_block_sparse",
    "backward": r"[Bb]ackward|_bwd",
    "multi_gpu": r"symmetric_memory|nvshmem|torch\.distributed|symm_mem|torchrun",
    "multimem": r"multimem",
    "pdl": r"griddepcontrol|use_pdl",
    "cuda_graph": r"CUDAGraph|cuGraph|StreamBeginCapture|cudaGraph",
    "tvm_ffi": r"tvm_ffi",
    "jax": r"^jax\b|cutlass_call",
    "torch_op": r"torch\.library|custom_op|cute_op|autograd\.Function",
    "aot_export": r"export_to_c|load_module|ExternalBinaryModule",
    "fake_tensor": r"make_fake|FakeTensorMode|fake_tensor",
    "dynamic_layout": r"mark_layout_dynamic|mark_compact_shape_dynamic|sym_int",
    "pointer_arguments": r"\bmake_ptr\b|runtime\.make_ptr",
    "autotune": r"autotune|testing\.tune",
    "benchmark": r"testing\.benchmark|do_bench|profile_softmax|benchmark_\w+",
    "inline_ptx": r"inline_asm|inline_ptx|^llvm\.|^nvvm\.",
    "struct": r"cute\.struct",
    "printing": r"cute\.printf|print_tensor|print_latex|print_runtime",
    "profiling": r"iket",
    "tensorssa": r"TensorSSA",
    "primitives_api": r"cutlass\.(experimental\.)?primitives",
}
"""Feature → regular expression over `Source.names`, one name a line."""
STRING_RULES = {"tvm_ffi": r"--enable-tvm-ffi", "multimem": r"multimem\.", "pdl": r"griddepcontrol"}

_NAMES = {feature: re.compile(rule, re.MULTILINE) for feature, rule in RULES.items()}
_STRINGS = {feature: re.compile(rule) for feature, rule in STRING_RULES.items()}

NUMERIC = {
    "Float64": "float64",
    "Float32": "float32",
    "TFloat32": "tfloat32",
    "BFloat16": "bfloat16",
    "Float16": "float16",
    "Float8E4M3FN": "float8_e4m3fn",
    "Float8E5M2": "float8_e5m2",
    "Float8E8M0FNU": "float8_e8m0fnu",
    "Float6E3M2FN": "float6_e3m2fn",
    "Float6E2M3FN": "float6_e2m3fn",
    "Float4E2M1FN": "float4_e2m1fn",
    "Int4": "int4",
    "Int8": "int8",
    "Uint8": "uint8",
}
"""The DSL's name → ours. 32- and 64-bit integers are missing: nearly every kernel has them as indices, few as data."""

FOLDERS = {"ampere": "sm_80", "hopper": "sm_90a", "blackwell": "sm_100a", "blackwell_geforce": "sm_120a"}
NUMBERED = re.compile(r"sm(80|90|100|103|107|120)(?![0-9])", re.IGNORECASE)
ONLY = {"wgmma": "sm_90a", "tcgen05": "sm_100a"}  # instructions of one architecture
SINCE_HOPPER = {"tma", "mbarrier", "cluster", "dsmem", "elect", "bulk_copy", "stmatrix", "register_reallocation", "pdl"}
LAUNCHED = ("jit", "kernel")
MAGIC = re.compile(r"^\s*[%!]")
SPDX = re.compile(r"SPDX-License-Identifier:\s*([\w.+-]+)")


@dataclass(frozen=True)
class Source:
    """A file that was read: its path as the record will have it, the sha256 of its bytes, its code and its lines."""

    path: str
    sha256: str
    code: str
    lines: int

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; raises UsageError where the code does not parse."""
        try:
            return parse_python(self.code)
        except (SyntaxError, ValueError) as error:
            said = f"{self.path}:{getattr(error, 'lineno', None) or 1}: does not parse: {error}"
            raise UsageError(said, hint="It is not indexed until it does") from error

    @cached_property
    def names(self) -> str:
        """Every identifier, dotted name, imported module and keyword of the code, one a line, sorted."""
        return "\n".join(sorted(set(_names(self.tree))))

    @cached_property
    def strings(self) -> str:
        """Every string of the code but docstrings and other bare strings: options, PTX, format names; one a line."""
        skipped = {id(node.value) for node in ast.walk(self.tree) if isinstance(node, ast.Expr)}
        found = (n for n in ast.walk(self.tree) if isinstance(n, ast.Constant) and id(n) not in skipped)
        return "\n".join(n.value for n in found if isinstance(n.value, str))

    @property
    def docstring(self) -> str:
        """The module's docstring, or the empty string."""
        return ast.get_docstring(self.tree) or ""

    @property
    def licence(self) -> str:
        """The SPDX identifier that the file states, or the empty string."""
        found = SPDX.search(self.code[:4000])
        return found.group(1) if found else ""


def read_source(file: Path, path: str) -> Source:
    """Read `file`, which the record will call `path`; raises UsageError unless it is UTF-8 text that parses."""
    data = file.read_bytes()
    try:
        text = data.decode("utf-8")
        code, lines = _notebook(text) if PurePosixPath(path).suffix == ".ipynb" else (text, len(text.splitlines()))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: no readable source: {error}", hint="Look at the file; it is not indexed") from error
    source = Source(path=path, sha256=hashlib.sha256(data).hexdigest(), code=code, lines=lines)
    source.tree  # noqa: B018 - a file that does not parse is refused here, not at its first use
    return source


def _notebook(text: str) -> tuple[str, int]:
    cells = json.loads(text)["cells"]
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    code = (line for kind, source in sources if kind == "code" for line in source.splitlines())
    return "\n".join("" if MAGIC.match(line) else line for line in code), sum(len(s.splitlines()) for _, s in sources)


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield dotted(node)
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.arg, ast.keyword)) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an attribute or name; what is not a name (`f().x`) is left out: `.x`."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return dotted(node.func)
    return node.id if isinstance(node, ast.Name) else ""


def features(source: Source) -> tuple[str, ...]:
    """The features (of FEATURES) that the names in the source show, in the vocabulary's order."""
    found = {name for name, rule in _NAMES.items() if rule.search(source.names)}
    found |= {name for name, rule in _STRINGS.items() if rule.search(source.strings)}
    if re.search(r"\balpha\b", source.names) and re.search(r"\bbeta\b", source.names):
        found.add("alpha_beta")
    return in_order(found, FEATURES)


def dtypes(source: Source) -> tuple[str, ...]:
    """The dtypes (of DTYPES) that the source names, in the vocabulary's order.

    Beside 4-bit floats, 8-bit integers are carriers of packed bytes, no operands.
    """
    words = set(re.findall(r"\w+", source.names)) | set(re.findall(r"\bFloat\w+|\bBFloat16\b", source.strings))
    found = {ours for theirs, ours in NUMERIC.items() if theirs in words}
    return in_order(found - {"int8", "uint8"} if "float4_e2m1fn" in found else found, DTYPES)


def archs(source: Source, found: Iterable[str]) -> tuple[str, ...]:
    """What the example was written for: what its path says, and the oldest that its instructions need, if older.

    `found` are its features. An instruction of one architecture only (wgmma, tcgen05) leaves no other.
    """
    stated = _stated(source.path)
    only = {ONLY[feature] for feature in found if feature in ONLY}
    if stated or only:
        needed = {_oldest(found)} if stated == {"sm_100a"} and not only else set()
        return in_order(stated | (only if not stated else set()) | needed, ARCHS)
    return (_oldest(found),)


def symbols(source: Source) -> tuple[str, ...]:
    """Entry points, in the order of the source: `kernel_fn`, classes with a jitted method, @jit and @kernel functions.

    A module without any has its public classes and functions instead.
    """
    named = [n for n in source.tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    entries = [node.name for node in named if node.name == "kernel_fn" or _is_launched(node)]
    names = [node.name for node in named]
    return tuple(dict.fromkeys(entries or [name for name in names if not name.startswith("_")] or names))


def facts(source: Source, *, id: str, kind: str, repository: str, version: str, licence: str) -> Example:
    """A record with everything that can be read off the source, and no words yet."""
    found = features(source)
    return Example(
        id=id,
        title=PurePosixPath(source.path).stem.replace("_", " "),
        operation="",
        arch=archs(source, found),
        dtypes=dtypes(source),
        features=found,
        source=kind,
        repository=repository,
        version=version,
        path=source.path,
        sha256=source.sha256,
        lines=source.lines,
        summary="",
        lesson="",
        symbols=symbols(source),
        licence=source.licence or licence,
    )


def in_order(found: Iterable[str], vocabulary: Iterable[str]) -> tuple[str, ...]:
    """The found words in the vocabulary's order."""
    known = set(found)
    return tuple(name for name in vocabulary if name in known)


def _stated(path: str) -> set[str]:
    """Architectures that the path names: `sm103_….py` before a folder `blackwell`, the innermost first."""
    for part in reversed(PurePosixPath(path).parts):
        numbers = {int(number) for number in NUMBERED.findall(part)}
        if numbers:
            return {"sm_80" if number == 80 else f"sm_{number}a" for number in numbers}
        if part in FOLDERS:
            return {FOLDERS[part]}
    return {"sm_100a"} if "_blackwell." in path else set()


def _oldest(found: Iterable[str]) -> str:
    known = set(found)
    if known & {"tcgen05", "tmem", "dynamic_scheduler"}:
        return "sm_100a"
    return "sm_90a" if known & SINCE_HOPPER else "sm_80"


def _is_launched(node: ast.FunctionDef | ast.ClassDef) -> bool:
    members = [node] if isinstance(node, ast.FunctionDef) else node.body
    functions = (member for member in members if isinstance(member, ast.FunctionDef))
    return any(dotted(d).rpartition(".")[2] in LAUNCHED for function in functions for d in function.decorator_list)
