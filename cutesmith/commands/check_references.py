"""`cutesmith check-references [PAGE…]`: everything that the reference pages claim, compiled, executed and looked up."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cutesmith.commands._run import command, command_parser, report
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.references.checking import check_page, run_page
from cutesmith.references.sections import Page, read_pages
from cutesmith.resources import PACKAGE
from cutesmith.verdicts import ExecutedBlock, ExitCode, ReferencesVerdict, strict_json
from cutesmith.verdicts.reading import read_record

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


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser("check-references", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="pages to check (default: all of references/)")
    parser.add_argument("--on", choices=("emulator", "gpu", "none"), default="emulator", help="where blocks run")
    parser.add_argument("--jobs", type=int, default=1, help="pages checked at once, each in a process of its own")
    parser.add_argument("--slow", action="store_true", help="list every block with its seconds, slowest first")
    options = parser.parse_args(argv)
    paths = [Path(name) for name in options.pages] or [page.path for page in read_pages()]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"there is no page {path}", hint="Name files of references/, or none for all of them.")
    paths = [path for path in paths if path.name != "README.md"]
    gpu, start = _gpu_arch() if options.on == "gpu" else "", time.perf_counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        check = _looked_up if options.on == "none" else partial(_in_child, gpu=gpu)
        found = list(pool.map(check, paths))
    complaints = tuple(complaint for checked in found for complaint in checked.complaints)
    blocks = tuple(block for checked in found for block in checked.blocks)
    counts = ", ".join(f"{n} {what}" for on, what in _WHERE if (n := sum(block.on == on for block in blocks)))
    verdict = ReferencesVerdict(
        exit_code=ExitCode.WRONG_RESULT if complaints else ExitCode.PASSED,
        summary=f"{len(paths)} pages, {counts or 'nothing executed'}: {len(complaints) or 'no'} complaints.",
        seconds=time.perf_counter() - start,
        complaints=complaints,
        blocks=blocks,
    )
    return report(verdict, as_json=options.json, lines=_table(verdict, slow=options.slow))


@dataclass(frozen=True)
class _Checked:
    """One page: what does not hold, and the blocks that were executed."""

    complaints: tuple[str, ...] = ()
    blocks: tuple[ExecutedBlock, ...] = ()


def _looked_up(path: Path) -> _Checked:
    return _Checked(tuple(map(str, check_page(Page.read(path)))))


def check_in_this_process(path: str, gpu: str) -> None:
    """Look a page up, execute its blocks, print what was found as JSON, and end the process.

    It ends by `os._exit`: compiled functions that are freed with the interpreter can call into what is gone already.
    """
    os.environ.setdefault("CUTE_DSL_ARCH", gpu or "sm_90a")  # read when the DSL is imported
    outcomes, wrong = run_page(Page.read(Path(path)), gpu=gpu)
    blocks = tuple(
        ExecutedBlock(block=one.block, arch=one.arch, on=one.on, seconds=one.seconds, ok=not one.fault)
        for one in outcomes
    )
    checked = _looked_up(Path(path))
    print(strict_json(_Checked((*checked.complaints, *map(str, wrong)), blocks)), flush=True)
    os._exit(0)


def _in_child(path: Path, gpu: str) -> _Checked:
    """One page checked by a process of its own: a crash there, or a poisoned CUDA context, is that page's."""
    command = [sys.executable, "-c", _CHILD, str(path.resolve()), gpu]
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=where)
    print(f"{path.name}: checked", file=sys.stderr)
    with contextlib.suppress(ValueError):
        if done.returncode == 0:
            return read_record(_Checked, json.loads(done.stdout))
    complaint = f"the check ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"
    return _Checked((f"{path.name}:1: {complaint}",))


_CHILD = "import sys; from cutesmith.commands import check_references as c; c.check_in_this_process(*sys.argv[1:])"


def _gpu_arch() -> str:
    import torch

    if not torch.cuda.is_available():
        raise UnavailableError("--on gpu: this machine has no GPU", hint="Leave --on out: the emulated GPU serves.")
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


_WHERE = (("compile", "compiled"), ("emulator", "run on the emulated GPU"), ("gpu", "run on the GPU"))


def _table(verdict: ReferencesVerdict, *, slow: bool) -> Iterator[str]:
    yield from verdict.complaints
    if slow:
        for block in sorted(verdict.blocks, key=lambda block: -block.seconds):
            yield f"{block.seconds:8.3f} s  {block.on:<9} {block.arch:<8} {block.block}"
    yield f"{verdict.summary} ({verdict.seconds:.1f} s)"
