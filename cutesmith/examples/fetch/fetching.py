"""Bring examples here: from this package, an installed one, the cache, a checkout or the network; each is checked."""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path, PurePosixPath

from cutesmith.errors import CutesmithError, UsageError
from cutesmith.examples.fetch import sources
from cutesmith.examples.fetch.downloading import Downloader, Limits
from cutesmith.examples.fetch.sources import Cache, FetchError, keep_file, sha256_of
from cutesmith.examples.index.records import Example
from cutesmith.syntax import parse_python
from cutesmith.verdicts import ExitCode, FetchedExample, FetchVerdict

Progress = Callable[[FetchedExample], None]


@dataclass(frozen=True, kw_only=True)
class FetchOptions:
    """How examples are brought, and where to."""

    out: Path
    mirror: str = ""  # a checkout of its repository or the start of an address, "" for GitHub
    offline: bool = False
    refresh: bool = False  # ask the server again, though the cache has it
    with_siblings: bool = False
    any_version: bool = False  # take a package's file though its hash is not the index's
    overwrite: bool = False  # replace a file in `out` that differs
    cache: Path | None = None  # the user's cache folder where None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class _Got:
    data: bytes
    state: str  # "copied", "cached" or "downloaded"
    note: str = ""


def fetch_examples(
    ids: Sequence[str], index: Sequence[Example], options: FetchOptions, *, progress: Progress = lambda done: None
) -> FetchVerdict:
    """Bring the examples of these ids into `options.out`; one that fails stops no other.

    `progress` is called once an example. Must not be called from a running event loop (use `asyncio.to_thread`).
    Raises UsageError for an unknown id, before anything is brought.
    """
    start = time.monotonic()
    by_id = {example.id: example for example in index}
    wanted = [_lookup(name, by_id) for name in dict.fromkeys(ids)]
    brought = asyncio.run(_Fetch(index, options, progress).run(wanted))
    failed = [example for example in brought if example.exit_code != ExitCode.PASSED]
    summary = f"{len(brought) - len(failed)} of {len(brought)} examples are in {options.out}"
    if failed:
        summary += f"; {failed[0].id}: {failed[0].error.splitlines()[0]}"
    return FetchVerdict(
        exit_code=failed[0].exit_code if failed else ExitCode.PASSED,
        summary=summary,
        seconds=time.monotonic() - start,
        out=str(options.out),
        examples=tuple(brought),
    )


def _lookup(name: str, by_id: Mapping[str, Example]) -> Example:
    tails = [known for known in by_id if known == name or known.endswith(f"/{name}")]
    if name in by_id or len(tails) == 1:
        return by_id[name if name in by_id else tails[0]]
    close = tails or get_close_matches(name, by_id, n=3, cutoff=0.5)
    hint = f"Did you mean {', '.join(close)}?" if close else "scripts/find_example.py WORDS lists ids."
    raise UsageError(f"the index has no example {name!r}", hint=hint)


