"""What the prose of a page claims: API names, links and command lines, each looked up where it must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cutesmith.checks.lint.suggestions import did_you_mean
from cutesmith.checks.lint.symbols import SymbolTable
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
_SCRIPT = re.compile(r"scripts/(\w+)\.py")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")

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


def _follow(page: Page, target: str) -> Iterator[str]:
    file, _, anchor = target.partition("#")
    path = (page.path.parent / file).resolve() if file else page.path
    if not path.exists():
        yield f"the link {target} leads nowhere"
    elif anchor and path.suffix == ".md" and anchor not in {s.anchor for s in Page.read(path).sections}:
        yield f"{path.name} has no heading for the anchor #{anchor}"


def check_command(source: str, scripts: Path) -> Iterator[str]:
    """Scripts that a command block names exist, and their `--help` knows the options shown after them."""
    for line in source.replace("\\\n", " ").splitlines():
        for found in _SCRIPT.finditer(line):
            if not (scripts / f"{found[1]}.py").is_file():
                yield f"there is no scripts/{found[1]}.py"
                continue
            known = _options_of(scripts / f"{found[1]}.py")
            shown = line[found.end() :].split("#")[0].split("&&")[0].split(";")[0]
            yield from (f"scripts/{found[1]}.py has no option {o}" for o in _OPTION.findall(shown) if o not in known)


def _options_of(script: Path) -> set[str]:
    """The long options that the script's verb or one of its actions adds, read off the verb's module."""
    from cutesmith import resources

    verb = re.search(r'main\(\["([a-z-]+)"', script.read_text(encoding="utf-8"))
    module = resources.PACKAGE / "commands" / f"{verb[1].replace('-', '_')}.py" if verb else script
    text = module.read_text(encoding="utf-8") if module.is_file() else ""
    return {*_OPTION.findall(text), "--json", "--help"}
