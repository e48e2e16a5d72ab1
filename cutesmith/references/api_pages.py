"""The `api-*.md` pages, generated from the installed DSL, so that no name in them can be invented or stale."""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import re
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from cutesmith.lint.symbols import SymbolTable, load_symbols
from cutesmith.references.sections import slug

DOCUMENTATION = "https://docs.nvidia.com/cutlass/media/docs/pythonDSL/cute_dsl_api.html"
HIDDEN = frozenset({"self", "cls", "loc", "ip"})  # MLIR's location and insertion point are filled in by the DSL
LONGEST_SUMMARY = 170
_SENTENCE = re.compile(r"(.+?[.:!?])(?:\s|$)", re.DOTALL)
_INNER = re.compile(r"^_|Traits?$|(?:Base|_base)Op$|_impl$")
_STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
_ARCHS = re.compile(r"\*\*Supported architectures:\*\*\s*([^\n]+)")


@dataclass(frozen=True)
class ApiPage:
    """One generated page: its file, its title, a sentence of what is on it, and its chapters, one a module."""

    file: str
    title: str
    about: str
    modules: tuple[str, ...]


PAGES = (
    ApiPage(
        "api-core.md",
        "API: cutlass and cutlass.cute",
        "Types, decorators, layouts, tensors, copies, MMA and arithmetic.",
        ("cutlass", "cutlass.cute", "cutlass.cute.math", "cutlass.cute.typing"),
    ),
    ApiPage(
        "api-arch.md",
        "API: cutlass.cute.arch",
        "Thread indices, synchronisation, mbarriers, shuffles, atomics, conversions: instructions by name.",
        ("cutlass.cute.arch",),
    ),
    ApiPage(
        "api-nvgpu.md",
        "API: cutlass.cute.nvgpu",
        "Copy and MMA operations of each architecture: warp, warpgroup (wgmma), cpasync and TMA, tcgen05.",
        ("cutlass.cute.nvgpu", *(f"cutlass.cute.nvgpu.{name}" for name in ("warp", "warpgroup", "cpasync", "tcgen05"))),
    ),
    ApiPage(
        "api-runtime-utils.md",
        "API: runtime, pipelines, memory, utilities",
        "From a framework's tensors to launches: conversion, fake tensors, pipelines, allocators, schedulers, testing.",
        (
            "cutlass.cute.runtime",
            "cutlass.pipeline",
            "cutlass.memory",
            "cutlass.utils",
            "cutlass.utils.hopper_helpers",
            "cutlass.utils.blackwell_helpers",
            "cutlass.utils.blockscaled_layout",
            "cutlass.torch",
            "cutlass.testing",
            "cutlass.cute.viz",
            "cutlass.cute.ffi",
            "cutlass.cute.export",
            "cutlass.jax",
        ),
    ),
)


def render_pages() -> dict[str, str]:
    """File name → text of every page, from the installed DSL; raises UnavailableError when there is none."""
    symbols, seen = load_symbols(), set[str]()
    return {page.file: _page(page, symbols, seen) for page in PAGES}


def _page(page: ApiPage, symbols: SymbolTable, seen: set[str]) -> str:
    every = {module: _chapter(module, symbols, seen) for module in page.modules}
    chapters = {module: lines for module, lines in every.items() if lines}
    contents = [f"- [{module}](#{slug(module)})" for module in chapters] + ["- [Sources](#sources)"]
    introduction = f"""\
# {page.title}

{page.about} Generated from **nvidia-cutlass-dsl {symbols.version}** by `scripts/build_api_reference.py`. Each name
has one line: its parameters (without `loc` and `ip`, which the DSL fills in) and the first sentence of the
package's own docstring. The architectures follow where the docstring names them, and the members of classes
and enumerations. Struck names are deprecated.
"""
    sources = f"""\
- Signatures and quoted sentences: nvidia-cutlass-dsl {symbols.version}, modules {", ".join(page.modules)} \
(NVIDIA; the package's licence holds for the quotations).
- NVIDIA's own pages: <{DOCUMENTATION}>
"""
    parts = [f"{introduction}\n## Contents\n\n" + "\n".join(contents) + "\n"]
    parts += [f"\n## {module}\n\n{lines}" for module, lines in chapters.items()]
    return "".join([*parts, f"\n## Sources\n\n{sources}"])


def _chapter(module: str, symbols: SymbolTable, seen: set[str]) -> str:
    """The lines of a module, grouped by the file that defines each name; a name stands once on all pages."""
    prefix = module.removeprefix("cutlass.") if module.startswith("cutlass.cute") else module  # as kernels write it
    found = read_entries(importlib.import_module(module), prefix, symbols)
    entries = [entry for entry in found if not _told(entry, module, symbols, seen)]
    groups = groupby(sorted(entries, key=lambda e: (e.home, e.name)), key=lambda e: e.home)
    return "\n".join(
        "\n".join([f"### {prefix}: {home}", "", *(line for entry in group for line in _lines(entry)), ""])
        for home, group in groups
    )


def _told(entry: Entry, module: str, symbols: SymbolTable, seen: set[str]) -> bool:
    """Whether the same object was listed under another name before; marks it as told."""
    reference = symbols.resolve(f"{module}.{entry.name.rsplit('.', 1)[-1]}").reference
    if reference in seen and not entry.deprecated:
        return True
    if reference[:2] in ("c:", "f:"):
        seen.add(reference)
    return False


