"""Which modules stand on which page, and the text of each page."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from cutesmith.lint.symbols import SymbolTable, load_symbols
from cutesmith.references.api.entries import Entry, read_entries
from cutesmith.references.sections import slug

DOCUMENTATION = "https://docs.nvidia.com/cutlass/media/docs/pythonDSL/cute_dsl_api.html"


@dataclass(frozen=True)
class Chapter:
    """One module: how kernels import it, and the prefix that they write."""

    module: str
    prefix: str


@dataclass(frozen=True)
class ApiPage:
    """One generated page: its file, its title, a sentence of what is on it, and its chapters."""

    file: str
    title: str
    about: str
    chapters: tuple[Chapter, ...]


PAGES = (
    ApiPage(
        "api-core.md",
        "API: cutlass and cutlass.cute",
        "Types, decorators, layouts, tensors, copies, MMA and arithmetic.",
        (
            Chapter("cutlass", "cutlass"),
            Chapter("cutlass.cute", "cute"),
            Chapter("cutlass.cute.math", "cute.math"),
            Chapter("cutlass.cute.typing", "cute.typing"),
        ),
    ),
    ApiPage(
        "api-arch.md",
        "API: cutlass.cute.arch",
        "Thread indices, synchronisation, mbarriers, shuffles, atomics, conversions: instructions by name.",
        (Chapter("cutlass.cute.arch", "cute.arch"),),
    ),
    ApiPage(
        "api-nvgpu.md",
        "API: cutlass.cute.nvgpu",
        "Copy and MMA operations of each architecture: warp, warpgroup (wgmma), cpasync and TMA, tcgen05.",
        (
            Chapter("cutlass.cute.nvgpu", "cute.nvgpu"),
            Chapter("cutlass.cute.nvgpu.warp", "cute.nvgpu.warp"),
            Chapter("cutlass.cute.nvgpu.warpgroup", "cute.nvgpu.warpgroup"),
            Chapter("cutlass.cute.nvgpu.cpasync", "cute.nvgpu.cpasync"),
            Chapter("cutlass.cute.nvgpu.tcgen05", "cute.nvgpu.tcgen05"),
        ),
    ),
    ApiPage(
        "api-runtime-utils.md",
        "API: runtime, pipelines, memory, utilities",
        "From a framework's tensors to launches: conversion, fake tensors, pipelines, allocators, schedulers, testing.",
        (
            Chapter("cutlass.cute.runtime", "cute.runtime"),
            Chapter("cutlass.pipeline", "cutlass.pipeline"),
            Chapter("cutlass.memory", "cutlass.memory"),
            Chapter("cutlass.utils", "cutlass.utils"),
            Chapter("cutlass.utils.hopper_helpers", "cutlass.utils.hopper_helpers"),
            Chapter("cutlass.utils.blackwell_helpers", "cutlass.utils.blackwell_helpers"),
            Chapter("cutlass.utils.blockscaled_layout", "cutlass.utils.blockscaled_layout"),
            Chapter("cutlass.torch", "cutlass.torch"),
            Chapter("cutlass.testing", "cutlass.testing"),
            Chapter("cutlass.cute.viz", "cute.viz"),
            Chapter("cutlass.cute.ffi", "cute.ffi"),
            Chapter("cutlass.cute.export", "cute.export"),
            Chapter("cutlass.jax", "cutlass.jax"),
        ),
    ),
)


def render_pages() -> dict[str, str]:
    """File name → text of every page, from the installed DSL; raises UnavailableError when there is none."""
    symbols, seen = load_symbols(), set[str]()
    return {page.file: _page(page, symbols, seen) for page in PAGES}


def _page(page: ApiPage, symbols: SymbolTable, seen: set[str]) -> str:
    chapters = [(chapter, _chapter(chapter, symbols, seen)) for chapter in page.chapters]
    contents = [f"- [{c.module}](#{slug(c.module)})" for c, lines in chapters if lines] + ["- [Sources](#sources)"]
    return (
        "\n".join([*_head(page, symbols.version), "## Contents", "", *contents, ""])
        + "".join(f"\n## {chapter.module}\n\n{lines}" for chapter, lines in chapters if lines)
        + "\n## Sources\n\n"
        + _sources(page, symbols.version)
    )


def _head(page: ApiPage, version: str) -> list[str]:
    return [
        f"# {page.title}",
        "",
        f"{page.about} Generated from **nvidia-cutlass-dsl {version}** by `scripts/build_api_reference.py`. Each name",
        "has one line: its parameters (without `loc` and `ip`, which the DSL fills in) and the first sentence of the",
        "package's own docstring. The architectures follow where the docstring names them, and the members of classes",
        "and enumerations. Struck names are deprecated.",
        "",
    ]


def _sources(page: ApiPage, version: str) -> str:
    modules = ", ".join(chapter.module for chapter in page.chapters)
    return (
        f"- Signatures and quoted sentences: nvidia-cutlass-dsl {version}, modules {modules} "
        f"(NVIDIA; the package's licence holds for the quotations).\n- NVIDIA's own pages: <{DOCUMENTATION}>\n"
    )


def _chapter(chapter: Chapter, symbols: SymbolTable, seen: set[str]) -> str:
    """The lines of a module, grouped by the file that defines each name; a name stands once on all pages."""
    module = importlib.import_module(chapter.module)
    entries = [e for e in read_entries(module, chapter.prefix, symbols) if not _told(e, chapter, symbols, seen)]
    groups = groupby(sorted(entries, key=lambda e: (e.home, e.name)), key=lambda e: e.home)
    return "\n".join(_group(chapter, home, list(group)) for home, group in groups)


def _told(entry: Entry, chapter: Chapter, symbols: SymbolTable, seen: set[str]) -> bool:
    """Whether the same object was listed under another name before; marks it as told."""
    reference = symbols.resolve(f"{chapter.module}.{entry.name.rsplit('.', 1)[-1]}").reference
    if reference in seen and not entry.deprecated:
        return True
    if reference[:2] in ("c:", "f:"):
        seen.add(reference)
    return False


def _group(chapter: Chapter, home: str, entries: list[Entry]) -> str:
    return "\n".join([f"### {chapter.prefix}: {home}", "", *(line for e in entries for line in _lines(e)), ""])


def _lines(entry: Entry) -> Iterator[str]:
    if entry.deprecated:
        yield f"- ~~`{entry.name}`~~ deprecated: {_plain(entry.deprecated)}"
        return
    archs = f" *{entry.archs}*" if entry.archs else ""
    summary = f" — {entry.summary}" if entry.summary else ""
    yield f"- **`{entry.name}{entry.call}`**{summary}{archs}"
    if entry.members:
        yield f"  - {', '.join(f'`{member}`' for member in entry.members)}"


def _plain(text: str) -> str:
    return text.replace("``", "`").replace("`", "")
