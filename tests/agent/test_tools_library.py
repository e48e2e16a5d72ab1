"""`search_references`, `read_reference`, `find_example`, `fetch_example`: real look-ups, bounded answers."""

from __future__ import annotations

import hashlib
import json
import socket
from pathlib import Path

import pytest

from cutesmith.agent.texts.bounded_text import LIMIT
from cutesmith.agent.tools.library_tools import PAGE_CHARACTERS

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_a_search_gives_addresses_that_can_be_read(bench):
    found = bench.call("search_references", query="UNSUP_EARLY_EXIT", limit=2).text
    address = found.split()[0]
    assert address.partition("#")[0].endswith(".md") and len(found) <= LIMIT
    section = bench.call("read_reference", address=address).text
    assert "UNSUP_EARLY_EXIT" in section and "#" in section


def test_a_page_that_is_too_long_comes_with_the_addresses_of_its_sections(bench):
    text = bench.call("read_reference", address="troubleshooting.md").text
    assert len(text) <= PAGE_CHARACTERS and "characters left out" in text
    address = next(line for line in text.splitlines() if line.startswith("- troubleshooting.md#")).split()[1]
    assert not bench.call("read_reference", address=address).is_error


@pytest.mark.slow
def test_what_is_not_there_is_told_with_what_is(bench):
    assert "troubleshooting.md" in bench.refused("read_reference", address="nothing.md")
    assert "has no section" in bench.refused("read_reference", address="glossary.md#nothing")
    assert "empty" in bench.refused("search_references", query=" \n ")
    assert bench.call("search_references", query="zzzzqqqq").text.startswith("No section")


def test_a_query_is_never_an_option(bench):
    assert not bench.call("search_references", query="--limit").is_error


def test_an_example_is_found_and_fetched_into_the_folder(bench):
    found = bench.call("find_example", query="residual add rms norm bf16", limit=3).text
    assert found.startswith("1. cutesmith/rms_norm_residual") and "keeps the contract" in found
    outcome = bench.call("fetch_example", ids=["cutesmith/rms_norm_residual"])
    (effect,) = outcome.effects
    rows = map(json.loads, (ROOT / "examples_index" / "index.jsonl").read_text().splitlines())
    (record,) = (row for row in rows if row["id"] == "cutesmith/rms_norm_residual")
    assert hashlib.sha256((bench.work / effect.path).read_bytes()).hexdigest() == record["sha256"]
    assert effect.path in outcome.text and record["licence"] in outcome.text
    assert effect.path in bench.call("view_file", path="examples").text
    assert bench.call("fetch_example", ids=["cutesmith/rms_norm_residual"]).effects == ()


@pytest.mark.slow
def test_parts_of_an_example_are_shown(bench):
    text = bench.call("fetch_example", ids=["cutesmith/softmax_rows"], outline=True).text
    assert "tokens: softmax_kernel" in text
    text = bench.call("fetch_example", ids=["cutesmith/softmax_rows"], part=["add"]).text
    assert "return a + b" in text and "softmax_kernel" not in text


def test_an_unknown_example_names_the_nearest(bench):
    text = bench.refused("fetch_example", ids=["cutesmith/rmsnorm"])
    assert "cutesmith/rms_norm_residual" in text
    assert "8" in bench.refused("fetch_example", ids=["x"] * 9) and "8" in bench.refused("fetch_example", ids=[])


def test_an_unknown_architecture_is_told(bench):
    assert "sm_12345" in bench.refused("find_example", query="gemm", arch="sm_12345")


def test_fetching_overwrites_nothing_outside(bench, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (bench.work / "examples").symlink_to(outside, target_is_directory=True)
    assert "link" in bench.refused("fetch_example", ids=["cutesmith/cross_entropy"])
    assert list(outside.iterdir()) == []


def test_what_the_network_does_not_give_is_told_beside_what_is_here(bench, monkeypatch):
    with socket.socket() as closed:  # bound, never listening: a connection is refused at once
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setenv("CUTESMITH_CACHE", str(bench.root / "cache"))
        outcome = bench.call("fetch_example", ids=["cutlass/hopper/cta_norm", "cutesmith/layer_norm"])
    assert "cutlass/hopper/cta_norm: not fetched: no connection" in outcome.text and not outcome.is_error
    assert [effect.path for effect in outcome.effects] == ["examples/cutesmith/kernels/layer_norm.py"]
    assert "starts with cutesmith/" in outcome.text