def _lines(entry: Entry) -> Iterator[str]:
    if entry.deprecated:
        yield f"- ~~`{entry.name}`~~ deprecated: {entry.deprecated.replace('`', '')}"
        return
    archs = f" *{entry.archs}*" if entry.archs else ""
    summary = f" — {entry.summary}" if entry.summary else ""
    yield f"- **`{entry.name}{entry.call}`**{summary}{archs}"
    if entry.members:
        yield f"  - {', '.join(f'`{member}`' for member in entry.members)}"


@dataclass(frozen=True)
class Entry:
    """A name with its call, first sentence, architectures, the text of its deprecation, and a class's methods."""

    name: str  # dotted, as it is written: cute.copy
    home: str  # the last part of the module that defines it
    call: str  # "(atom, src, dst, *, pred=None)", or "" where nothing is called
    summary: str
    archs: str
    deprecated: str
    members: tuple[str, ...]


def read_entries(module: types.ModuleType, prefix: str, symbols: SymbolTable) -> Iterator[Entry]:
    """The public names that a module offers, submodules and other packages' names apart, by name.

    What it defines in its own files and leaves out of `__all__` is there too (`cute.arch.warp_reduction` is such),
    but for traits and parts of an implementation.
    """
    for name in sorted({*getattr(module, "__all__", ()), *(n for n in dir(module) if not _INNER.search(n))}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = getattr(module, name, None)
        if not name.startswith("_") and _belongs(value, name, module):
            found = symbols.resolve(f"{module.__name__}.{name}").deprecations
            deprecated = " ".join(found[-1][1].split()) if found else ""
            yield _entry(f"{prefix}.{name}", value, deprecated or (str(caught[0].message) if caught else ""))


def _belongs(value: Any, name: str, module: types.ModuleType) -> bool:
    if value is None or isinstance(value, types.ModuleType):
        return False
    if name in getattr(module, "__all__", ()):
        return _home(value).startswith("cutlass") or not callable(value)
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return False
    return _home(value).startswith(module.__name__)


def _home(value: Any) -> str:
    """The module that defines a value; of a partial call that of its function."""
    function = value.func if isinstance(value, functools.partial) else value
    return str(getattr(function, "__module__", "") or "values")


def _entry(name: str, value: Any, deprecated: str) -> Entry:
    described = value.func if isinstance(value, functools.partial) else value
    text = inspect.getdoc(described) or "" if callable(value) else ""
    if text == (inspect.getdoc(type(value)) or None):
        text = ""
    elif inspect.isclass(value):  # of a base, of an enumeration, or the signature that `dataclass` writes
        own = vars(value).get("__doc__") or ""
        inherited = not own.strip() or own.startswith(f"{value.__name__}(") or text.startswith("An enumeration")
        text = "" if inherited else text
    return Entry(
        name=name,
        home=_home(value).rsplit(".", 1)[-1],
        call=_call(value),
        summary=summarise(text),
        archs=_archs(value, text),
        deprecated=deprecated,
        members=tuple(_members(value)),
    )


def summarise(text: str) -> str:
    """The first sentence of a docstring, its markup made Markdown, cut at a word where it is long."""
    paragraph = text.strip().split("\n\n")[0]
    if paragraph.startswith((":param", ":return", ".. ")):
        return ""
    flat = " ".join(paragraph.split())
    flat = re.sub(r":\w+:`~?([^`<]+?)(?:\s*<[^>]*>)?`", r"`\1`", flat).replace("``", "`")
    flat = re.sub(r"`([^`<]+?)\s*<[^>`]*>`_+", r"\1", flat).replace("**", "")
    found = _SENTENCE.match(flat)
    sentence = (found[1] if found else flat).rstrip(": ")
    if len(sentence) > LONGEST_SUMMARY:
        sentence = sentence[:LONGEST_SUMMARY].rsplit(" ", 1)[0]
        sentence += ("`" if sentence.count("`") % 2 else "") + " …"
    return sentence if sentence.endswith((".", "…", "!", "?")) or not sentence else f"{sentence}."


def _archs(value: Any, text: str) -> str:
    admissible = getattr(value, "admissible_archs", None) if inspect.isclass(value) else None
    if admissible:
        names = {str(arch).rsplit(".", 1)[-1] for arch in admissible}
        return ", ".join(sorted(names, key=lambda arch: (int(re.sub(r"\D", "", arch) or 0), arch)))
    found = _ARCHS.search(text)
    return found[1].strip().rstrip(".") if found else ""


def _call(value: Any) -> str:
    if not callable(value) or (inspect.isclass(value) and issubclass(value, (enum.Enum, BaseException))):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    return f"({', '.join(_parameters(signature))})"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    shown = [p for p in signature.parameters.values() if p.name not in HIDDEN]
    starred = False
    for parameter in shown:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        yield f"{_STARS.get(parameter.kind.name, '')}{parameter.name}{_default(parameter.default)}"


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, enum.Enum):
        return f"={type(value).__name__}.{value.name}"
    if inspect.isclass(value):
        return f"={value.__name__}"
    plain = value is None or isinstance(value, (bool, int, float, str, tuple))
    return f"={value!r}" if plain and " at 0x" not in repr(value) else "=…"


def _members(value: Any) -> Iterator[str]:
    """Names of an enumeration, or calls of a class's own public methods."""
    if not inspect.isclass(value):
        return
    if issubclass(value, enum.Enum):
        yield from value.__members__
        return
    for name, member in sorted(vars(value).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, (staticmethod, classmethod)):
            member = member.__func__
        if inspect.isfunction(member):
            yield f"{name}{_call(member)}"
        elif isinstance(member, property):
            yield name
