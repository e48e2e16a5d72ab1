"""`check_page`: everything that a reference page claims, looked up, compiled or executed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import dedent

from cutesmith import resources
from cutesmith.lint import name_rules
from cutesmith.lint.source import Source, SyntaxFault
from cutesmith.lint.suggestions import did_you_mean
from cutesmith.lint.symbols import SymbolTable, load_symbols
from cutesmith.references import script_calls
from cutesmith.references.blocks import Block, BlockError, programs, read_blocks
from cutesmith.references.programs import Outcome, execute
from cutesmith.references.sections import Page, read_pages

SHORTEST, LONGEST = 120, 600  # lines of a page: one topic, however long
LONGEST_LINE = 160  # characters of a line of prose: grep then prints a sentence
GLOSSARY = "glossary.md"
GENERATED = "api-"  # pages that build_api_reference.py writes: as long as the API is
KERNELS = "kernels/"  # fragments may come from our own example kernels
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


@dataclass(frozen=True)
class Complaint:
    """Something that a page claims and that does not hold."""

    page: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.message}"


def check_text(page: Page, symbols: SymbolTable | None = None) -> list[Complaint]:
    """What holds for any Markdown of ours: API names in inline code, relative links, command blocks."""
    remarks = [*_check_names(page, symbols or load_symbols()), *_check_links(page)]
    return [Complaint(page.name, line, message) for line, message in remarks]


def check_page(page: Page, pages: Iterable[Page] | None = None) -> list[Complaint]:
    """What can be checked without executing anything: text, structure, tags, fragments, names in programs."""
    every = list(pages) if pages is not None else read_pages(page.path.parent)
    symbols, known = load_symbols(), programs([p for p in every if p.name != page.name] + [page])
    names = [b.name for p in every for b in read_blocks(p) if isinstance(b, Block) and b.is_program]
    remarks = [*_structure(page), *(_check_terms(page) if page.name == GLOSSARY else ())]
    for block in read_blocks(page):
        wrong = [block.message] if isinstance(block, BlockError) else [*_block(block, known, symbols)]
        if isinstance(block, Block) and block.is_program and names.count(block.name) > 1:
            wrong.append(f"the name {block.name} is taken by another block")
        remarks += [(block.line, text) for text in wrong]
    found = check_text(page, symbols) + [Complaint(page.name, line, text) for line, text in remarks]
    return sorted(found, key=lambda complaint: complaint.line)


def run_page(page: Page, *, gpu: str = "") -> tuple[list[Outcome], list[Complaint]]:
    """Execute the page's programs for every arch with no GPU; or its run blocks for the arch `gpu` on the real one.

    Returns the outcomes and the complaints, also of `output` blocks whose lines the program does not print.
    """
    blocks = [block for block in read_blocks(page) if isinstance(block, Block)]
    outcomes = [
        execute(block, arch, on_gpu=bool(gpu))
        for block in blocks
        if (block.kind == "run" if gpu else block.is_program)  # what a real GPU makes of a fault tests nothing
        for arch in (block.archs if not gpu else [a for a in block.archs if a == gpu])
    ]
    lines = {block.name: block.line for block in blocks if block.is_program}
    wrong = [(lines[o.block], f"{o.block} on {o.arch} ({o.on}): {o.fault}") for o in outcomes if o.fault]
    printed = {outcome.block: outcome.output for outcome in reversed(outcomes)}
    wrong += [(b.line, text) for b in blocks if b.kind == "output" for text in _output(b, printed, gpu)]
    return outcomes, [Complaint(page.name, line, text) for line, text in sorted(wrong)]


def _output(block: Block, printed: Mapping[str, str], gpu: str) -> Iterator[str]:
    if block.name not in printed:
        if not gpu:
            yield f"output of {block.name}: this page has no such program"
    elif not is_excerpt(block.source, printed[block.name], gap="…"):
        yield f"output of {block.name}: it prints\n{printed[block.name][-1500:]}"


def _block(block: Block, known: Mapping[str, Block], symbols: SymbolTable) -> Iterator[str]:
    if block.kind == "fragment":
        yield from _fragment(block, known)
    elif block.kind == "command":
        calls = list(script_calls.in_code(block.source.replace("\\\n", " "), block.line))
        yield from (text for _, text in script_calls.faults(calls, resources.folder("scripts")))
    elif block.kind in ("run", "compile"):
        try:
            source = Source(Path(f"{block.name}.py"), block.source)
        except SyntaxFault as fault:
            yield f"{block.name}, line {fault.line}: {fault.message}"
            return
        for finding in name_rules.check(source, symbols):
            if not source.suppressed(finding):
                yield f"{block.name}, line {finding.line}: {finding.rule} {finding.message} {finding.fix}".rstrip()


def _fragment(block: Block, known: Mapping[str, Block]) -> Iterator[str]:
    whole = known[block.name].source if block.name in known else None
    if block.name.startswith(KERNELS):
        file = resources.folder("examples_index") / block.name
        whole = file.read_text(encoding="utf-8") if file.is_file() else None
    if whole is None:
        yield f"fragment of {block.name}: there is no such program"
    elif not is_excerpt(block.source, whole, gap="# …"):
        yield f"fragment of {block.name}: these lines are not in it"


def _structure(page: Page) -> Iterator[Remark]:
    tops = [section for section in page.sections if section.level == 2]
    if not page.sections or page.sections[0].level != 1 or page.sections[0].line != 1:
        yield 1, "a page begins with its title: # Title"
    if not tops or tops[0].heading != "Contents" or tops[-1].heading != "Sources":
        yield 1, "the first section is ## Contents, the last ## Sources"
        return
    listed = [line.strip() for line in tops[0].text.splitlines() if line.startswith("- ")]
    wanted = [f"- [{s.heading}](#{s.anchor})" for s in tops[1:]]
    if listed != wanted:
        odd = next((w for w in wanted if w not in listed), "the order of the list")
        yield tops[0].line, f"the contents list every ## heading in order; wrong: {odd}"
    if not page.name.startswith(GENERATED) and not SHORTEST <= len(page.lines) <= LONGEST:
        yield 1, f"a page has {SHORTEST} to {LONGEST} lines, this one {len(page.lines)}"
    if not page.name.startswith(GENERATED):
        for number, line in page.prose:
            if len(line) > LONGEST_LINE and not line.startswith(("|", "- [", "#")):
                yield number, f"a line of prose has at most {LONGEST_LINE} characters, this one {len(line)}"


def _check_names(page: Page, symbols: SymbolTable) -> Iterator[Remark]:
    """Every dotted DSL name in inline code exists; a struck one (`~~` around it) does not, or is deprecated."""
    codes = ((number, code) for number, line in page.prose for code in _CODE.finditer(line))
    for number, code in codes:
        struck = bool(code[1] and code[3])
        for name in _DOTTED.finditer(code[2]):
            if name[0].endswith((".py", ".md", ".ipynb", ".rst")):
                continue
            found = symbols.resolve(ALIASES[name[1]] + name[2])
            if found.found and not found.deprecations and struck:
                yield number, f"`{name[0]}` is struck out, but nvidia-cutlass-dsl {symbols.version} has it"
            elif not found.found and not struck:
                advice = did_you_mean(symbols, found.parent, found.missing)
                yield number, f"nvidia-cutlass-dsl {symbols.version} has no `{name[0]}`. {advice}".strip()
            elif found.deprecations and not struck:
                yield number, f"`{name[0]}` is deprecated: {found.deprecations[0][1]}"


def _check_links(page: Page) -> Iterator[Remark]:
    """Relative links name files that exist and headings that they have."""
    links = ((number, target) for number, line in page.prose for target in _TARGET.findall(_CODE.sub("", line)))
    for number, target in links:
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.path.parent / file).resolve() if file else page.path
        if not path.exists():
            yield number, f"the link {target} leads nowhere"
        elif anchor and path.suffix == ".md" and anchor not in {s.anchor for s in Page.read(path).sections}:
            yield number, f"{path.name} has no heading for the anchor #{anchor}"


def _check_terms(page: Page) -> Iterator[Remark]:
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


def is_excerpt(excerpt: str, whole: str, *, gap: str) -> bool:
    """Whether the lines stand in `whole` in a row, common indentation aside; a line `gap` skips any number of lines."""
    lines = whole.splitlines()
    parts = groupby(excerpt.splitlines(), lambda line: line.strip() == gap)
    runs = [list(group) for is_gap, group in parts if not is_gap]
    position = 0
    for run in runs:
        starts = range(position, len(lines) - len(run) + 1)
        found = next((i for i in starts if _normal(run) == _normal(lines[i : i + len(run)])), None)
        if found is None:
            return False
        position = found + len(run)
    return bool(runs)


def _normal(lines: list[str]) -> list[str]:
    return [line.rstrip() for line in dedent("\n".join(lines)).split("\n")]
