"""`cutesmith check-references [PAGE…]`: everything that the reference pages claim, compiled, executed and looked up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cutesmith.commands._run import command_parser, report, run_command
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.references.checking import check_page, run_page
from cutesmith.references.programs import Outcome
from cutesmith.references.sections import Page, read_pages
from cutesmith.resources import PACKAGE
from cutesmith.verdicts import ExitCode, ReferencesVerdict

DESCRIPTION = """\
Check reference pages: tags of code blocks, API names against the installed DSL, links, contents, command lines; then
compile every block for its architectures and run it on the emulated GPU (`--on gpu`: on this machine's own).

Exit code 0: all holds; 1: something does not (each complaint says where); 2: no such page."""

EXAMPLES = (
    "cutesmith check-references                                 # all pages",
    "cutesmith check-references references/concepts-layouts.md --slow",
    "cutesmith check-references --on none                       # nothing executed: names, links, tags",
    "cutesmith check-references --on gpu --jobs 8 --json        # every run block on a real GPU",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(_check, argv)


def _check(argv: list[str]) -> int:
    parser = command_parser("check-references", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="pages to check (default: all of references/)")
    parser.add_argument("--on", choices=("emulator", "gpu", "none"), default="emulator", help="where blocks run")
    parser.add_argument("--jobs", type=int, default=1, help="pages checked at once, each in a process of its own")
    parser.add_argument("--slow", action="store_true", help="list every block with its seconds, slowest first")
    options = parser.parse_args(argv)
    paths = _pages(options.pages)
    gpu = _gpu_arch() if options.on == "gpu" else ""
    if len(paths) == 1:
        verdict = _one(paths[0], options.on, gpu)
    else:
        start = time.perf_counter()
        complaints, blocks = _many(paths, options.on, options.jobs)
        verdict = _verdict(len(paths), complaints, blocks, time.perf_counter() - start)
    return report(verdict, as_json=options.json, lines=_table(verdict, slow=options.slow))


def _pages(names: list[str]) -> list[Path]:
    paths = [Path(name) for name in names] or [page.path for page in read_pages()]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"there is no page {path}", hint="Name files of references/, or none for all of them.")
    return [path for path in paths if path.name != "README.md"]


def _one(path: Path, on: str, gpu: str) -> ReferencesVerdict:
    os.environ.setdefault("CUTE_DSL_ARCH", gpu or "sm_90a")  # read when the DSL is imported
    start, page = time.perf_counter(), Page.read(path)
    outcomes, wrong = run_page(page, gpu=gpu) if on != "none" else ([], [])
    complaints = tuple(str(complaint) for complaint in [*check_page(page), *wrong])
    return _verdict(1, complaints, [_facts(outcome) for outcome in outcomes], time.perf_counter() - start)


def _in_child(path: Path, on: str) -> dict[str, Any]:
    """The verdict of one page from a process of its own: a crash there, or a poisoned CUDA context, is that page's."""
    command = [sys.executable, "-m", "cutesmith", "check-references", str(path.resolve()), "--on", on, "--json"]
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=where)
    print(f"{path.name}: exit code {done.returncode}", file=sys.stderr)
    try:
        verdict: dict[str, Any] = json.loads(done.stdout)
        return (
            verdict
            if "complaints" in verdict
            else {"complaints": [f"{path.name}:1: {verdict['summary']}"], "blocks": []}
        )
    except ValueError:
        tail = (done.stdout + done.stderr)[-1500:]
        return {"complaints": [f"{path.name}:1: the check ended with {done.returncode}: {tail}"], "blocks": []}


def _many(paths: list[Path], on: str, jobs: int) -> tuple[list[str], list[dict[str, Any]]]:
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(_in_child, paths, [on] * len(paths)))
    return [c for v in verdicts for c in v["complaints"]], [b for v in verdicts for b in v["blocks"]]


def _gpu_arch() -> str:
    import torch

    if not torch.cuda.is_available():
        raise UnavailableError("--on gpu: this machine has no GPU", hint="Leave --on out: the emulated GPU serves.")
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _verdict(
    pages: int, complaints: Sequence[str], blocks: Sequence[dict[str, Any]], seconds: float
) -> ReferencesVerdict:
    counts = ", ".join(f"{n} {what}" for on, what in _WHERE if (n := sum(b["on"] == on for b in blocks)))
    summary = f"{pages} pages, {counts or 'nothing executed'}: {len(complaints) or 'no'} complaints."
    code = ExitCode.WRONG_RESULT if complaints else ExitCode.PASSED
    return ReferencesVerdict(
        exit_code=code, summary=summary, seconds=seconds, complaints=tuple(complaints), blocks=tuple(blocks)
    )


def _facts(outcome: Outcome) -> dict[str, Any]:
    facts = asdict(outcome)
    del facts["output"], facts["problem"]
    return {**facts, "ok": not outcome.problem}


_WHERE = (("compile", "compiled"), ("emulator", "run on the emulated GPU"), ("gpu", "run on the GPU"))


def _table(verdict: ReferencesVerdict, *, slow: bool) -> Iterator[str]:
    yield from verdict.complaints
    if slow:
        for block in sorted(verdict.blocks, key=lambda b: -float(b["seconds"])):
            yield f"{block['seconds']:8.3f} s  {block['on']:<9} {block['arch']:<8} {block['block']}"
    yield f"{verdict.summary} ({verdict.seconds:.1f} s)"
