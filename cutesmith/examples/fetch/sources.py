"""Where the bytes of an example are: beside the package, in an installed one, in a checkout, or at an address."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from cutesmith import resources
from cutesmith.examples.fetch.cache import sha256_of
from cutesmith.examples.fetch.faults import FetchError
from cutesmith.examples.index.records import Example

GITHUB = "https://raw.githubusercontent.com/NVIDIA/cutlass/{commit}"
EXAMPLES = PurePosixPath("examples/python/CuTeDSL")
"""The folder of CUTLASS from which its examples import one another."""


def safe_path(text: str) -> PurePosixPath:
    """A relative path that leads out of no folder; raises FetchError."""
    path = PurePosixPath(text)
    bad_parts = {"..", "~"} & set(path.parts)
    if not path.parts or path.is_absolute() or bad_parts or any(c in text for c in "\\:\0\n"):
        raise FetchError("unsafe_path", f"{text!r} is no path inside a folder", hint="The index is broken.")
    return path


def destination(example: Example, out: Path) -> Path:
    """Where the example goes below `out`; raises FetchError where a link would lead out of it.

    The folders of its source stay as they are, so that examples of one name do not meet and imports of siblings hold:
    `cutlass/cute/hopper/…`, `quack/softmax.py`, `cutesmith/kernels/…`.
    """
    path = safe_path(example.path)
    if example.source == "cutlass" and path.is_relative_to(EXAMPLES):
        path = "cutlass" / path.relative_to(EXAMPLES)
    elif example.source != "package":
        path = example.source / path
    target = out / path
    if not target.parent.resolve().is_relative_to(out.resolve()):
        raise FetchError(
            "unsafe_path", f"{target.parent} is a link that leads out of {out}", hint="Give another --out."
        )
    return target


def origin(example: Example) -> str:
    """The source in one line: repository, version and path, as a licence notice names it."""
    if example.source == "cutesmith":
        return f"cutesmith {example.path}"
    version = example.version[:12] if example.source == "cutlass" else example.version
    return f"{example.repository}@{version} {example.path}"


def local_file(example: Example) -> Path:
    """The file of one of our own kernels or of an installed package; raises FetchError, UnavailableError."""
    path = safe_path(example.path)
    if example.source == "cutesmith":
        return resources.folder("examples_index") / path
    try:
        return Path(str(importlib.metadata.distribution(example.repository).locate_file(path)))
    except importlib.metadata.PackageNotFoundError as error:
        raise FetchError(
            "not_installed",
            f"{example.id} is a file of the package {example.repository}, which is not installed",
            hint=f"pip install {example.repository}=={example.version}",
        ) from error


def read_local(example: Example, *, any_version: bool = False) -> tuple[bytes, str]:
    """The bytes of a local example, and a note where they are not the index's (`any_version` takes those too)."""
    file = local_file(example)
    data = _read(file, example)
    if sha256_of(data) == example.sha256:
        return data, ""
    if example.source == "package" and any_version:
        return data, f"other than in the index: {_versions(example)}"
    raise _other_version(example, file, data)


def _read(file: Path, example: Example) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        what = _versions(example) if example.source == "package" else "the installation is not whole"
        raise FetchError("not_found", f"no {file}: {what}", hint=_install(example)) from error
    except OSError as error:
        raise FetchError("not_readable", f"{file}: {error.strerror or error}") from error


def _versions(example: Example) -> str:
    installed = importlib.metadata.version(example.repository)
    return f"{example.repository} {installed} is installed, the index knows {example.version}"


def _install(example: Example) -> str:
    if example.source == "package":
        return f"pip install {example.repository}=={example.version}, or take what there is with --any-version"
    return (
        "It was changed here, or the index is older: read it in place, install the skill again, or in a checkout run "
        "scripts/update_examples_index.py --write"
    )


def _other_version(example: Example, file: Path, data: bytes) -> FetchError:
    versions = f" ({_versions(example)})" if example.source == "package" else ""
    return hash_mismatch(example, str(file), data, hint=_install(example), more=versions)


def hash_mismatch(example: Example, where: str, data: bytes, *, hint: str, more: str = "") -> FetchError:
    """The error for bytes that are not the example's: both hashes, nothing kept."""
    return FetchError(
        "hash_mismatch",
        f"{where} is not the file of the index{more}; nothing was kept\n"
        f"  expected sha256 {example.sha256}\n  it has   sha256 {sha256_of(data)}",
        hint=hint,
    )


def mirror_folder(mirror: str) -> Path | None:
    """The folder that `--mirror` names, None when it is an address (or empty); raises FetchError."""
    if not mirror or "://" in mirror:
        return None
    folder = Path(mirror).expanduser()
    if not folder.is_dir():
        raise FetchError(
            "bad_address", f"--mirror {mirror} is no folder", hint="Give a checkout of CUTLASS, or https://…"
        )
    return folder


def address(example: Example, mirror: str) -> str:
    """The address of a CUTLASS example: GitHub's, or below `mirror` (`{commit}` in it is filled in)."""
    base = (mirror or GITHUB).replace("{commit}", quote(example.version, safe=""))
    return f"{base.rstrip('/')}/{quote(str(safe_path(example.path)))}"


def read_mirror(example: Example, folder: Path) -> bytes:
    """The bytes from a local checkout; where they have moved, the error says where to. Raises FetchError."""
    file = folder / safe_path(example.path)
    if not file.resolve().is_relative_to(folder.resolve()):
        raise FetchError("unsafe_path", f"{file} is a link that leads out of {folder}")
    if not file.is_file():
        moved = next(_same_content(example, folder), "")
        hint = f"It is at {moved} there." if moved else _checkout(example, folder)
        raise FetchError("not_found", f"no {example.path} in {folder}", hint=hint)
    data = _read(file, example)
    if sha256_of(data) != example.sha256:
        raise hash_mismatch(example, str(file), data, hint=_checkout(example, folder))
    return data


def _checkout(example: Example, folder: Path) -> str:
    return f"The index knows commit {example.version}: git -C {folder} checkout {example.version[:12]}"


def _same_content(example: Example, folder: Path) -> Iterator[str]:
    """Paths in a checkout whose file has the example's hash, those of its own name first."""
    name = PurePosixPath(example.path).name
    for file in sorted(_sources(folder), key=lambda file: (file.name != name, file)):
        try:
            same = sha256_of(file.read_bytes()) == example.sha256
        except OSError:
            continue
        if same:
            yield file.relative_to(folder).as_posix()


def _sources(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(where) / name for name in names if name.endswith((".py", ".ipynb")))
