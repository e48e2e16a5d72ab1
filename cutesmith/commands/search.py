"""`cutesmith search QUERY`: the sections of the references that answer it; `--read` prints one whole."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from cutesmith.commands._run import command, report, verb_parser
from cutesmith.errors import UsageError
from cutesmith.references.search import Hit, search
from cutesmith.references.sections import Page, Section, read_pages
from cutesmith.verbs.library_verbs import SEARCH
from cutesmith.verdicts import ExitCode, MatchedLine, SearchVerdict, SectionFound

DESCRIPTION = """\
Look something up in the references: words, an API name, an error code or message. Prints the best sections with the
lines that answer; read one whole with --read PAGE#ANCHOR, or a page with --read PAGE.

Exit code 0: found; 1: no section holds any of the words."""

EXAMPLES = (
    'cutesmith search "named barrier between two warps"',
    "cutesmith search cute.zipped_divide",
    "cutesmith search UNSUP_EARLY_EXIT --limit 1 --full",
    "cutesmith search --read patterns-reduction.md#contents",
)


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(SEARCH, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    pages = [page for page in read_pages() if page.name not in options.without]
    start = time.perf_counter()
    if options.read:
        sections = read_section(options.read, pages)
        verdict = _verdict("", [Hit(section, 0.0, (), ()) for section in sections], start, full=True)
        return report(verdict, as_json=options.json, lines=[section.text + "\n" for section in sections])
    query = " ".join(options.query).strip()
    if not query or options.limit < 1:
        raise UsageError("cutesmith search: no query was given", hint='cutesmith search "named barrier"')
    hits = search(query, pages, limit=options.limit)
    verdict = _verdict(query, hits, start, full=options.full)
    return report(verdict, as_json=options.json, lines=_table(verdict, hits, full=options.full))


def read_section(address: str, pages: Iterable[Page] | None = None) -> list[Section]:
    """The sections under `PAGE.md#anchor` (with what is below it), or all of a page; raises UsageError."""
    name, _, anchor = address.removeprefix("references/").partition("#")
    name = name if name.endswith(".md") else f"{name}.md"
    by_name = {page.name: page for page in (read_pages() if pages is None else pages)}
    if name not in by_name:
        raise UsageError(f"there is no reference page {name}", hint=f"There are: {', '.join(by_name)}")
    page = by_name[name]
    if not anchor:
        return page.sections
    for position, section in enumerate(page.sections):
        if section.anchor == anchor:
            below = (i for i, s in enumerate(page.sections) if i > position and s.level <= section.level)
            return page.sections[position : next(below, len(page.sections))]
    known = ", ".join(section.anchor for section in page.sections if section.level <= 2)
    raise UsageError(f"{page.name} has no section #{anchor}", hint=f"It has: {known}")


def _verdict(query: str, hits: list[Hit], start: float, *, full: bool) -> SearchVerdict:
    found = tuple(
        SectionFound(
            page=hit.section.page,
            heading=hit.section.heading,
            address=f"{hit.section.page}#{hit.section.anchor}",
            line=hit.section.line,
            score=hit.score,
            lines=tuple(MatchedLine(number, text) for number, text in hit.lines),
            text=hit.section.text if full else None,
        )
        for hit in hits
    )
    code = ExitCode.PASSED if hits else ExitCode.WRONG_RESULT
    summary = f"{len(hits)} sections." if hits else f"No section holds any word of {query!r}."
    return SearchVerdict(exit_code=code, summary=summary, seconds=time.perf_counter() - start, query=query, hits=found)


def _table(verdict: SearchVerdict, hits: list[Hit], *, full: bool) -> Iterator[str]:
    for hit in hits:
        yield f"references/{hit.section.page}:{hit.section.line}  {hit.section.heading}"
        if full:
            yield hit.section.text + "\n"
        else:
            yield from (f"    {number}: {text}" for number, text in hit.lines)
    yield verdict.summary
