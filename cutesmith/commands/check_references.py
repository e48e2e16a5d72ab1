"""`cutesmith check-references [PAGE…]`: everything that the reference pages claim, compiled, executed and looked up."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from cutesmith.commands._run import command_parser, report, run_command
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.references.checking import check_page, run_page
from cutesmith.references.programs import Outcome
from cutesmith.references.sections import Page, read_pages
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
    start = time.perf_counter()
    results = _all(_pages(options.pages), options.on, options.jobs)
    verdict = _verdict(results, time.perf_counter() - start)
    return report(verdict, as_json=options.json, lines=_table(verdict, slow=options.slow))


def _pages(names: list[str]) -> list[Path]:
    paths = [Path(name) for name in names] or [page.path for page in read_pages()]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"there is no page {path}", hint="Name files of references/, or none for all of them.")
    return [path for path in paths if path.name != "README.md"]


Result = tuple[list[Outcome], list[str]]


def _all(paths: list[Path], on: str, jobs: int) -> list[Result]:
    gpu = _gpu_arch() if on == "gpu" else ""
    if jobs <= 1:
        return [_one(path, on, gpu) for path in paths]
    with ProcessPoolExecutor(min(jobs, len(paths)), get_context("spawn"), max_tasks_per_child=1) as pool:
        return list(pool.map(_one, paths, [on] * len(paths), [gpu] * len(paths)))


def _one(path: Path, on: str, gpu: str) -> Result:
    os.environ.setdefault("CUTE_DSL_ARCH", gpu or "sm_90a")  # read when the DSL is imported
    page = Page.read(path)
    outcomes, wrong = run_page(page, gpu=gpu) if on != "none" else ([], [])
    if sys.stderr.isatty():
        print(f"{path.name}: {len(outcomes)} executed", file=sys.stderr)
    return outcomes, [str(complaint) for complaint in [*check_page(page), *wrong]]


def _gpu_arch() -> str:
    import torch

    if not torch.cuda.is_available():
        raise UnavailableError("--on gpu: this machine has no GPU", hint="Leave --on out: the emulated GPU serves.")
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _verdict(results: list[Result], seconds: float) -> ReferencesVerdict:
    outcomes = [outcome for found, _ in results for outcome in found]
    complaints = tuple(text for _, found in results for text in found)
    counts = ", ".join(f"{n} {what}" for on, what in _WHERE if (n := sum(o.on == on for o in outcomes)))
    summary = f"{len(results)} pages, {counts or 'nothing executed'}: {len(complaints) or 'no'} complaints."
    code = ExitCode.WRONG_RESULT if complaints else ExitCode.PASSED
    blocks = tuple(_facts(outcome) for outcome in outcomes)
    return ReferencesVerdict(exit_code=code, summary=summary, seconds=seconds, complaints=complaints, blocks=blocks)


def _facts(outcome: Outcome) -> dict[str, object]:
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
