"""What stands for words in a line of code: operators and names of PyTorch, CUDA's intrinsics, PTX instructions."""

from __future__ import annotations

import re

from cutesmith.examples.search.words import STOPWORDS, parts, stem

_PYTORCH = (
    (r"\b(?:torch\.nn\.functional|torch\.nn|torch|nn|f)\._?(?=[a-z])", ""),
    (r"\bcute[\s_-]?dsl\b", ""),
    (r"(?<=[\w)])\s*@\s*(?=[\w(])", " matmul "),
    (r"\.(?:t|mt|t\(\))\.contiguous\(\)", " transpose "),
    (r"(?-i:\.(?:T|mT|t\(\))(?!\w))", " "),
    (r"(?<= matmul )(.*)\+\s*b\b", r"\1 bias "),
    (r"(?<=\b[a-z])\s*[+*/-]\s*(?=[a-z]\b)", " elementwise "),
    (r"(?<=\))\s*\*\s*(?=[a-z]\b)", " elementwise "),
)
"""Prefixes of names, and operators."""

_INSTRUCTIONS = (
    (r"(?:__syncthreads_(?:or|and|count)|bar(?:rier)?(?:\.cta)?\.red)", "barrier cta red predicate"),
    (r"__syncthreads|bar(?:rier)?\.cta\.sync|bar\.sync", "barrier cta sync named barrier"),
    (r"__syncwarp", "bar warp sync"),
    (r"(?:__)?shfl(?:_sync)?[._](?:xor|bfly)(?:_sync)?|shfl\.sync\.bfly", "shfl sync butterfly"),
    (r"__shfl_up_sync", "shfl sync up shift scan"),
    (r"__shfl(?:_down)?_sync|shfl\.sync", "shfl sync"),
    (r"__(?:ballot|any|all|uni)_sync|vote\.sync", "vote sync ballot"),
    (r"__reduce_(?:add|min|max|and|or|xor)_sync", "redux sync"),
    (r"atomic(?:add|sub|max|min|cas|exch|inc|and|or|xor)|atom\.", "atomics "),
    (r"red\.async", "red dsmem "),
    (r"red\.(?:global|shared|relaxed|release)", "red atomics "),
    (r"cp\.reduce\.async\.bulk", "tma reduce "),
    (r"cp\.async\.bulk\.prefetch", "cp async bulk prefetch "),
    (r"cp\.async\.bulk\.tensor", "tma "),
    (r"cp\.async\.mbarrier", "cp async mbarrier "),
    (r"clusterlaunchcontrol", "cluster launch control "),
    (r"griddepcontrol|cudagriddependencysynchronize|cudatriggerprogrammaticlaunchcompletion", " pdl "),
    (r"cudalaunchcooperativekernel|this_grid|grid\.sync", "cooperative launch grid sync"),
    (r"cudagraph|cudastreambegincapture", "cuda graph "),
    (r"multimem\.\w+", "multimem "),
    (r"mapa|st\.async|(?:ld|st)\.shared::cluster", "mapa dsmem "),
    (r"wgmma\.\w+", "wgmma "),
    (r"tcgen05\.(?:alloc|dealloc|ld|st|cp|shift)", r"tcgen05 tmem "),
    (r"ldmatrix\.\w+", "ldmatrix "),
    (r"(?:tanh|ex2|rcp|rsqrt)\.approx", "fast math "),
    (r"cublas\w*batched\w*", "batched gemm "),
    (r"cublas\w*gemm\w*|cublaslt\w*", "gemm "),
    (r"nccl(?=all|reduce)", "nccl "),
)
"""Intrinsics and instructions by the words that the records use for what they do; what follows a dot stays."""

_RULES = [
    *((re.compile(pattern, re.IGNORECASE), words) for pattern, words in _PYTORCH),
    *((re.compile(rf"(?<![a-z0-9])(?:{pattern})", re.IGNORECASE), f" {words} ") for pattern, words in _INSTRUCTIONS),
]
_SHORTEST = 3  # letters of a part: `ReLU`, `PyTorch` and `GEMMs` stay whole


def without_code(query: str, known: frozenset[str] = frozenset()) -> str:
    """The query in plain words; a CamelCase name is split unless the index itself writes it as one (`known`)."""
    for pattern, words in _RULES:
        query = pattern.sub(words, query)
    return re.sub(r"[A-Za-z]*[a-z][A-Z][A-Za-z]*", lambda name: _split(name.group(), known), query)


def _split(name: str, known: frozenset[str]) -> str:
    words = parts(name)
    whole = name.lower() in STOPWORDS or stem(name.lower()) in known
    return name if whole or min(map(len, words)) < _SHORTEST else " ".join(words)
