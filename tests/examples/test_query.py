"""What a query is understood as: terms, misspellings, what is not wanted, and how elements depend on one another."""

from __future__ import annotations

import ast

import pytest

from cutesmith.examples.search import words
from cutesmith.examples.search.query import compounds, read_query
from cutesmith.examples.search.structure import structures_of_function, structures_of_text
from cutesmith.examples.search.words import parts, stem, tokens
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS


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
        ("__reduce_add_sync", "", "redux", "", ""),
        ("cudaGridDependencySynchronize", "", "pdl", "", ""),
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


@pytest.mark.parametrize("word", ["bilinear", "interpolation"])
def test_another_word_that_shares_an_ending_is_not_a_misspelling(word):
    assert read_query(word).corrections == ()


def test_terms_that_name_an_operation_together_do_so_wherever_they_stand():
    assert "attention_backward" in read_query("gradient of the attention").understood().operations
    assert read_query("overlap softmax with gemm").understood().operations == ("softmax", "gemm", "attention")


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
    for forms in ("quantize quantized quantised quantization quantisation", "reduce reduction reductions reducing"):
        assert len({stem(word) for word in forms.split()}) == 1
    assert stem("mma") == "mma"
    assert stem("class") != stem("clas")


@pytest.mark.parametrize(
    ("text", "structures"),
    [
        ("h[t] = a[t]*h[t-1] + b[t]", ("recurrence",)),
        ("u[i-1] - 2*u[i] + u[i+1]", ("stencil",)),
        ("y = x[idx] + b", ("gather",)),
        ("y[idx] += x", ("scatter",)),
        ("y[i] = x[i] + 1", ()),
    ],
)
def test_subscripts_of_a_query_show_how_elements_depend_on_one_another(text, structures):
    assert structures_of_text(text) == structures
    assert set(structures) <= set(read_query(text).named("feature"))


@pytest.mark.parametrize(
    ("body", "structures"),
    [
        ("for t in range(8):\n    h = a[t] * h + x[t]\n    out.append(h)", ("recurrence",)),
        ("for t in range(8):\n    total = total + x[t]", ()),
        ("for t in range(8):\n    total += x[t]\n    out[t] = total", ("recurrence",)),
        ("y = x[:, 1:] - x[:, :-1]", ("stencil",)),
        ("y = torch.cat([x[..., :d], x[..., d:]])", ()),
        ("y = x.index_select(0, rows)", ("gather",)),
        ("y = out.index_add(0, rows, x)", ("scatter",)),
    ],
)
def test_the_code_of_a_problem_shows_how_elements_depend_on_one_another(body, structures):
    assert structures_of_function(ast.parse(body)) == structures
