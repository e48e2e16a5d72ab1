"""What the prose of a page claims: API names and links, each looked up where it must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cutesmith.lint.suggestions import did_you_mean
from cutesmith.lint.symbols import SymbolTable
from cutesmith.references.sections import Page

ALIASES = {
    "cute": "cutlass.cute",
    "cutlass": "cutlass",
    "nvgpu": "cutlass.cute.nvgpu",
    "cpasync": "cutlass.cute.nvgpu.cpasync",
    "warpgroup": "cutlass.cute.nvgpu.warpgroup",
    "pipeline": "cutlass.pipeline",
}
_CODE = re.compile(r"(~~)?`([^`]+)`(~~)?")
_DOTTED = re.compile(rf"(?<![\w./-])({'|'.join(ALIASES)})((?:\.[A-Za-z_]\w*)+)(?![\w/])")
_TARGET = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+(?:\([^()\s]*\))?)\)")

Remark = tuple[int, str]  # line, what is wrong


def check_names(page: Page, symbols: SymbolTable) -> Iterator[Remark]:
    """Every dotted DSL name in inline code exists; a struck one (`~~` around it) does not, or is deprecated."""
    for number, line in page.prose:
        for code in _CODE.finditer(line):
            struck = bool(code[1] and code[3])
            for name in _DOTTED.finditer(code[2]):
                if not name[0].endswith((".py", ".md", ".ipynb", ".rst")):
                    yield from ((number, text) for text in _judge(symbols, name[1], name[2], struck))


def _judge(symbols: SymbolTable, alias: str, rest: str, struck: bool) -> Iterator[str]:
    found = symbols.resolve(ALIASES[alias] + rest)
    if found.found and not found.deprecations and struck:
        yield f"`{alias}{rest}` is struck out, but nvidia-cutlass-dsl {symbols.version} has it"
    elif not found.found and not struck:
        advice = did_you_mean(symbols, found.parent, found.missing)
        yield f"nvidia-cutlass-dsl {symbols.version} has no `{alias}{rest}`. {advice}".strip()
    elif found.deprecations and not struck:
        yield f"`{alias}{rest}` is deprecated: {found.deprecations[0][1]}"


def check_links(page: Page) -> Iterator[Remark]:
    """Relative links name files that exist and headings that they have."""
    for number, line in page.prose:
        for target in _TARGET.findall(_CODE.sub("", line)):
            if not re.match(r"[a-z]+:", target):
                yield from ((number, text) for text in _follow(page, target))


def check_terms(page: Page) -> Iterator[Remark]:
    """A glossary's entry links to a page that uses its term, or an API name of its definition."""
    for section in page.sections:
        for target in _TARGET.findall(section.text) if section.level == 3 else ():
            file = page.path.parent / target.partition("#")[0]
            if file.is_file() and not _uses(file.read_text(encoding="utf-8"), section.heading, section.text):
                yield section.line, f"{file.name} never mentions {section.heading}"


def _uses(text: str, term: str, definition: str) -> bool:
    """Whether a line has all words of one of the alternatives in `term`, endings aside, or a name in code is there."""
    names = [code[2].rpartition(".")[2] for code in _CODE.finditer(definition)]
    stems = [[word[: max(4, len(word) - 3)] for word in words.split()] for words in term.lower().split(", ")]
    lines = text.lower().splitlines()
    return any(name in text for name in names) or any(
        all(s in line for s in words) for words in stems for line in lines
    )


def _follow(page: Page, target: str) -> Iterator[str]:
    file, _, anchor = target.partition("#")
    path = (page.path.parent / file).resolve() if file else page.path
    if not path.exists():
        yield f"the link {target} leads nowhere"
    elif anchor and path.suffix == ".md" and anchor not in {s.anchor for s in Page.read(path).sections}:
        yield f"{path.name} has no heading for the anchor #{anchor}"
