"""Every reference page keeps its word: this is what makes it impossible for one to go stale unnoticed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cutesmith import resources
from cutesmith.commands.build_api_reference import main
from cutesmith.lint.symbols import load_symbols
from cutesmith.references.api_pages import PAGES, read_entries, render_pages, summarise
from cutesmith.references.blocks import Block, read_blocks
from cutesmith.references.checking import check_page, check_text, run_page
from cutesmith.references.programs import execute
from cutesmith.references.sections import Page, read_pages

EVERY = [page for page in read_pages() if page.name != "README.md"]
ROOT = resources.content_root()
TEXTS = [
    resources.manifest(),
    ROOT / "references" / "README.md",
    *(ROOT / n for n in ("README.md", "AGENTS.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
WANTED = """
concepts-architecture concepts-layouts concepts-tensors concepts-mma
patterns-getting-started patterns-elementwise patterns-reduction patterns-gemm patterns-memory patterns-compilation
patterns-pipeline patterns-scan patterns-convolution recurrences-in-chunks small-matrices wavefronts
api-core api-arch api-nvgpu api-runtime-utils troubleshooting
attention-hopper backward gather-and-scatter fp8-and-block-scaled grouped-and-moe porting runtime
design-gate design-tiling optimizations anti-patterns faq attention epilogues blackwell integration profiling glossary
""".split()


def test_every_page_that_the_manifest_promises_is_there():
    assert sorted(page.path.stem for page in EVERY) == sorted(WANTED)


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_names_links_and_tags_hold(page):
    assert [str(complaint) for complaint in check_page(page)] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in EVERY if not p.name.startswith("api-")], ids=lambda page: page.name)
def test_every_program_does_what_its_tag_says(page):
    outcomes, wrong = run_page(page)
    assert [str(complaint) for complaint in wrong] == []
    fragments = [block for block in read_blocks(page) if isinstance(block, Block) and block.kind == "fragment"]
    assert outcomes or fragments or page.name == "glossary.md"  # fragments are of kernels, which tests/examples runs


@pytest.mark.slow
def test_the_hang_that_a_page_shows_is_what_the_emulated_gpu_says():
    """Its ring by class, without the consumer's release."""
    page = next(page for page in EVERY if page.name == "patterns-pipeline.md")
    (ring,) = (block for block in read_blocks(page) if isinstance(block, Block) and block.name == "pipeline-ring")
    source = (
        ring.source.replace("producer.tail()", "pass")
        .replace("slot.release()", "pass")
        .replace("by_hand, by_class)", "by_class,)")
    )
    assert source.count("pass\n") == 2
    said = execute(replace(ring, source=source), "sm_90a").fault.partition("deadlock: ")[2].partition("\n")[0]
    assert said and f"\ndeadlock: {said}\n" in page.path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_names_and_links_of_our_other_texts_hold(path):
    assert [str(complaint) for complaint in check_text(Page.read(path))] == []


def test_the_api_pages_are_what_the_installed_dsl_gives():
    folder = resources.folder("references")
    stale = [name for name, text in render_pages().items() if (folder / name).read_text(encoding="utf-8") != text]
    assert not stale, f"python scripts/build_api_reference.py rewrites {stale}"
    assert len(PAGES) == 4


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


@pytest.mark.slow
def test_the_command_sees_a_page_that_differs_and_rewrites_it(tmp_path, capsys):
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
