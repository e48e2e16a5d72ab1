"""`cutesmith fetch ID…`: bring examples here, checked by their hash."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from cutesmith.commands._run import command, report, verb_parser
from cutesmith.errors import UsageError
from cutesmith.examples.fetch.downloading import Limits
from cutesmith.examples.fetch.fetching import FetchOptions, Progress, fetch_examples
from cutesmith.examples.index.records import read_index
from cutesmith.examples.outline import with_parts
from cutesmith.verbs.library_verbs import FETCH
from cutesmith.verdicts import FetchedExample, FetchVerdict

DESCRIPTION = """\
Bring examples of the index here. Our own kernels and those of installed packages are copied from where they are;
those of CUTLASS, FlashAttention, FlashInfer, cuLA and Liger come from the cache, from a checkout (--mirror DIR) or
over HTTPS from the pinned commit. Whatever the way, a file is kept only when its sha256 is that of the index. Nothing
that is fetched is ever run.

An example of CUTLASS has up to 45 thousand tokens: --outline lists its functions with their lines and sizes, and
--part NAME prints one of them.

Ids are those of `cutesmith find`; the last part is enough where it is unique. Files keep the folders of their source
below --out, so that examples that import one another find each other.

The cache is $CUTESMITH_CACHE, else cutesmith in the user's cache folder."""

EXAMPLES = (
    "cutesmith fetch cutlass/hopper/dense_gemm",
    "cutesmith fetch cutlass/hopper/fmha --with-siblings --out examples",
    "cutesmith fetch cutlass/hopper/fmha --outline",
    "cutesmith fetch cutlass/hopper/fmha --part HopperFusedMultiHeadAttentionForward.kernel",
    "cutesmith fetch ID ID --mirror ~/src/cutlass        from a checkout, no network",
    "cutesmith fetch ID --mirror https://host/cutlass/{commit}",
    "cutesmith fetch ID --offline --json",
)


@command
def main(argv: list[str]) -> int:
    """Run the verb; returns its exit code."""
    options = verb_parser(FETCH, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    if not options.timeout > 0 or options.attempts < 1:
        raise UsageError("--timeout is more than 0 seconds, --attempts at least 1")
    if options.outline + bool(options.part) + options.print > 1:
        raise UsageError("--outline, --part and --print exclude one another")
    index = read_index(options.index)
    with _progress(len(set(options.ids)), shown=sys.stderr.isatty() and not options.json) as progress:
        verdict = fetch_examples(options.ids, index, _options(options), progress=progress)
    if options.outline or options.part:
        verdict = with_parts(verdict, options.part)
    lines = _sources(verdict, whole=options.print) if options.print or options.part else _lines(verdict, options)
    return report(verdict, as_json=options.json, lines=lines)


def _options(options: argparse.Namespace) -> FetchOptions:
    limits = Limits(timeout=options.timeout, deadline=max(60.0, 2 * options.timeout), attempts=options.attempts)
    return FetchOptions(
        out=options.out,
        mirror=options.mirror,
        offline=options.offline,
        refresh=options.refresh,
        with_siblings=options.with_siblings,
        any_version=options.any_version,
        overwrite=options.overwrite,
        limits=limits,
    )


@contextlib.contextmanager
def _progress(count: int, *, shown: bool) -> Iterator[Progress]:
    """A bar on stderr where that is a terminal and rich is there; else nothing."""
    try:
        from rich.console import Console
        from rich.progress import Progress as Bar
    except ModuleNotFoundError:
        shown = False
    if not shown:
        yield lambda done: None
        return
    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("examples", total=count)
        yield lambda done: bar.update(task, advance=1, description=done.id)


def _sources(verdict: FetchVerdict, *, whole: bool) -> Iterator[str]:
    """The texts that were asked for, each below a comment that says where it stands."""
    for example in verdict.examples:
        if example.error:
            yield from _failure(example)
        elif whole:
            yield f"# {example.path}"
            yield Path(example.path).read_text(errors="replace")
        for part in example.parts:
            yield f"# {example.path}:{part.first_line}-{part.last_line}"
            yield part.text or ""


def _failure(example: FetchedExample) -> Iterator[str]:
    yield f"{example.id}: {example.error}"
    yield from (f"  {line}" for line in example.hint.splitlines())


def _lines(verdict: FetchVerdict, options: argparse.Namespace) -> Iterator[str]:
    for example in verdict.examples:
        if example.error:
            yield from _failure(example)
            continue
        yield f"{example.path}"
        yield f"  {example.state}, {example.bytes} bytes, sha256 {example.sha256[:16]}…"
        yield f"  {example.licence}, {example.origin}"
        if example.note:
            yield f"  {example.note}"
        if example.siblings:
            more = "" if options.with_siblings else ": --with-siblings fetches them too"
            yield f"  imports {', '.join(example.siblings)}{more}"
        if example.parts:
            yield f"  {'lines':>11}  {'~tokens':>7}  part"
        for part in example.parts:
            yield f"  {f'{part.first_line}-{part.last_line}':>11}  {part.tokens:7}  {part.name}"
    here = sum(not example.error for example in verdict.examples)
    yield f"{here} of {len(verdict.examples)} examples are in {verdict.out}"
