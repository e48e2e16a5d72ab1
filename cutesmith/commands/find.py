"""`cutesmith find WORDS`: the nearest example kernels, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace

from cutesmith.commands._run import command, report, verb_parser
from cutesmith.errors import UsageError
from cutesmith.examples.index.records import read_index
from cutesmith.examples.search.search import Filters, find_examples
from cutesmith.examples.vocabulary import ARCHS, OPERATIONS
from cutesmith.references.search import search
from cutesmith.references.sections import read_pages
from cutesmith.verbs.library_verbs import FIND
from cutesmith.verdicts import FindVerdict

DESCRIPTION = f"""\
The nearest example kernels for what you want to write, best first, each with what agrees and what is missing.
Write the words as you would say them: operation, GPU or architecture, dtypes, features. Synonyms and misspellings
are understood (H100 is sm_90a, matmul is gemm, mxfp8 is a block-scaled fp8).

An example for an older architecture is offered where none is nearer, and it is said whether it runs as it is or its
tensor-core part has to be ported. Filters take any synonym; --op, --dtype, --feature and --source may be repeated.

operations: {textwrap.fill(", ".join(OPERATIONS), 108, subsequent_indent="            ")}
archs:      {", ".join(ARCHS)}

Then: cutesmith fetch ID (scripts/fetch_example.py ID). Exit code 1: nothing was found (what to relax is said)."""

EXAMPLES = (
    'cutesmith find "hopper gemm bias gelu bf16"',
    "cutesmith find paged attention decode --arch b200",
    "cutesmith find --op rmsnorm --dtype bf16 --source quack --json",
)


@command
def main(argv: list[str]) -> int:
    """Run the verb; returns its exit code."""
    options = verb_parser(FIND, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    if options.limit < 1:
        raise UsageError(f"--limit {options.limit}: it is at least 1")
    filters = Filters(
        arch=options.arch,
        operations=tuple(options.op),
        dtypes=tuple(options.dtype),
        features=tuple(options.feature),
        sources=tuple(options.source),
    )
    index = read_index(options.index)
    verdict = find_examples(" ".join(options.words), index, filters=filters, limit=options.limit)
    verdict = replace(verdict, section=_section(verdict))
    return report(verdict, as_json=options.json, lines=_lines(verdict))


def _section(verdict: FindVerdict) -> str:
    """The section of the pages that answers best, unless the first example is our own and computes what is named."""
    if not verdict.examples or not verdict.query.strip():
        return ""
    first = verdict.examples[0]
    if first.meets_contract and first.operation in verdict.understood.operations:
        return ""
    hits = search(verdict.query, [page for page in read_pages() if not page.name.startswith("api-")], limit=1)
    return f"{hits[0].section.page}#{hits[0].section.anchor}" if hits else ""


def _lines(verdict: FindVerdict) -> Iterator[str]:
    for was, now in verdict.understood.corrections.items():
        yield f"({was}: read as {now})"
    for place, example in enumerate(verdict.examples, 1):
        contract = ", meets the contract" if example.meets_contract else ""
        missing = f"; missing: {', '.join(example.missing)}" if example.missing else ""
        yield f"{place}. {example.id}  ({', '.join(example.arch)}; {example.lines} lines{contract})"
        yield f"   {example.summary}"
        yield f"   why: {', '.join(example.matched)}{missing}"
        if example.note:
            yield f"   {example.fit}: {example.note}"
    if verdict.section:
        yield f"read: python scripts/search_references.py --read {verdict.section}"
    following = f"python scripts/fetch_example.py {verdict.examples[0].id}" if verdict.examples else verdict.summary
    yield verdict.hint or following
