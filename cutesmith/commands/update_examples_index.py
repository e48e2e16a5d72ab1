"""`cutesmith update-examples-index`: make the example index again, or say how it differs from what it is made from."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cutesmith import resources
from cutesmith.commands._run import command, command_parser, report
from cutesmith.errors import UsageError
from cutesmith.examples.index import curation
from cutesmith.examples.index.comparison import KINDS, Change, compare
from cutesmith.examples.index.rebuilding import Rebuilt, read_current, rebuild, undescribed
from cutesmith.examples.index.records import FILE, TABLE, Example, table, write_index
from cutesmith.verdicts import ExitCode, Verdict

DESCRIPTION = """\
Make examples_index/ again from its sources: our own kernels, the installed packages, and (with --checkout) the CuTe
DSL examples of CUTLASS and modules of other repositories. Without --write nothing is written: you see what is new,
moved, changed and gone. A new example stays "uncurated" until examples_index/curation/ says what it is and what to
learn from it."""
EXAMPLES = (
    "scripts/update_examples_index.py --check",
    "scripts/update_examples_index.py --checkout ../cutlass",
    "scripts/update_examples_index.py --checkout ../cutlass --write --json",
)


@dataclass(frozen=True, kw_only=True)
class IndexVerdict(Verdict):
    """How the index differs from its sources, and what is wrong with it."""

    stage: ClassVar[str] = "update-examples-index"

    records: dict[str, int]  # source → how many
    changes: tuple[Change, ...]
    uncurated: tuple[str, ...]  # ids
    undescribed: tuple[str, ...]  # modules of packages that have kernels and are not indexed: for information
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    fresh_table: bool
    written: bool


@command
def main(argv: list[str]) -> int:
    """0: shown, written, or nothing differs under --check; 1: --check found something, or a file could not be read."""
    parser = command_parser("update-examples-index", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument(
        "--checkout",
        type=Path,
        metavar="DIR",
        action="append",
        default=[],
        help="root of a work tree of CUTLASS or of another indexed repository; may be given several times",
    )
    parser.add_argument("--commit", help="its commit, where DIR is not a git work tree (40 hexadecimal digits)")
    parser.add_argument("--index", type=Path, metavar="DIR", help="the index's folder (default: the one in use)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help="write index.jsonl, the table and moved curation")
    mode.add_argument("--check", action="store_true", help="exit 1 where the index is not what its sources give")
    options = parser.parse_args(argv)
    if options.commit and len(options.checkout) != 1:
        raise UsageError("--commit says which commit one --checkout is", hint="Give one --checkout DIR")
    root = options.index or resources.folder("examples_index")
    if options.write:
        verdict = _write(root, options)
    else:
        before, rebuilt = read_current(root), rebuild(root, options.checkout, options.commit)
        faults = (*rebuilt.faults, *curation.faults(before, root))
        verdict = _verdict(root, before, rebuilt, faults, strict=options.check)
    return report(verdict, as_json=options.json, lines=_lines(verdict))


def _write(root: Path, options: argparse.Namespace) -> IndexVerdict:
    """Moves first: the words of a moved example must be found under its new path."""
    before = read_current(root)
    moved = [c for c in compare(before, rebuild(root, options.checkout, options.commit).examples) if c.was]
    for source in curation.FILES:
        curation.rename(root, source, {change.was: change.path for change in moved})
    rebuilt = rebuild(root, options.checkout, options.commit)
    write_index(rebuilt.examples, root / FILE)
    (root / TABLE).write_text(table(rebuilt.examples), encoding="utf-8")
    faults = (*rebuilt.faults, *curation.faults(rebuilt.examples, root))
    return _verdict(root, before, rebuilt, faults, written=True)


def _verdict(
    root: Path,
    before: Sequence[Example],
    rebuilt: Rebuilt,
    faults: tuple[str, ...],
    *,
    strict: bool = False,
    written: bool = False,
) -> IndexVerdict:
    changes = compare(before, rebuilt.examples)
    uncurated = curation.uncurated(rebuilt.examples)
    page = root / TABLE
    expected = table(rebuilt.examples if written else before)
    fresh = page.is_file() and page.read_text(encoding="utf-8") == expected
    failed = bool(faults) or (strict and bool(changes or uncurated or not fresh))
    counts = Counter(change.kind for change in changes)
    parts = [f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]] or ["nothing differs"]
    parts += [f"{len(uncurated)} uncurated"] * bool(uncurated) + [f"{len(faults)} faults"] * bool(faults)
    parts += ["the table is stale"] * (not fresh)
    described = {example.path for example in rebuilt.examples if example.source == "package"}
    return IndexVerdict(
        exit_code=ExitCode.WRONG_RESULT if failed else ExitCode.PASSED,
        summary=("written: " if written else "") + ", ".join(parts),
        records=dict(sorted(Counter(example.source for example in rebuilt.examples).items())),
        changes=changes,
        uncurated=uncurated,
        undescribed=tuple(undescribed(described)),
        faults=faults,
        notes=rebuilt.notes,
        fresh_table=fresh,
        written=written,
    )


def _lines(verdict: IndexVerdict) -> Iterator[str]:
    counted = ", ".join(f"{count} {source}" for source, count in verdict.records.items())
    yield f"{sum(verdict.records.values())} examples ({counted}): {verdict.summary}"
    for change in verdict.changes:
        if change.kind != "restamped":  # one for every file of a new commit: the summary counts them
            origin = f" (was {change.was}, likeness {change.likeness:.2f})" if change.was else ""
            yield f"  {change.kind:<10}{change.path}{origin}"
    yield from (f"  uncurated {name}" for name in verdict.uncurated)
    yield from (f"  fault     {fault}" for fault in verdict.faults)
    yield from (f"  note      {note}" for note in verdict.notes)
    if verdict.undescribed:
        yield f"  {len(verdict.undescribed)} modules of packages have kernels and no record (--json lists them)"
