"""What a query is understood as: phrases, synonyms, misspellings, negations, code; and how architectures fit."""

from __future__ import annotations

import pytest

from cutesmith.examples.search import words
from cutesmith.examples.search.query import compounds, read_query
from cutesmith.examples.search.search import fit
from cutesmith.examples.search.words import parts, stem, tokens
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS
from tests.examples.fetch_samples import cutlass


@pytest.mark.parametrize(
    ("query", "operations", "features", "archs", "dtypes"),
    [
        ("hopper gemm bf16", "gemm", "", "sm_90a", "bfloat16"),
        ("MatMul on an H200", "gemm", "", "sm_90a", ""),
        ("RMS-Norm", "rmsnorm", "", "", ""),
        ("flash attention with variable length sequences", "attention", "varlen", "", ""),
        ("SDPA", "attention", "", "", ""),
        ("nvfp4 matmul B200", "blockscaled_gemm", "block_scaled", "sm_100a", "float4_e2m1fn"),
        ("mxfp8 gemm", "blockscaled_gemm", "block_scaled", "", "float8_e4m3fn"),
        ("gemm followed by an all-reduce", "gemm collective", "", "", ""),
        ("gemm all-reduce", "distributed_gemm", "", "", ""),
        ("attention, backwards pass", "attention_backward", "backward", "", ""),
        ("int4 weights, bf16 activations", "mixed_input_gemm", "", "", "int4 bfloat16"),
        ("warp specialised persistent kernel", "", "warp_specialization persistent", "", ""),
        ("2cta", "", "two_cta", "", ""),
        ("RTX 5090", "", "", "sm_120a", ""),
        ("rtx 4090", "", "", "sm_89", ""),
        ("RTX 3090", "", "", "sm_86", ""),
        ("Volta", "", "", "sm_70", ""),
        ("sm_100", "", "", "sm_100a", ""),
        ("compute capability 9.0", "", "", "sm_90a", ""),
        ("geforce blackwell", "", "", "sm_120a", ""),
        ("fp8", "", "", "", "float8_e4m3fn|float8_e5m2"),
        ("half precision", "", "", "", "float16"),
        ("torch.nn.functional.cross_entropy", "cross_entropy", "", "", ""),
        ("F.scaled_dot_product_attention", "attention", "", "", ""),
        ("x @ w.T + bias", "gemm", "bias", "", ""),
        ("a + b", "elementwise", "", "", ""),
        ("nn.CrossEntropyLoss", "cross_entropy", "", "", ""),
        ("nn.MultiheadAttention", "attention", "", "", ""),
        ("x.t().contiguous()", "transpose", "", "", ""),
        ("__shfl_xor_sync", "", "warp_shuffle", "", ""),
        ("__reduce_add_sync", "reduction elementwise", "redux", "", ""),
        ("cudaGridDependencySynchronize", "synchronization", "pdl", "", ""),
    ],
)
def test_a_query_is_understood(query, operations, features, archs, dtypes):
    understood = read_query(query).understood()
    assert understood.operations == tuple(operations.split())
    assert set(features.split()) <= set(understood.features)
    assert understood.archs == tuple(archs.split())
    assert understood.dtypes == tuple(dtypes.split())


@pytest.mark.parametrize(
    ("word", "right", "rest"),
    [
        ("blackwel", "blackwell", "gemm"),
        ("atention", "attention", "flash"),
        ("sofmax", "softmax", "kernel"),
        ("persistant", "persistent", "gemm"),
        ("epilouge", "epilogue", "fused"),
        ("ampare", "ampere", "gemm"),
    ],
)
def test_a_misspelling_is_corrected_and_told(word, right, rest):
    found = read_query(f"{rest} {word}")
    assert found.understood().corrections == {word: right}
    assert found.phrases


@pytest.mark.parametrize("word", ["welford", "kahan", "tensorop", "lamport", "iket", "h100", "2xacc"])
def test_a_word_that_the_index_uses_is_not_a_misspelling(word):
    assert read_query(word, known=frozenset([stem(word)])).corrections == ()


