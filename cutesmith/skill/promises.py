"""What a SKILL.md promises, looked up: the files that it links or names, its scripts, their options, API names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from cutesmith.references import script_calls
from cutesmith.verdicts import Finding

FOLDERS = ("references", "examples_index", "scripts")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")
_PATH = re.compile(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
_SPAN = re.compile(r"`([^`]+)`")
_DEEPEST = 1
"""Folders of a linked path: a page that a client loads stands one level below SKILL.md."""


def check(text: str, root: Path) -> Iterator[Finding]:
    """One finding for everything that `text` names and that does not exist below `root`."""
    for number, line in enumerate(text.split("\n"), 1):
        yield from _check_links(line, number, root)
        yield from _check_paths(line, number, root)
    scripts = root / "scripts"
    calls = [call for call in script_calls.in_text(text) if (scripts / f"{call.script}.py").is_file()]
    faults = script_calls.faults(calls, scripts)  # of those that are missing the paths have told
    yield from (_finding("options", line, message) for line, message in faults)
    yield from _check_text(text, root)


def _finding(rule: str, line: int, message: str) -> Finding:
    return Finding(rule=rule, severity="error", line=line, column=1, message=message)


def _check_links(line: str, number: int, root: Path) -> Iterator[Finding]:
    for target in _LINK.findall(_SPAN.sub("", line)):
        path = target.partition("#")[0]
        if re.match(r"[a-z]+:", target) or not path:
            continue
        if path.startswith(("/", "../")) or path.rstrip("/").count("/") > _DEEPEST:
            yield _finding("links", number, f"{target} is not at most one folder below SKILL.md")


def _check_paths(line: str, number: int, root: Path) -> Iterator[Finding]:
    for path in _PATH.findall(line):
        if not (root / path).exists() and not re.search(r"[A-Z]{2,}|\*", path.rpartition("/")[2]):
            yield _finding("paths", number, f"{path} does not exist")


def _check_text(text: str, root: Path) -> Iterable[Finding]:
    """API names and links with anchors, as for every page of ours; links start from `root`."""
    from cutesmith.references.checking import check_text
    from cutesmith.references.sections import Page

    complaints = check_text(Page(root / "SKILL.md", text))
    return [_finding("references", complaint.line, complaint.message) for complaint in complaints]
