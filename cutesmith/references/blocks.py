"""Fenced blocks and their tags: what each claims to be, and whether a tag is one (the syntax is in the README)."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from cutesmith.devices import parse_arch
from cutesmith.errors import CutesmithError, UsageError
from cutesmith.references.sections import Page, fences

PROGRAMS = ("run", "compile", "fails")
KINDS = {
    "python": (*PROGRAMS, "fragment"),
    "text": ("output", "figure"),
    "sh": ("command",),
    "json": ("data",),
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\Z")


class BlockError(UsageError):
    """A fenced block whose info string is not a tag; `line` is the fence's."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message, hint="Tags: ```python run NAME sm_90a; see references/README.md.")
        self.line = line


@dataclass(frozen=True)
class Block:
    """One fenced block. `name` is its own for programs, that of the program it belongs to for the others."""

    page: str
    line: int  # of the opening fence
    kind: str
    name: str
    archs: tuple[str, ...]
    expected: str  # what the error of a `fails` block must contain
    source: str

    @property
    def is_program(self) -> bool:
        """Whether it is compiled or executed."""
        return self.kind in PROGRAMS


@functools.lru_cache(maxsize=128)  # every page asks for the blocks of all
def read_blocks(page: Page) -> tuple[Block | BlockError, ...]:
    """The page's blocks in order, with an error in the place of each whose tag is not known."""
    found: list[Block | BlockError] = []
    for line, end, info in fences(page.lines):
        source = "\n".join(page.lines[line : end - 1]) + "\n"
        try:
            found.append(_block(page.name, line, info if end <= len(page.lines) else "unclosed", source))
        except BlockError as error:
            found.append(error)
    return tuple(found)


def programs(pages: Iterable[Page]) -> dict[str, Block]:
    """Every compile, run and fails block by name; a name that comes twice is the check's to find."""
    blocks = (block for page in pages for block in read_blocks(page))
    return {block.name: block for block in blocks if isinstance(block, Block) and block.is_program}


def _block(page: str, line: int, info: str, source: str) -> Block:
    try:
        language, kind, *words = shlex.split(info)
    except ValueError:
        raise BlockError(line, f"a block without a tag: {info or '(nothing)'!r}") from None
    if kind not in KINDS.get(language, ()):
        known = ", ".join(f"{lang} {k}" for lang, kinds in KINDS.items() for k in kinds)
        raise BlockError(line, f"there is no block kind {language!r} {kind!r}; there are {known}")
    if kind in PROGRAMS:
        return _program(page, line, kind, words, source)
    if kind in ("fragment", "output"):
        if len(words) != 2 or words[0] != "of":
            raise BlockError(line, f"write `{kind} of NAME`")
        return Block(page, line, kind, words[1], (), "", source)
    return Block(page, line, kind, "", (), "", source)


def _program(page: str, line: int, kind: str, words: list[str], source: str) -> Block:
    name, *rest = words or [""]
    if not _NAME.match(name):
        raise BlockError(line, f"a {kind} block needs a name of a-z, 0-9 and hyphens, not {name!r}")
    archs = [word for word in rest if word.startswith("sm_")]
    others = [word for word in rest if word not in archs]
    if not archs:
        raise BlockError(line, f"{name}: name the architectures, such as sm_80 sm_90a")
    if len(others) != (kind == "fails"):
        raise BlockError(line, f"{name}: not understood: {others}; only fails ends with text: that of its error")
    for arch in archs:
        try:
            parse_arch(arch)
        except CutesmithError as error:
            raise BlockError(line, f"{name}: {error.message}") from error
    return Block(page, line, kind, name, tuple(archs), others[0] if others else "", source)
