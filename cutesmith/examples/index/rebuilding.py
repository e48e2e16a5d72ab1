"""The index made anew: from our own kernels, from installed packages and, where one is given, from a checkout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from cutesmith.errors import CutesmithError
from cutesmith.examples.index import checkout as cutlass
from cutesmith.examples.index import curation, features, kernels, packages
from cutesmith.examples.index.reading import Source, read_source
from cutesmith.examples.index.records import FILE, Example, read_index

T = TypeVar("T")


@dataclass(frozen=True)
class Rebuilt:
    """The records that could be made, and a sentence for each file that could not be read or described."""

    examples: tuple[Example, ...]
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was not looked at


def current(root: Path) -> tuple[Example, ...]:
    """The records that stand in `root`, none where there is no index yet."""
    file = root / FILE
    return read_index(file) if file.is_file() else ()


def rebuild(root: Path, checkout: Path | None = None, commit: str | None = None) -> Rebuilt:
    """Every record, sorted by id. Without a checkout, CUTLASS's keep their facts and get their words anew.

    Raises UsageError where the checkout has no examples or its commit is not known.
    """
    standing = current(root)
    theirs = from_checkout(root, checkout, commit, standing) if checkout else recurated(root, standing)
    parts = (theirs, own(root), packaged(root, standing))
    examples = sorted((example for part in parts for example in part.examples), key=lambda example: example.id)
    faults = tuple(fault for part in parts for fault in part.faults)
    return Rebuilt(tuple(examples), faults, tuple(note for part in parts for note in part.notes))


def own(root: Path) -> Rebuilt:
    """The kernels in `root/kernels`."""

    notes: list[str] = []

    def record(file: Path) -> Example:
        source = read_source(file, file.relative_to(root).as_posix())
        notes.extend(f"{source.path}: the vocabulary has no feature {word!r}" for word in kernels.unknown_words(source))
        return kernels.described(source, file)

    built = _collected(kernels.kernel_files(root), record)
    return Rebuilt(built.examples, built.faults, tuple(notes))


def packaged(root: Path, standing: Sequence[Example], known: Sequence[packages.Package] = packages.PACKAGES) -> Rebuilt:
    """The modules that the curation describes; those of packages that are not installed stay as they are."""
    entries = curation.read_curation(root, "package")
    absent = [p for p in known if packages.installed(p.distribution) is None]
    kept = tuple(e for e in standing if e.source == "package" and e.repository in {p.distribution for p in absent})
    built = _collected(
        (entry for entry in entries.values() if packages.package_of(entry.path, known) not in absent), _package_record
    )
    notes = tuple(f"{package.distribution} is not installed: its records were not compared" for package in absent)
    return Rebuilt((*kept, *built.examples), built.faults, notes)


def from_checkout(root: Path, checkout: Path, commit: str | None, standing: Sequence[Example]) -> Rebuilt:
    """The examples of a CUTLASS checkout; a file that cannot be read keeps the record that it had."""
    entries = curation.read_curation(root, "cutlass")
    version = cutlass.commit_of(checkout, commit)
    files = dict(cutlass.example_files(checkout))
    names = cutlass.identifiers(files)

    def record(path: str) -> Example:
        source = read_source(files[path], path)
        return _joined(_cutlass_facts(source, names[path], version), entries)

    built = _collected(files, record)
    unread = files.keys() - {example.path for example in built.examples}
    kept = tuple(e for e in standing if e.source == "cutlass" and e.path in unread)
    return Rebuilt((*built.examples, *kept), built.faults)


def recurated(root: Path, standing: Sequence[Example]) -> Rebuilt:
    """The CUTLASS records as they stand, with the words that the curation has now."""
    entries = curation.read_curation(root, "cutlass")
    return _collected((e for e in standing if e.source == "cutlass"), lambda example: _joined(example, entries))


def facts(source: Source, *, id: str, kind: str, repository: str, version: str, licence: str) -> Example:
    """A record with everything that can be read off the source, and no words yet."""
    found = features.features(source)
    return Example(
        id=id,
        title=PurePosixPath(source.path).stem.replace("_", " "),
        operation="",
        arch=features.archs(source, found),
        dtypes=features.dtypes(source),
        features=found,
        source=kind,
        repository=repository,
        version=version,
        path=source.path,
        sha256=source.sha256,
        lines=source.lines,
        summary="",
        lesson="",
        symbols=features.symbols(source),
        licence=source.licence or licence,
    )


def _cutlass_facts(source: Source, name: str, version: str) -> Example:
    return facts(
        source, id=name, kind="cutlass", repository=cutlass.REPOSITORY, version=version, licence="BSD-3-Clause"
    )


def _package_record(entry: curation.Entry) -> Example:
    package = packages.package_of(entry.path)
    source = packages.read_module(entry.path, package) if package else None
    if package is None or source is None:
        raise FileNotFoundError(f"{entry.path}: curation describes it, no installed package has it")
    record = facts(
        source,
        id=packages.identifier(entry.path, package),
        kind="package",
        repository=package.distribution,
        version=packages.version(package),
        licence=package.licence,
    )
    return entry.applied(record)


def _joined(example: Example, entries: dict[str, curation.Entry]) -> Example:
    entry = entries.get(example.path)
    return entry.applied(example) if entry else example


def _collected(items: Iterable[T], record: Callable[[T], Example]) -> Rebuilt:
    examples, faults = [], []
    for item in items:
        try:
            examples.append(record(item))
        except (CutesmithError, OSError) as error:
            faults.append(str(error).splitlines()[0])
    return Rebuilt(tuple(examples), tuple(faults))
