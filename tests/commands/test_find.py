"""`cutesmith find` through its command and its script: the table, JSON, exit codes, and how long it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.commands.find import main
from cutesmith.examples.index.records import write_index
from tests.examples.fetch_samples import cutlass

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(capsys, tmp_path):
    """Run the command on an index of two examples."""
    hopper = cutlass(features=("wgmma",), summary="Hopper matrix multiply.", lines=600)
    ampere = cutlass("ampere/gemm_bias", arch=("sm_80",), features=("bias",), summary="Ampere multiply.", lines=200)
    write_index([hopper, replace(ampere, meets_contract=True)], tmp_path / "index.jsonl")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, "--index", str(tmp_path / "index.jsonl")])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_table_says_what_agrees_what_is_missing_and_what_to_do_next(run):
    code, out, err = run("hopper", "gemm", "fp16", "with", "bias")
    assert (code, err) == (0, "")
    note = "written for sm_80; it runs on sm_90a as well, without what is new there"
    assert out.splitlines() == [
        "1. cutlass/ampere/gemm_bias  (sm_80; 200 lines, meets the contract)",
        "   Ampere multiply.",
        "   why: operation gemm, architecture (runs), dtype float16, feature bias",
        f"   runs: {note}",
        "2. cutlass/hopper/dense_gemm  (sm_90a; 600 lines)",
        "   Hopper matrix multiply.",
        "   why: operation gemm, architecture (native), dtype float16; missing: feature bias",
        f"Nothing nearer was written for sm_90a: {note}.",
    ]
    assert run("dense gemm")[1].endswith("\npython scripts/fetch_example.py cutlass/hopper/dense_gemm\n")


def test_a_correction_is_said(run):
    assert run("ampare gemm")[1].startswith("(ampare: read as ampere)\n1. cutlass/ampere/gemm_bias")


def test_one_json_object(run):
    code, out, err = run("gemm with bias", "--arch", "a100", "--json")
    verdict = json.loads(out)
    assert (code, err, verdict["stage"], verdict["status"]) == (0, "", "find", "passed")
    assert [example["id"] for example in verdict["examples"]] == ["cutlass/ampere/gemm_bias"]
    assert verdict["examples"][0]["fit"] == "native"
    assert verdict["understood"]["operations"] == ["gemm"]


def test_nothing_found_is_exit_1_and_says_what_to_relax(run):
    code, out, _ = run("gemm", "--op", "softmax")
    assert (code, out) == (1, "Relax a filter: without --op softmax there are 2.\n")
    assert json.loads(run("gemm", "--op", "softmax", "--json")[1])["examples"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "find needs words or a filter"),
        (["gemm", "--arch", "sm_91"], "Nearest: sm_90a"),
        (["gemm", "--op", "atention"], "Nearest: attention"),
        (["gemm", "--limit", "0"], "--limit 0: it is at least 1"),
        (["gemm", "--limit", "x"], "invalid int value"),
    ],
)
def test_bad_input_is_usage_with_a_sentence(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_the_help_lists_the_operations_and_archs(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "blockscaled_gemm" in out
    assert "sm_120a" in out


def test_the_script_answers_from_any_folder(run_script):
    done = run_script("find_example", "hopper gemm bias gelu bf16", "--limit", "3", "--json", cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    found = [example["id"] for example in json.loads(done.stdout)["examples"]]
    assert "cutesmith/gemm_sm90_bias_gelu" in found


def test_it_imports_neither_torch_nor_the_dsl_nor_any_package():
    code = (
        "import sys\nfrom cutesmith.cli import main\nmain(['find', 'gemm'])\n"
        "heavy = {n.split('.')[0] for n in sys.modules} & {'torch', 'cutlass', 'numpy', 'httpx', 'rich', 'asyncio'}\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_where_no_example_computes_what_is_asked_the_section_of_the_pages_is_named(run):
    code, out, _ = run("Viterbi", "with", "bias", "--json")
    assert code == 0
    assert json.loads(out)["section"].startswith("wavefronts.md#a-step-needs-only-the-row-before")
    assert "--read wavefronts.md#a-step" in run("Viterbi", "with", "bias")[1]
    assert json.loads(run("gemm with bias", "--json")[1])["section"] == ""


def test_where_a_library_comes_first_the_section_of_the_pages_is_named_too(run):
    found = json.loads(run("hopper wgmma gemm, int4 weights with group scales", "--json")[1])
    assert [example["meets_contract"] for example in found["examples"]] == [False, True]
    assert found["section"] == "fp8-and-block-scaled.md#int4-weights-with-group-scales"
