"""`check_skill`: whether a SKILL.md keeps the Agent Skills format, our stricter rules, and what it promises.

The format: https://agentskills.io/specification (name, description, keys, sizes, references one level deep); the
reference validator `skills-ref` is asked too where it is installed. Ours: the triggers stand where clients cut the
list of skills (about 200 characters), no client's own tool is named, and everything named exists: links, scripts,
their options, API names of the installed DSL.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cutesmith import __version__
from cutesmith.errors import UsageError
from cutesmith.references import script_calls
from cutesmith.resources import FOLDERS
from cutesmith.skill.content import dsl_version, read_record
from cutesmith.skill.front_matter import FrontMatter, FrontMatterError, read_front_matter
from cutesmith.verdicts import ExitCode, Finding, Verdict

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
LONGEST = {"name": 64, "description": 1024, "compatibility": 500}
TRIGGERS = {"write or implement": r"\b(writ|implement)", "CuTe DSL": r"CuTe DSL", "kernel": r"\bkernels?\b"}
TRIGGER_WINDOW = 200
"""Characters of the description that every client shows."""
EXCLUDED = ("Triton", "cuTile", "CUDA C++")
"""What the description must send elsewhere, after the word "not"."""
MOST_LINES = 499
MOST_TOKENS = 4999
DEEPEST = 1
"""Folders of a linked path: a page that a client loads stands one level below SKILL.md."""
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")
_PATH = re.compile(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
_SPAN = re.compile(r"`([^`]+)`")

TOOLS_OF_CLIENTS = re.compile(
    r"\b(WebFetch|WebSearch|TodoWrite|NotebookEdit|MultiEdit|str_replace\w*|apply_patch|run_shell_command|run_terminal_cmd"
    r"|codebase_search|activate_skill|read_many_files|google_web_search|update_plan|AskUserQuestion"
    r"|(Bash|Read|Edit|Write|Grep|Glob|Task|Skill|Agent|Shell) tool)\b"
    r"|\$\{?CLAUDE_\w+|\$ARGUMENTS|\$\{extensionPath\}|(?m:^!`)"
)


@dataclass(frozen=True, kw_only=True)
class ManifestVerdict(Verdict):
    """What a SKILL.md does not keep: one finding each, with its line; sizes as measured."""

    stage: ClassVar[str] = "skill"

    path: str
    findings: tuple[Finding, ...] = ()
    body_lines: int = 0
    estimated_tokens: int = 0
    skills_ref: str = ""  # "asked" or "not installed"

    def lines(self) -> list[str]:
        """The findings for people."""
        return [f"{self.path}:{f.line}: {f.rule}: {f.message}" for f in self.findings]


def check_skill(folder: Path) -> ManifestVerdict:
    """Check the skill in `folder` (an installed copy, or `skill/NAME` of the repository); UsageError where none is."""
    path = folder / "SKILL.md"
    if not path.is_file():
        raise UsageError(f"{folder} has no SKILL.md", hint="cutesmith skill validate DIR takes a skill's folder.")
    text = path.read_text(encoding="utf-8")
    body, findings = text, []
    try:
        matter = read_front_matter(text)
        body = matter.body
        findings += [*_check_keys(matter, folder), *_check_description(matter), *_check_body(matter)]
    except FrontMatterError as error:
        findings.append(_finding("front-matter", error.line, error.message, error.hint))
    findings += _check_promises(text, root_of(folder))
    validator = importlib.util.find_spec("skills_ref")
    if validator:
        from skills_ref import validate

        findings += [_finding("skills-ref", 1, message) for message in validate(folder.resolve())]
    summary = f"{len(findings)} findings" if findings else "the manifest keeps every rule"
    return ManifestVerdict(
        exit_code=ExitCode.LINT if findings else ExitCode.PASSED,
        summary=f"{summary}: {_lines_of(body)} lines, about {estimated_tokens(body)} tokens",
        path=str(path),
        findings=tuple(sorted(findings, key=lambda finding: finding.line)),
        body_lines=_lines_of(body),
        estimated_tokens=estimated_tokens(body),
        skills_ref="asked" if validator else "not installed",
    )


def root_of(folder: Path) -> Path:
    """The folder that relative paths in a SKILL.md start from: its own, or the repository's root for `skill/NAME`."""
    folder = folder.resolve()
    places = (folder, folder.parent.parent)
    return next((place for place in places if (place / "scripts").is_dir()), folder)


def estimated_tokens(text: str) -> int:
    """An estimate of the tokens of a text, on the high side: no tokenizer is asked.

    The larger of 1.35 a word and one for 3.6 characters: English prose has about 1.3 tokens a word, Markdown with code
    about one for 4 characters, in the byte-pair vocabularies whose counts are published.
    """
    return int(max(len(text.split()) * 1.35, len(text) / 3.6)) + 1


