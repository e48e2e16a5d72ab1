"""One public name of the DSL as an entry: how it is called, what its docstring says first, where it runs."""

from __future__ import annotations

import enum
import functools
import inspect
import re
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cutesmith.lint.symbols import SymbolTable

HIDDEN = frozenset({"self", "cls", "loc", "ip"})  # MLIR's location and insertion point are filled in by the DSL
LONGEST_SUMMARY = 170
_SENTENCE = re.compile(r"(.+?[.:!?])(?:\s|$)", re.DOTALL)
_INNER = re.compile(r"^_|Traits?$|(?:Base|_base)Op$|_impl$")
_STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
_ARCHS = re.compile(r"\*\*Supported architectures:\*\*\s*([^\n]+)")


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
    for name in sorted({*getattr(module, "__all__", ()), *_unlisted(module)}):
        value, warning = _value(module, name)
        if not name.startswith("_") and _belongs(value, name, module):
            yield _entry(f"{prefix}.{name}", value, _deprecation(module, name, symbols) or warning)


def _value(module: types.ModuleType, name: str) -> tuple[Any, str]:
    """The value of a name and what reading it warns of; None where it cannot be read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = getattr(module, name, None)
    return value, str(caught[0].message) if caught else ""


def _belongs(value: Any, name: str, module: types.ModuleType) -> bool:
    if value is None or isinstance(value, types.ModuleType):
        return False
    if name in getattr(module, "__all__", ()):
        return _home(value).startswith("cutlass") or not callable(value)
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return False
    return _home(value).startswith(module.__name__)


def _unlisted(module: types.ModuleType) -> list[str]:
    return [name for name in dir(module) if not _INNER.search(name)]


def _home(value: Any) -> str:
    """The module that defines a value; of a partial call that of its function."""
    function = value.func if isinstance(value, functools.partial) else value
    return str(getattr(function, "__module__", "") or "values")


def _deprecation(module: types.ModuleType, name: str, symbols: SymbolTable) -> str:
    found = symbols.resolve(f"{module.__name__}.{name}")
    return " ".join(found.deprecations[-1][1].split()) if found.deprecations else ""


def _entry(name: str, value: Any, deprecated: str) -> Entry:
    described = value.func if isinstance(value, functools.partial) else value
    text = inspect.getdoc(described) or "" if callable(value) else ""
    if text == (inspect.getdoc(type(value)) or None) or _inherited(value, text):
        text = ""
    return Entry(
        name=name,
        home=_home(value).rsplit(".", 1)[-1],
        call=_call(value),
        summary=summarise(text),
        archs=_archs(value, text),
        deprecated=deprecated,
        members=tuple(_members(value)),
    )


def _inherited(value: Any, text: str) -> bool:
    """Whether a class shows a docstring that is not its own: a base's, or the signature that `dataclass` writes."""
    if not inspect.isclass(value):
        return False
    own = vars(value).get("__doc__") or ""
    return not own.strip() or own.startswith(f"{value.__name__}(") or text.startswith("An enumeration")


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
        return ", ".join(sorted({str(arch).rsplit(".", 1)[-1] for arch in admissible}, key=_arch_key))
    found = _ARCHS.search(text)
    return found[1].strip().rstrip(".") if found else ""


def _arch_key(arch: str) -> tuple[int, str]:
    return int(re.sub(r"\D", "", arch) or 0), arch


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
