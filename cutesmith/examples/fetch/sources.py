"""Where the bytes of an example are: in this package, an installed one, a checkout, the cache, or at an address.

The bytes count only with the sha256 of the index. A file is written whole or not at all. What fails is a `FetchError`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.metadata
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from cutesmith import resources
from cutesmith.checkpoints import write_atomically
from cutesmith.errors import CutesmithError
from cutesmith.examples.index.records import Example
from cutesmith.verdicts import ExitCode

GITHUB = "https://raw.githubusercontent.com/{repository}/{commit}"
EXAMPLES = PurePosixPath("examples/python/CuTeDSL")
"""The folder of CUTLASS from which its examples import one another."""
_STALE_SECONDS = 3600.0
KINDS = {
    "hash_mismatch": ExitCode.WRONG_RESULT,
    "too_large": ExitCode.WRONG_RESULT,
    "exists": ExitCode.USAGE,
    "unsafe_path": ExitCode.USAGE,
    "bad_address": ExitCode.USAGE,
    "timed_out": ExitCode.TIMED_OUT,
    "not_found": ExitCode.UNAVAILABLE,
    "no_network": ExitCode.UNAVAILABLE,
    "broken_off": ExitCode.UNAVAILABLE,
    "server": ExitCode.UNAVAILABLE,
    "not_cached": ExitCode.UNAVAILABLE,
    "not_installed": ExitCode.UNAVAILABLE,
    "disk_full": ExitCode.UNAVAILABLE,
    "not_writable": ExitCode.UNAVAILABLE,
    "not_readable": ExitCode.UNAVAILABLE,
}
"""Every kind of `FetchError` with its exit code: 1 what came is not the example, 6 timed out, 7 not from here."""

DISK_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG}


class FetchError(CutesmithError):
    """An example could not be brought; `kind` is of `KINDS`.

    `retry` says that another attempt may help, `wait` after how many seconds (None: as the back-off says).
    """

    def __init__(
        self, kind: str, message: str, *, hint: str = "", retry: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.exit_code = KINDS[kind]
        self.retry = retry
        self.wait = wait


def sha256_of(data: bytes) -> str:
    """The hash of some bytes, as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def keep_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` whole or not at all, also when killed; makes the folder. Raises OSError.

    A process that is killed may leave a temporary file (`.NAME….tmp`); the next write there removes it after an hour.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(".*.tmp"):  # as write_atomically names them
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                left.unlink()
    write_atomically(path, data)


class Cache:
    """Downloaded files by content: `examples/<sha256>`, and beside each the ETag of the address it came from."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or resources.cache_folder()) / "examples"

    def get(self, sha256: str) -> bytes | None:
        """The bytes with that hash; None when they are not there, cannot be read, or were changed on disk."""
        try:
            data = self._file(sha256).read_bytes()
        except OSError:
            return None
        return data if sha256_of(data) == sha256 else None

    def etag(self, sha256: str, url: str) -> str:
        """The ETag under which `url` gave these bytes, "" when it is not known."""
        try:
            known = json.loads(self._file(sha256).with_suffix(".json").read_text(encoding="utf-8"))
            return str(known["etag"]) if known["url"] == url else ""
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    def put(self, sha256: str, data: bytes, *, url: str, etag: str) -> str:
        """Keep the bytes; returns "", or why they could not be kept (the example is fetched all the same)."""
        try:
            keep_file(self._file(sha256), data)
            keep_file(self._file(sha256).with_suffix(".json"), json.dumps({"url": url, "etag": etag}).encode())
        except OSError as error:
            return f"not kept in the cache {self.folder}: {error.strerror or error}"
        return ""

    def _file(self, sha256: str) -> Path:
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise FetchError("unsafe_path", f"{sha256!r} is not a sha256", hint="The index is damaged: reinstall it.")
        return self.folder / sha256


def safe_path(text: str) -> PurePosixPath:
    """A relative path that leads out of no folder; raises FetchError."""
    path = PurePosixPath(text)
    bad_parts = {"..", "~"} & set(path.parts)
    if not path.parts or path.is_absolute() or bad_parts or any(c in text for c in "\\:\0\n"):
        raise FetchError("unsafe_path", f"{text!r} is not a path inside a folder", hint="The index is broken.")
    return path


def destination(example: Example, out: Path) -> Path:
    """Where the example goes below `out`; raises FetchError where a link would lead out of it.

    The folders of its source stay as they are, so that examples of one name do not meet and imports of siblings hold:
    `cutlass/cute/hopper/…`, `quack/softmax.py`, `flash_attn/cute/…`, `cutesmith/kernels/…`.
    """
    path = safe_path(example.path)
    if example.source == "cutlass" and path.is_relative_to(EXAMPLES):
        path = "cutlass" / path.relative_to(EXAMPLES)
    elif example.source in ("cutesmith", "cutlass"):
        path = example.source / path
    target = out / path
    if not target.parent.resolve().is_relative_to(out.resolve()):
        said = f"{target.parent} is a link that leads out of {out}"
        raise FetchError("unsafe_path", said, hint="Give another --out.")
    return target


def origin(example: Example) -> str:
    """The source in one line: repository, version and path, as a licence notice names it."""
    if example.source == "cutesmith":
        return f"cutesmith {example.path}"
    version = example.version[:12] if example.from_github else example.version
    return f"{example.repository}@{version} {example.path}"


def read_local(example: Example, *, any_version: bool = False) -> tuple[bytes, str]:
    """The bytes of one of our own kernels or of a file of an installed package, and a note.

    The note says where they are not the index's (`any_version` takes those of a package too). Raises FetchError.
    """
    path, versions = safe_path(example.path), ""
    if example.source == "cutesmith":
        file = resources.folder("examples_index") / path
        hint = "It was changed here, or the index is older: read it in place, install the skill again, or in a checkout"
        hint += " run scripts/update_examples_index.py --write"
    else:
        install = f"pip install {example.repository}=={example.version}"
        try:
            distribution = importlib.metadata.distribution(example.repository)
        except importlib.metadata.PackageNotFoundError as error:
            said = f"{example.id} is a file of the package {example.repository}, which is not installed"
            raise FetchError("not_installed", said, hint=install) from error
        file = Path(str(distribution.locate_file(path)))
        versions = f"{example.repository} {distribution.version} is installed, the index knows {example.version}"
        hint = f"{install}, or take what there is with --any-version"
    if not file.is_file():
        raise FetchError("not_found", f"no {file}: {versions or 'the installation is not whole'}", hint=hint)
    data = _read(file)
    if sha256_of(data) == example.sha256:
        return data, ""
    if versions and any_version:
        return data, f"other than in the index: {versions}"
    raise hash_mismatch(example, f"{file} ({versions})" if versions else str(file), data, hint=hint)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise FetchError("not_readable", f"{file}: {error.strerror or error}") from error


def hash_mismatch(example: Example, where: str, data: bytes, *, hint: str) -> FetchError:
    """The error for bytes that are not the example's: both hashes, nothing kept."""
    expected = f"{where} is not the file of the index; nothing was kept\n  expected sha256 {example.sha256}"
    return FetchError("hash_mismatch", f"{expected}\n  it has   sha256 {sha256_of(data)}", hint=hint)


def mirror_folder(mirror: str) -> Path | None:
    """The folder that `--mirror` names, None when it is an address (or empty); raises FetchError."""
    if not mirror or "://" in mirror:
        return None
    folder = Path(mirror).expanduser()
    if not folder.is_dir():
        hint = "Give a checkout of the example's repository, or https://…"
        raise FetchError("bad_address", f"--mirror {mirror} is not a folder", hint=hint)
    return folder


def address(example: Example, mirror: str) -> str:
    """The address of an example: GitHub's, or below `mirror` (`{commit}` and `{repository}` in it are filled in)."""
    base = (mirror or GITHUB).replace("{commit}", quote(example.version, safe=""))
    base = base.replace("{repository}", quote(example.repository))
    return f"{base.rstrip('/')}/{quote(str(safe_path(example.path)))}"


def read_mirror(example: Example, folder: Path) -> bytes:
    """The bytes from a local checkout; where they have moved, the error says where to. Raises FetchError."""
    file = folder / safe_path(example.path)
    if not file.resolve().is_relative_to(folder.resolve()):
        raise FetchError("unsafe_path", f"{file} is a link that leads out of {folder}")
    hint = f"The index knows commit {example.version}: git -C {folder} checkout {example.version[:12]}"
    if not file.is_file():
        moved = next(_same_content(example, folder), "")
        raise FetchError(
            "not_found", f"no {example.path} in {folder}", hint=f"It is at {moved} there." if moved else hint
        )
    data = _read(file)
    if sha256_of(data) != example.sha256:
        raise hash_mismatch(example, str(file), data, hint=hint)
    return data


def _same_content(example: Example, folder: Path) -> Iterator[str]:
    """Paths in a checkout whose file has the example's hash, those of its own name first."""
    found: list[Path] = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += (Path(where) / name for name in names if name.endswith((".py", ".ipynb")))
    for file in sorted(found, key=lambda file: (file.name != PurePosixPath(example.path).name, file)):
        with contextlib.suppress(OSError):
            if sha256_of(file.read_bytes()) == example.sha256:
                yield file.relative_to(folder).as_posix()
