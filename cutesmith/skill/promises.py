"""What a SKILL.md promises, looked up: the files that it links or names, its scripts, their options, API names."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cutesmith.verdicts import Finding

FOLDERS = ("references", "examples_index", "scripts")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")
_PATH = re.compile(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
_SCRIPT = re.compile(r"scripts/(\w+)\.py")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_SPAN = re.compile(r"`([^`]+)`")
_DEEPEST = 1
"""Folders of a linked path: a page that a client loads stands one level below SKILL.md."""
_HELP_SECONDS = 60


@dataclass(frozen=True)
class Command:
    """A script as it is called in the text: where, which, and with which options."""

    line: int
    script: str
    options: tuple[str, ...]


def check(text: str, root: Path) -> Iterator[Finding]:
    """One finding for everything that `text` names and that does not exist below `root`."""
    for number, line in enumerate(text.split("\n"), 1):
        yield from _check_links(line, number, root)
        yield from _check_paths(line, number, root)
    yield from _check_options(list(commands(text)), root)
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


def commands(text: str) -> Iterator[Command]:
    """Every call of a script in code: in fenced lines (with continuations) and in inline code."""
    fenced, pending, start = False, "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced, pending = not fenced, ""
            continue
        if fenced:
            start = start if pending else number
            pending += line.rstrip("\\")
            if not line.endswith("\\"):
                yield from _calls(pending, start)
                pending = ""
        else:
            yield from (call for span in _SPAN.findall(line) for call in _calls(span, number))


def _calls(code: str, line: int) -> Iterator[Command]:
    found = list(_SCRIPT.finditer(code))
    ends = [match.start() for match in found[1:]] + [len(code)]
    for match, end in zip(found, ends):
        shown = re.split(r"#|&&|;|\|", code[match.end() : end])[0]
        yield Command(line, match[1], tuple(_OPTION.findall(shown)))


def _check_options(calls: list[Command], root: Path) -> Iterator[Finding]:
    wanted = sorted({call.script for call in calls if call.options and (root / f"scripts/{call.script}.py").is_file()})
    with ThreadPoolExecutor(max_workers=2) as pool:
        helps = dict(zip(wanted, pool.map(lambda name: _help(root / f"scripts/{name}.py"), wanted)))
    for call in calls:
        text = helps.get(call.script)
        if text == "":
            yield _finding("options", call.line, f"scripts/{call.script}.py --help fails")
        elif text is not None:
            known = set(_OPTION.findall(text))
            unknown = [option for option in call.options if option not in known]
            yield from (_finding("options", call.line, f"scripts/{call.script}.py has no option {o}") for o in unknown)


def _help(script: Path) -> str:
    """What `--help` prints, "" when it fails."""
    command = [sys.executable, str(script), "--help"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_HELP_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _check_text(text: str, root: Path) -> Iterable[Finding]:
    """API names and links with anchors, as for every page of ours; links start from `root`."""
    from cutesmith.references.checking import check_text
    from cutesmith.references.sections import Page

    complaints = check_text(Page(root / "SKILL.md", text))
    return [_finding("references", complaint.line, complaint.message) for complaint in complaints]