def test_a_camel_case_name_is_split_unless_the_index_writes_it_so():
    known = frozenset({"tensorssa"})
    assert read_query("TensorSSA HopperGEMMKernel", known=known).words == ("tensorssa", "hopp", "gemm")
    assert read_query("ReLU PyTorch GEMMs").words == ("relu", "gemm")


@pytest.mark.parametrize(
    ("query", "unwanted"),
    [("gemm without tma", "tma"), ("non-persistent gemm", "persistent"), ("attention, no causal mask", "causal")],
)
def test_what_is_not_wanted_is_not_asked_for(query, unwanted):
    understood = read_query(query).understood()
    assert (understood.unwanted, understood.features) == ((unwanted,), ())


def test_neighbours_that_are_also_one_word_are_read_as_one():
    assert compounds(["all", "reduce", "of", "block", "scaled"]) == [stem("allreduce"), stem("blockscaled")]
    assert compounds(["one", "tile"]) == []


@pytest.mark.parametrize("query", ["", "  ", "the of", "?!", "日本語", "\0", "a" * 5000, "gemm " * 500])
def test_odd_queries_are_read_without_an_error(query):
    assert read_query(query).named("arch") == []


def test_every_synonym_belongs_to_a_term():
    old = {"sm_60", "sm_70", "sm_75"}
    assert words.MORE.keys() <= {*OPERATIONS, *FEATURES, *DTYPES, *ARCHS, *old}


def test_words_and_stems():
    assert tokens("cp.async → SM_90a, RMS-norm") == ["cp", "async", "sm", "90a", "rms", "norm"]
    assert parts("HopperGEMMKernel") == ["hopper", "gemm", "kernel"]
    for alike in ("quantize quantized quantised quantization quantisation", "reduce reduction reductions reducing"):
        assert len({stem(word) for word in alike.split()}) == 1
    assert stem("mma") == "mma"
    assert stem("class") != stem("clas")


@pytest.mark.parametrize(
    ("arch", "features", "target", "kind", "said"),
    [
        ("sm_80", (), "sm_80", "native", ""),
        ("sm_80", (), "sm_86", "runs", "runs on sm_86"),
        ("sm_80", ("mma_sync",), "sm_90a", "runs", "written for sm_80"),
        ("sm_80", (), "sm_120a", "runs", "runs on sm_120a"),
        ("sm_90a", ("tma",), "sm_100a", "runs", "runs on sm_100a"),
        ("sm_90a", ("wgmma",), "sm_100a", "port", "the MMA becomes tcgen05.mma"),
        ("sm_90a", ("wgmma",), "sm_120a", "port", "the MMA becomes mma.sync"),
        ("sm_90a", (), "sm_80", "foreign", "newer than sm_80: it does not run"),
        ("sm_100a", ("tcgen05",), "sm_90a", "foreign", "does not run"),
        ("sm_100a", ("tcgen05",), "sm_120a", "foreign", "neither tcgen05 nor tensor memory"),
        ("sm_100a", ("tcgen05",), "sm_103a", "runs", "of the family"),
        ("sm_103a", ("tcgen05",), "sm_100a", "foreign", "newer"),
        ("sm_120a", (), "sm_121a", "runs", "runs on sm_121a"),
        ("sm_80 sm_90a", ("wgmma",), "sm_100a", "runs", "written for sm_80"),
        ("", (), "sm_80", "foreign", "not known"),
    ],
)
def test_how_an_example_fits_an_architecture(arch, features, target, kind, said):
    found = fit(cutlass(arch=tuple(arch.split()), features=features), target)
    assert (found.kind, said in found.note) == (kind, True)


def test_the_older_an_example_the_less_it_fits():
    targets = [fit(cutlass(arch=("sm_80",)), target).value for target in ("sm_80", "sm_86", "sm_90a", "sm_100a")]
    assert targets == sorted(targets, reverse=True)
    assert targets[-1] > fit(cutlass(arch=("sm_120a",)), "sm_100a").value