def _lines_of(body: str) -> int:
    return len(body.strip("\n").split("\n"))


def _finding(rule: str, line: int, message: str, fix: str = "") -> Finding:
    return Finding(rule=rule, severity="error", line=line, column=1, message=message, fix=fix)


def _check_keys(matter: FrontMatter, folder: Path) -> Iterator[Finding]:
    """Keys and their sizes, the name, and in `metadata` the versions of the copy's record, else of this package."""
    for key, value in matter.values.items():
        line = matter.lines[key]
        if key not in KEYS:
            yield _finding("keys", line, f"{key} is not a key of the format", f"Keys: {', '.join(sorted(KEYS))}")
        elif isinstance(value, dict) != (key == "metadata"):
            yield _finding("keys", line, f"{key}: {'keys and texts' if key == 'metadata' else 'a text'} is expected")
        elif not value or len(value) > LONGEST.get(key, 10_000):
            yield _finding("keys", line, f"{key} has {len(value)} characters, of 1 to {LONGEST.get(key, 10_000)}")
    missing = (key for key in ("name", "description") if not matter.values.get(key))
    yield from (_finding("keys", 1, f"{key} is missing") for key in missing)
    name, line, expected = str(matter.values.get("name", "")), matter.lines.get("name", 1), folder.resolve().name
    if not NAME.fullmatch(name):
        yield _finding("name", line, f"{name!r} is not made of a-z, 0-9 and single hyphens")
    if name != expected:
        yield _finding("name", line, f"{name!r} is not the name of its folder, {expected!r}")
    metadata, record = matter.values.get("metadata"), read_record(folder)
    wanted = {"version": record.version if record else __version__, "cute-dsl": dsl_version()}
    for key, version in wanted.items():
        stated = metadata.get(key) if isinstance(metadata, dict) else None
        if stated and version and stated != version:
            message = f"the text is for {key} {stated}, here is {version}"
            yield _finding("versions", matter.lines["metadata"], message, "Read the text again, then change it.")


def _check_description(matter: FrontMatter) -> Iterator[Finding]:
    text, line = str(matter.values.get("description", "")), matter.lines.get("description", 1)
    for what, pattern in TRIGGERS.items():
        if not re.search(pattern, text[:TRIGGER_WINDOW], re.I):
            yield _finding("triggers", line, f"the first {TRIGGER_WINDOW} characters do not say {what!r}")
    after = text[match.end() :] if (match := re.search(r"\bnot\b", text, re.I)) else ""
    missing = [name for name in EXCLUDED if name.lower() not in after.lower()]
    if missing:
        yield _finding("triggers", line, f"the description does not say that it is not for {', '.join(missing)}")
    if "<" in text or ">" in text:
        yield _finding("description", line, "angle brackets end up in a prompt made of tags: leave them out")


def _check_body(matter: FrontMatter) -> Iterator[Finding]:
    lines, tokens = _lines_of(matter.body), estimated_tokens(matter.body)
    if lines > MOST_LINES:
        yield _finding("size", matter.body_line, f"the body has {lines} lines, more than {MOST_LINES}")
    if tokens > MOST_TOKENS:
        yield _finding("size", matter.body_line, f"the body has about {tokens} tokens, more than {MOST_TOKENS}")
    for number, line in enumerate(matter.body.split("\n"), matter.body_line):
        for found in TOOLS_OF_CLIENTS.finditer(line):
            yield _finding("neutral", number, f"{found[0]!r} is one client's own", "Name a script, or say what to do.")


def _check_promises(text: str, root: Path) -> Iterator[Finding]:
    """What the text names must exist below `root`: links, paths, scripts and their options, API names of the DSL."""
    from cutesmith.references.checking import check_text
    from cutesmith.references.sections import Page

    for number, line in enumerate(text.split("\n"), 1):
        for target in _LINK.findall(_SPAN.sub("", line)):
            path = target.partition("#")[0]
            far = path.startswith(("/", "../")) or path.rstrip("/").count("/") > DEEPEST
            if far and not re.match(r"[a-z]+:", target):
                yield _finding("links", number, f"{target} is not at most one folder below SKILL.md")
        for path in _PATH.findall(line):
            if not (root / path).exists() and not re.search(r"[A-Z]{2,}|\*", path.rpartition("/")[2]):
                yield _finding("paths", number, f"{path} does not exist")
    scripts = root / "scripts"
    calls = [call for call in script_calls.in_text(text) if (scripts / f"{call.script}.py").is_file()]
    for line_number, message in script_calls.faults(calls, scripts):
        yield _finding("options", line_number, message)
    for complaint in check_text(Page(root / "SKILL.md", text)):
        yield _finding("references", complaint.line, complaint.message)
