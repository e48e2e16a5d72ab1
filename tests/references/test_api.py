"""The generated API pages: what an entry says of a name."""

from __future__ import annotations

import json

import pytest

from cutesmith.commands.build_api_reference import main
from cutesmith.lint.symbols import load_symbols
from cutesmith.references.api_pages import read_entries, summarise


@pytest.fixture(scope="module")
def entries():
    import cutlass
    import cutlass.cute
    import cutlass.cute.arch
    import cutlass.cute.nvgpu.warpgroup
    import cutlass.pipeline

    modules = {"cutlass": cutlass, "cute": cutlass.cute, "arch": cutlass.cute.arch}
    modules |= {"wgmma": cutlass.cute.nvgpu.warpgroup, "pipeline": cutlass.pipeline}
    return {e.name: e for prefix, module in modules.items() for e in read_entries(module, prefix, load_symbols())}


def test_a_function_has_its_parameters_without_the_compilers(entries):
    assert entries["cute.copy"].call.startswith("(atom, src, dst, *, pred=None")
    assert "loc" not in entries["cute.copy"].call


def test_a_class_has_its_methods_and_an_enumeration_its_names(entries):
    assert any(m.startswith("producer_acquire(state") for m in entries["pipeline.PipelineTmaAsync"].members)
    assert "Warp" in entries["pipeline.Agent"].members


def test_partial_calls_and_names_outside_of_all_are_there_and_traits_are_not(entries):
    assert entries["arch.shuffle_sync_up"].call.startswith("(value, offset") and entries["arch.shuffle_sync_up"].home
    assert entries["arch.warp_reduction"].summary and entries["wgmma.MmaI8Op"].call
    assert not any(name.endswith("Trait") for name in entries)


def test_architectures_and_deprecations_are_told(entries):
    assert entries["wgmma.MmaF16BF16Op"].archs == "sm_90a"
    assert "deprecated" in entries["cutlass.dynamic_expr"].deprecated


@pytest.mark.parametrize(
    ("docstring", "summary"),
    [
        ("One. Two.", "One."),
        ("See ``x`` and :class:`cutlass.Y`, **bold**.", "See `x` and `cutlass.Y`, bold."),
        ("See the `PTX pages <https://x>`__.", "See the PTX pages."),
        ("Folded\nover lines", "Folded over lines."),
        (":param x: nothing", ""),
        ("w" * 10 + " " + "long " * 60, "w" * 10 + " " + "long " * 31 + "…"),
    ],
)
def test_a_summary_is_the_first_sentence_as_markdown(docstring, summary):
    assert summarise(docstring) == summary


def test_the_command_sees_a_page_that_differs_and_mends_it(tmp_path, capsys):
    assert main(["--out", str(tmp_path)]) == 0
    page = tmp_path / "api-arch.md"
    page.write_text(
        page.read_text(encoding="utf-8").replace("cute.arch.barrier(", "cute.arch.barier("), encoding="utf-8"
    )
    capsys.readouterr()
    assert main(["--check", "--out", str(tmp_path), "--json"]) == 1
    differing = json.loads(capsys.readouterr().out)["differing"]
    assert list(differing) == ["api-arch.md"] and any("barier" in line for line in differing["api-arch.md"])
    assert main(["--out", str(tmp_path)]) == 0 and main(["--check", "--out", str(tmp_path)]) == 0
