"""The index, built again from our own kernels, from installed packages and from checkouts, where they are given.

A checkout is a work tree of CUTLASS or of a repository in `libraries.py`; git is asked for its commit where there is
one. Our own kernels, `examples_index/kernels/*.py`, meet the contract, and each describes itself in its docstring:

What it is, one sentence.

Shows … (what a reader learns).

Arch: sm_80+
Operation: softmax
Features: vectorized_copy, warp_shuffle
Start here when …
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import TypeVar

from cutesmith.errors import CutesmithError, UsageError
from cutesmith.examples.index.curation import Entry, read_curation
from cutesmith.examples.index.features import Source, facts, in_order, read_source
from cutesmith.examples.index.libraries import (
    PACKAGES,
    REPOSITORIES,
    Library,
    identifier,
    library_of,
    repository_in,
)
from cutesmith.examples.index.records import FILE, Example, read_index
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS, canonical
from cutesmith.problems import contract

T = TypeVar("T")

FOLDER = "examples/python/CuTeDSL"
"""The folder of CUTLASS that holds its CuTe DSL examples."""
SUFFIXES = (".py", ".ipynb")
LEFT_OUT = re.compile(r"(__init__|conftest|test_.*|.*_test)\.py")
"""Files that are not examples: package markers and tests. Everything else with a suffix of SUFFIXES is one."""
COMMIT = re.compile(r"[0-9a-f]{40}")
FIELD = re.compile(r"^(Arch|Operation|Features):\s*(.+)$", re.MULTILINE)
START = re.compile(r"^Start here .*", re.MULTILINE | re.DOTALL)
NEAREST = {"activation": "elementwise", "normalize": "reduction"}  # what docstrings say → the nearest operation
SENTENCE = re.compile(r"(?<=[.!?])\s")
DROPPED = {"cute", "kernel", "tutorial", "experimental"}  # folders that say nothing in an id


@dataclass(frozen=True)
class Rebuilt:
    """The records that could be made, and a sentence for each file that could not be read or described."""

    examples: tuple[Example, ...]
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was not looked at


def read_current(root: Path) -> tuple[Example, ...]:
    """The records that stand in `root`, none where there is no index yet."""
    file = root / FILE
    return read_index(file) if file.is_file() else ()


def rebuild(root: Path, checkouts: Sequence[Path] = (), commit: str | None = None) -> Rebuilt:
    """Every record, sorted by id. Those without a checkout keep their facts and get the words of the curation.

    Raises UsageError where a checkout has no examples or its commit is not known.
    """
    current = read_current(root)
    libraries = {library: checkout for checkout in checkouts if (library := repository_in(checkout))}
    others = [checkout for checkout in checkouts if checkout not in libraries.values()]
    if len(others) > 1:
        known = f"of CUTLASS or of {', '.join(library.name for library in REPOSITORIES)}"
        raise UsageError(f"{others[1]} is not a second checkout {known}", hint="Give each repository once")
    cutlass = from_cutlass(root, others[0] if others else None, commit, current)
    parts = (cutlass, own(root), packaged(root, current), from_repositories(root, libraries, commit, current))
    examples = sorted((example for part in parts for example in part.examples), key=lambda example: example.id)
    faults = tuple(fault for part in parts for fault in part.faults)
    return Rebuilt(tuple(examples), faults, tuple(note for part in parts for note in part.notes))


def own(root: Path) -> Rebuilt:
    """The kernels in `root/kernels`."""
    notes: list[str] = []

    def record(file: Path) -> Example:
        source = read_source(file, file.relative_to(root).as_posix())
        example, unknown = described(source, file)
        notes.extend(f"{source.path}: the vocabulary has no feature {word!r}" for word in unknown)
        return example

    files = (file for file in sorted((root / "kernels").glob("*.py")) if file.name != "__init__.py")
    examples, faults = _collected(files, record)
    return Rebuilt(examples, faults, tuple(notes))


def described(source: Source, file: Path) -> tuple[Example, list[str]]:
    """The record of one kernel, with facts from its code and words from its docstring.

    Beside it are the words of `Features:` that the vocabulary has neither as a name nor as a synonym. Raises
    ContractError where the file is not a kernel file, UsageError where the docstring lacks a field or names no known
    operation or arch.
    """
    contract.inspect_kernel(file)
    fields = dict(FIELD.findall(source.docstring))
    for name in ("Operation", "Arch"):
        if name not in fields:
            said = f"{source.path}: its docstring has no line `{name}: …`"
            raise UsageError(said, hint="See examples/index/rebuilding.py")
    word = fields["Operation"].strip(" .")
    operation = canonical(NEAREST.get(word, word), OPERATIONS)
    if operation is None:
        hint = "Operations are listed in cutesmith/examples/vocabulary.py"
        raise UsageError(f"{source.path}: no operation {word!r}", hint=hint)
    archs = {part.strip(" .+") for part in fields["Arch"].split(",")}
    if unknown := sorted(archs - ARCHS.keys()):
        raise UsageError(f"{source.path}: no arch {unknown}", hint=f"One of {', '.join(ARCHS)}")
    words = {word for part in fields.get("Features", "").split(",") if (word := part.strip(" ."))}
    named = {word: canonical(word, FEATURES) for word in words - DTYPES.keys()}
    read = facts(source, id=f"cutesmith/{file.stem}", kind="cutesmith", repository="", version="", licence="Apache-2.0")
    example = replace(
        read,
        operation=operation,
        arch=in_order(archs, ARCHS),
        dtypes=in_order({*read.dtypes, *(words & DTYPES.keys())}, DTYPES),
        features=in_order({*read.features, *filter(None, named.values())}, FEATURES),
        summary=_first_sentence(source.docstring),
        lesson=_lesson(source),
        meets_contract=True,
    )
    return example, sorted(word for word, name in named.items() if name is None)


def _lesson(source: Source) -> str:
    """The first sentence of the second paragraph, and the sentence that says when to start here."""
    paragraphs = source.docstring.split("\n\n")
    start = START.search(source.docstring)
    if len(paragraphs) < 2 or start is None:
        raise UsageError(f"{source.path}: its docstring lacks what it shows, or `Start here when …`", hint="Add it")
    return f"{_first_sentence(paragraphs[1])} {_first_sentence(start.group())}"


def _first_sentence(text: str) -> str:
    return SENTENCE.split(" ".join(text.split()), maxsplit=1)[0]


def packaged(root: Path, current: Sequence[Example], known: Sequence[Library] = PACKAGES) -> Rebuilt:
    """The modules that the curation describes; those of packages that are not installed stay as they are."""

    def record(entry: Entry) -> Example:
        package = library_of(entry.path, known)
        file = _located(entry.path, package) if package else None
        if package is None or file is None:
            raise FileNotFoundError(f"{entry.path}: curation describes it, no installed package has it")
        name, found = package.name, _installed(package.name)
        read = facts(
            read_source(file, entry.path),
            id=identifier(entry.path, package),
            kind="package",
            repository=name,
            version=found.version if found else "",
            licence=package.licence,
        )
        return entry.applied(read)

    absent = [package for package in known if _installed(package.name) is None]
    names = [package.name for package in absent]
    kept = tuple(e for e in current if e.source == "package" and e.repository in names)
    entries = read_curation(root, "package").values()
    examples, faults = _collected((e for e in entries if library_of(e.path, known) not in absent), record)
    notes = tuple(f"{name} is not installed: its records were not compared" for name in names)
    return Rebuilt((*kept, *examples), faults, notes)


def from_cutlass(root: Path, checkout: Path | None, commit: str | None, current: Sequence[Example]) -> Rebuilt:
    """The examples of a CUTLASS checkout, with the words of the curation.

    A file that cannot be read keeps the record that it had; without a checkout all do.
    """
    entries = read_curation(root, "cutlass")

    def joined(example: Example) -> Example:
        entry = entries.get(example.path)
        return entry.applied(example) if entry else example

    before = [example for example in current if example.source == "cutlass"]
    if checkout is None:
        return Rebuilt(*_collected(before, joined))
    version = commit_of(checkout, commit)
    files = dict(example_files(checkout))
    names = identifiers(files)

    def record(path: str) -> Example:
        source, licence = read_source(files[path], path), "BSD-3-Clause"
        about = {"kind": "cutlass", "repository": "NVIDIA/cutlass", "version": version, "licence": licence}
        return joined(facts(source, id=names[path], **about))

    examples, faults = _collected(files, record)
    unread = files.keys() - {example.path for example in examples}
    return Rebuilt((*examples, *(example for example in before if example.path in unread)), faults)


def from_repositories(
    root: Path, checkouts: Mapping[Library, Path], commit: str | None, current: Sequence[Example]
) -> Rebuilt:
    """The modules of other repositories that the curation describes; those without a checkout keep their facts."""
    before = {example.path: example for example in current if example.source == "repository"}
    versions = {library: commit_of(checkout, commit) for library, checkout in checkouts.items()}

    def record(entry: Entry) -> Example:
        library = library_of(entry.path, REPOSITORIES)
        if library is not None and library in checkouts:
            file = checkouts[library] / entry.path
            if not file.is_file():
                raise FileNotFoundError(f"{entry.path}: curation describes it, the checkout does not have it")
            about = {"kind": "repository", "repository": library.name, "version": versions[library]}
            about |= {"id": identifier(entry.path, library), "licence": library.licence}
            return entry.applied(facts(read_source(file, entry.path), **about))
        if entry.path not in before:
            raise FileNotFoundError(f"{entry.path}: curation describes it; give a --checkout of its repository")
        return entry.applied(before[entry.path])

    examples, faults = _collected(read_curation(root, "repository").values(), record)
    return Rebuilt(examples, faults)


def _collected(items: Iterable[T], record: Callable[[T], Example]) -> tuple[tuple[Example, ...], tuple[str, ...]]:
    examples, faults = [], []
    for item in items:
        try:
            examples.append(record(item))
        except (CutesmithError, OSError) as error:
            faults.append(str(error).splitlines()[0])
    return tuple(examples), tuple(faults)


def example_files(checkout: Path) -> Iterator[tuple[str, Path]]:
    """(path from the repository's root, file) of every example, sorted; raises UsageError where there is none."""
    folder = checkout / FOLDER
    if not folder.is_dir():
        hint = "Give the repository's root: git clone --depth 1 https://github.com/NVIDIA/cutlass"
        raise UsageError(f"{checkout} has no {FOLDER}", hint=hint)
    for file in sorted(folder.rglob("*")):
        if file.suffix in SUFFIXES and file.is_file() and not LEFT_OUT.fullmatch(file.name):
            yield file.relative_to(checkout).as_posix(), file


def commit_of(checkout: Path, given: str | None) -> str:
    """The commit (40 hexadecimal digits) of a checkout: as given, else as git says; raises UsageError."""
    commit, git = given or "", shutil.which("git")
    if not commit and git and (checkout / ".git").exists():
        command = [git, "-C", str(checkout), "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if not COMMIT.fullmatch(commit):
        said = f"{commit!r} is not a commit of 40 digits" if commit else f"{checkout} is not a git work tree"
        raise UsageError(said, hint="Say which commit this is: --commit <40 hexadecimal digits>")
    return commit


def identifiers(paths: Iterable[str]) -> dict[str, str]:
    """Path → id, `cutlass/hopper/dense_gemm_persistent`: short, and where two would be the same the whole path."""
    shorts = {path: _short(path) for path in paths}
    uses = Counter(shorts.values())
    whole = {path: f"cutlass/{PurePosixPath(path).relative_to(FOLDER)}".lower().replace(".", "_") for path in shorts}
    return {path: short if uses[short] == 1 else whole[path] for path, short in shorts.items()}


def _short(path: str) -> str:
    *folders, name = PurePosixPath(path).relative_to(FOLDER).parts
    if "kernel" in folders:  # cute/hopper/kernel/dense_gemm/x.py: the file says what the folder says
        folders = folders[: folders.index("kernel")]
    if "task_scheduling" in folders:
        folders = [folder for folder in folders if folder != "blackwell"]
    kept = [folder for folder in folders if folder not in DROPPED]
    return "/".join(["cutlass", *kept, PurePosixPath(name).stem]).lower()


def undescribed(described: set[str]) -> list[str]:
    """Modules of the installed packages that launch kernels and that no curation entry describes, sorted."""
    listed = ((package, _installed(package.name)) for package in PACKAGES)
    paths = {file.as_posix(): package for package, found in listed for file in (found and found.files) or ()}
    own = {path: package for path, package in paths.items() if library_of(path, PACKAGES) == package}
    modules = {path: package for path, package in own.items() if path.endswith(".py")}
    files = {path: _located(path, package) for path, package in modules.items() if path not in described}
    return sorted(path for path, file in files.items() if file and "@cute.kernel" in file.read_text(encoding="utf-8"))


@cache
def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _located(path: str, package: Library) -> Path | None:
    """The installed file of a path, or None where the package or the file is not there."""
    found = _installed(package.name)
    file = Path(str(found.locate_file(path))) if found else None
    return file if file and file.is_file() else None
