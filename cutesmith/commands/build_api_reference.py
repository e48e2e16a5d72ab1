"""`cutesmith build-api-reference`: the api-*.md pages from the installed DSL, written or compared."""

from __future__ import annotations

import difflib
import os
import time
from itertools import islice
from pathlib import Path

from cutesmith import resources
from cutesmith.commands._run import command, command_parser, report
from cutesmith.verdicts import ApiVerdict, ExitCode

DESCRIPTION = """\
Write references/api-*.md from the installed nvidia-cutlass-dsl: every public name with its parameters, the first
sentence of its docstring, the architectures it admits and its deprecation; stamped with the version.

With --check nothing is written: exit code 1 and the differing lines when the pages are not what the installed
version gives."""

EXAMPLES = (
    "cutesmith build-api-reference --check          # are the pages those of the installed version?",
    "cutesmith build-api-reference --out /tmp/api   # pages of another version, beside ours",
)
SHOWN = 20  # differing lines of a page


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser("build-api-reference", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("--out", type=Path, help="the folder of the pages (default: references/)")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args(argv)
    start = time.perf_counter()
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")  # the DSL asks for it when it is imported
    from cutesmith.references.api_pages import render_pages

    folder = options.out or resources.folder("references")
    texts = render_pages()
    differing: dict[str, list[str]] = {}
    for name, text in texts.items():
        path = folder / name
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        lines = difflib.unified_diff(before.splitlines(), text.splitlines(), "page", "installed DSL", lineterm="", n=0)
        changed = (line for line in lines if not line.startswith(("---", "+++", "@@")))
        if shown := list(islice(changed, SHOWN)):
            differing[name] = shown
    names = ", ".join(differing) or "none"
    code, summary = ExitCode.PASSED, f"Pages written: {names}."
    if options.check:
        code = ExitCode.WRONG_RESULT if differing else ExitCode.PASSED
        summary = f"Pages that differ from the installed DSL: {names}."
    else:
        folder.mkdir(parents=True, exist_ok=True)
        for name in differing:
            (folder / name).write_text(texts[name], encoding="utf-8")
    seconds = time.perf_counter() - start
    verdict = ApiVerdict(exit_code=code, summary=summary, seconds=seconds, differing=differing)
    told = [f"{name}: {line}" for name, lines in differing.items() for line in lines if not verdict.passed]
    return report(verdict, as_json=options.json, lines=[*told, summary])
