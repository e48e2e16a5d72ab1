"""Search over the sections of the reference pages: literal names first, then words (standard library only).

Sections are ranked by BM25, with words of the heading counted more. Whole names (`cute.zipped_divide`,
`UNSUP_EARLY_EXIT`) are found where they stand literally, and so are runs of words, such as those of an error message.
An entry of the glossary stands behind the best section of a page: it says what a word means, the page what to do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cutesmith.bm25 import Bm25
from cutesmith.references.sections import Page, Section, fences, read_pages

HEADING_WEIGHT = 4
SHOWN = 3  # lines of a hit
LITERAL = 12.0  # what a whole name found in the text adds; in the heading twice as much
WHOLE_HEADING = 6.0
RUN, LONGEST_RUN = 3.0, 6  # what each run of three words of the query adds that a section has, and how many count
GLOSSARY = "glossary.md"
NO_ANSWER = ("Contents", "Sources")  # sections that lead elsewhere
_WORD = re.compile(r"[a-z0-9_]+")
_JOINED = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")
_LITERAL = re.compile(r"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)+|[A-Z][A-Z0-9]*_[A-Z0-9_]+|[a-z]+_[a-z0-9_]+")
_ENTRY = re.compile(r"- (?:\*\*|~~)`([\w.]+)")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z`\"(*])")
_PLURAL = re.compile(r"(?<=[a-z]{3})(?:ies|es|s)$")


@dataclass(frozen=True)
class Hit:
    """A section that answers a query: its score, the lines that name what was asked, and the words they matched."""

    section: Section
    score: float
    matched: tuple[str, ...]
    lines: tuple[tuple[int, str], ...]  # number in the page, text


def search(query: str, pages: Iterable[Page] | None = None, *, limit: int = 5) -> list[Hit]:
    """The sections that answer a query best, best first; empty when no word of it occurs."""
    sections = [unit for page in (read_pages() if pages is None else pages) for unit in _units(page)]
    bags = [_bag(section) for section in sections]
    words, literals = words_of(query), _LITERAL.findall(query)
    scores, runs = Bm25(bags).scores(dict.fromkeys(words, 1.0)), _runs(words)
    hits = []
    for section, bag, score in zip(sections, bags, scores):
        score += sum(_literal(name, section) for name in literals)
        heading = set(words_of(section.heading))
        if heading and heading <= set(words):  # that is what was meant: a term of the glossary, an API name
            score += WHOLE_HEADING
        if score and runs:
            score += RUN * min(len(runs & _runs(words_of(section.text))), LONGEST_RUN)
        if score > 0:
            hits.append((score, section, tuple(dict.fromkeys(w for w in words if w in bag))))
    page = max((score for score, section, _ in hits if section.page != GLOSSARY), default=0.0)

    def place(hit: tuple[float, Section, tuple[str, ...]]) -> tuple[float, bool, str, int]:
        glossary = hit[1].page == GLOSSARY
        return -min(hit[0], page) if glossary and page else -hit[0], glossary, hit[1].page, hit[1].line

    best = sorted(hits, key=place)[:limit]
    return [Hit(unit, round(score, 2), matched, _lines(unit, words, literals)) for score, unit, matched in best]


def _units(page: Page) -> Iterator[Section]:
    """What is found: the sections of a page; of a generated one its lines, each the entry of one name."""
    if not page.name.startswith("api-"):
        yield from (s for s in page.sections if s.heading not in NO_ANSWER and page.name != "README.md")
        return
    for section in page.sections:
        lines = section.text.splitlines()
        for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""])):
            if found := _ENTRY.match(line):
                text = f"{line}\n{following}" if following.startswith("  - ") else line
                yield replace(section, heading=found[1], line=section.line + number, text=text)


def words_of(text: str) -> list[str]:
    """Lower-case words, plurals cut; a dotted or joined name gives its parts and itself; stream-K gives `streamk`."""
    found = [joined.replace("-", "") for joined in _JOINED.findall(text.lower())]
    for word in _WORD.findall(text.lower()):
        found.append(_PLURAL.sub("", word))
        if "_" in word:
            found += [_PLURAL.sub("", part) for part in word.split("_") if part]
    return found


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    return set(zip(words, words[1:], words[2:]))


def _bag(section: Section) -> Counter[str]:
    bag = Counter(words_of(section.text))
    for word in words_of(f"{section.heading} {section.page.removesuffix('.md').replace('-', ' ')}"):
        bag[word] += HEADING_WEIGHT
    return bag


def _literal(name: str, section: Section) -> float:
    whole = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
    short = re.compile(rf"(?<!\w){re.escape(name.rsplit('.', 1)[-1])}(?!\w)")
    if whole.search(section.heading):
        return 2 * LITERAL
    if whole.search(section.text):
        return LITERAL
    return LITERAL / 3 if short.search(section.text) else 0.0


def _lines(section: Section, words: Sequence[str], literals: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """The sentences, table rows and lines of code that hold most of the query, in the order of the page."""
    rated = [
        (len(set(words) & set(words_of(text))) + 5 * sum(name in text for name in literals), number, text)
        for number, text in sentences(section)
    ]
    best = sorted((r for r in rated if r[0]), key=lambda r: (-r[0], r[1]))[:SHOWN]
    return tuple((number, text) for _, number, text in sorted(best, key=lambda r: r[1]))


def sentences(section: Section) -> Iterator[tuple[int, str]]:
    """The line where each sentence begins, and the whole sentence; a line of code or of a table is one."""
    first = 0 if section.text.startswith("- ") else 1  # the heading itself answers nothing
    lines = section.text.splitlines()
    fenced = {number for start, end, _ in fences(lines) for number in range(start - 1, end)}
    paragraph: list[tuple[int, str]] = []
    for number, line in enumerate(lines[first:], first):
        text = line.strip()
        alone = number in fenced or text.startswith("|")
        if alone or not text or _ITEM.match(text):
            yield from _split(paragraph)
            paragraph = []
        if alone:
            yield section.line + number, text
        elif text:
            paragraph.append((section.line + number, text))
    yield from _split(paragraph)


def _split(paragraph: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The sentences of a paragraph that goes over these lines."""
    starts: list[tuple[int, int]] = []  # where a line begins in the joined text, its number
    at = 0
    for number, text in paragraph:
        starts.append((at, number))
        at += len(text) + 1
    joined, begin = " ".join(text for _, text in paragraph), 0
    for end in [*(match.start() for match in _SENTENCE_END.finditer(joined)), len(joined)]:
        if sentence := joined[begin:end].strip():
            yield max(number for start, number in starts if start <= begin), sentence
        begin = end + 1