class _Fetch:
    """One call of `fetch_examples`: the index by path, the cache, and the downloader once it is needed."""

    def __init__(self, index: Sequence[Example], options: FetchOptions, progress: Progress) -> None:
        self.index = index
        self.by_id = {example.id: example for example in index}
        self.by_path = {(example.source, example.path): example for example in index}
        self.options = options
        self.progress = progress
        self.cache = Cache(options.cache)
        self.folder = sources.mirror_folder(options.mirror)
        self.downloader: Downloader | None = None

    async def run(self, wanted: Iterable[Example]) -> list[FetchedExample]:
        """Bring the examples, and with `with_siblings` whatever they import, round by round."""
        try:
            brought: dict[str, FetchedExample] = {}
            waiting = list(wanted)
            while waiting:
                for done in await asyncio.gather(*map(self._bring, waiting)):
                    brought[done.id] = done
                imported = dict.fromkeys(name for done in brought.values() for name in done.siblings)
                missing = [name for name in imported if name not in brought] if self.options.with_siblings else []
                waiting = [self.by_id[name] for name in missing]
            return list(brought.values())
        finally:
            if self.downloader is not None:
                await self.downloader.close()

    async def _bring(self, example: Example) -> FetchedExample:
        result = FetchedExample(
            id=example.id,
            origin=sources.origin(example),
            licence=example.licence,
            sha256=example.sha256,
            meets_contract=example.meets_contract,
        )
        try:
            target = sources.destination(example, self.options.out)
            got = await self._bytes(example)
            result = replace(
                result,
                path=str(target),
                state=self._write(target, got),
                bytes=len(got.data),
                sha256=sha256_of(got.data),
                note=got.note,
                siblings=_siblings(example, got.data, self.by_path),
            )
        except CutesmithError as error:
            kind = error.kind if isinstance(error, FetchError) else "unavailable"
            result = replace(
                result, state="failed", exit_code=error.exit_code, kind=kind, error=error.message, hint=error.hint
            )
        self.progress(result)
        return result

    async def _bytes(self, example: Example) -> _Got:
        if not example.from_github:
            data, note = sources.read_local(example, any_version=self.options.any_version)
            return _Got(data, "copied", note)
        if self.folder is not None:
            return _Got(sources.read_mirror(example, self.folder), "copied")
        kept = self.cache.get(example.sha256)
        if kept is not None and not self.options.refresh:
            return _Got(kept, "cached")
        if self.options.offline:
            hint = "Fetch it once without --offline, or give a checkout of its repository with --mirror DIR."
            raise FetchError("not_cached", f"not in the cache {self.cache.folder}", hint=hint)
        return await self._download(example, kept)

    async def _download(self, example: Example, kept: bytes | None) -> _Got:
        url = sources.address(example, self.options.mirror)
        if self.downloader is None:
            self.downloader = Downloader(self.options.limits)
        try:
            etag = self.cache.etag(example.sha256, url) if kept is not None else ""
            answer = await self.downloader.get(url, etag=etag)
        except FetchError as error:
            if error.kind != "not_found":
                raise
            near = ", ".join(_nearest(example, self.index)) or "nothing"
            hint = f"Near to it: {near}. A newer index may know where it is: pip install -U cutesmith"
            said = f"{error.message}; the path has moved or the commit is gone"
            raise FetchError("not_found", said, hint=hint) from error
        if answer.data is None:
            assert kept is not None  # only an ETag of the cache makes a server answer "not modified"
            return _Got(kept, "cached", "the server has not changed it")
        if sha256_of(answer.data) != example.sha256:
            hint = f"Try another --mirror, or fetch it by hand at commit {example.version}."
            raise sources.hash_mismatch(example, url, answer.data, hint=hint)
        return _Got(answer.data, "downloaded", self.cache.put(example.sha256, answer.data, url=url, etag=answer.etag))

    def _write(self, target: Path, got: _Got) -> str:
        """Put the file in its place; returns the state: as got, or "unchanged" when it already stood there."""
        try:
            there = target.read_bytes() if target.is_file() else None
            if there == got.data:
                return "unchanged"
            if there is not None and not self.options.overwrite:
                hint = "Keep it elsewhere, or give --overwrite."
                raise FetchError("exists", f"{target} is there and differs", hint=hint)
            keep_file(target, got.data)
        except OSError as error:
            kind = "disk_full" if error.errno in sources.DISK_FULL else "not_writable"
            hint = "Make room there, or give another folder that you may write with --out."
            raise FetchError(kind, f"{target}: {error.strerror or error}", hint=hint) from error
        return got.state


def _nearest(example: Example, index: Sequence[Example]) -> list[str]:
    """Up to three other examples of the same operation: of its architecture and with a similar name first."""

    def distance(other: Example) -> tuple[bool, float]:
        likeness = SequenceMatcher(None, PurePosixPath(example.path).stem, PurePosixPath(other.path).stem).ratio()
        return not set(other.arch) & set(example.arch), -likeness

    others = [e for e in index if e.operation == example.operation and e.id != example.id]
    return [e.id for e in sorted(others, key=distance)[:3]]


def _siblings(example: Example, text: bytes, by_path: Mapping[tuple[str, str], Example]) -> tuple[str, ...]:
    """Ids of the examples of the same source that `example` imports, sorted; none for packages, which are installed.

    `by_path` maps (source, path) to the records of the index. A module is looked for beside the example and in every
    folder above it, as the examples put those on `sys.path`.
    """
    if example.source == "package" or not example.path.endswith(".py"):
        return ()
    folders = PurePosixPath(example.path).parents
    found = {
        record.id
        for module in _imported(text)
        for folder in folders
        if (record := by_path.get((example.source, (folder / module).as_posix()))) is not None
    }
    return tuple(sorted(found - {example.id}))


def _imported(text: bytes) -> Iterator[PurePosixPath]:
    """The files that the imports may mean, relative to some folder: `a.b` is a/b.py or a/b/__init__.py."""
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            modules = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in statement.names)]
        else:
            continue
        for module in filter(None, modules):
            path = PurePosixPath(*module.split("."))
            yield from (path.with_suffix(".py"), path / "__init__.py")
