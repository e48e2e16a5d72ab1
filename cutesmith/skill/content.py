"""What an installed copy of the skill holds: each file's path in the copy, and where its bytes are now."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cutesmith import __version__, resources
from cutesmith.errors import UnavailableError
from cutesmith.verdicts import strict_json

RECORD = "installation.json"
"""The file of a copy that says what was put there: version, DSL version, and the SHA-256 of every file."""
FORMAT = 1
KEPT_SUFFIX = ".yours"
"""A changed file is kept beside the new one under its name with this at the end."""
DSL = "nvidia-cutlass-dsl"


@dataclass(frozen=True)
class Record:
    """What `installation.json` says: versions of the package and of the DSL, path → SHA-256 of each file."""

    version: str
    dsl_version: str
    files: Mapping[str, str]

    def to_json(self) -> str:
        """The file's text; the same files and versions give the same bytes."""
        fields = {"format": FORMAT, "name": resources.SKILL_NAME, "version": self.version}
        fields |= {"dsl_version": self.dsl_version, "files": dict(sorted(self.files.items()))}
        return json.dumps(json.loads(strict_json(fields)), indent=1) + "\n"


def skill_files() -> dict[str, Path]:
    """Path in the copy (POSIX) → file, sorted by path; raises UnavailableError when the package is not whole.

    Run from an installed copy, these are the files that were installed there.
    """
    root = resources.content_root()
    recorded = read_record(root)
    if recorded:
        return {name: root / name for name in sorted(recorded.files)}
    files = {"SKILL.md": resources.manifest(), "LICENSE": resources.licence()}
    for name in resources.FOLDERS:
        files |= {f"{name}/{path}": root / name / path for path in tree(root / name)}
    files |= {f"cutesmith/{path}": resources.PACKAGE / path for path in tree(resources.PACKAGE)}
    return dict(sorted(files.items()))


def tree(folder: Path) -> Iterator[str]:
    """Paths of the files below a folder (POSIX, relative), without caches and hidden files; links are refused."""
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.name.startswith(".") or entry.name in ("__pycache__", "_content"):
            continue
        if entry.is_symlink():
            raise UnavailableError(f"{entry.path} is a link", hint="A skill has no links: put the file itself there.")
        if entry.is_dir(follow_symlinks=False):
            yield from (f"{entry.name}/{path}" for path in tree(Path(entry.path)))
        elif not entry.name.endswith((".pyc", ".pyo", "~", KEPT_SUFFIX)):
            yield entry.name


def record_of(files: Mapping[str, Path]) -> Record:
    """The record of a copy of these files, for the DSL that is installed here."""
    return Record(__version__, dsl_version(), {name: digest(path) for name, path in files.items()})


def read_record(root: Path) -> Record | None:
    """The record of a copy, or None for a folder that has none that we can read."""
    try:
        fields = json.loads((root / RECORD).read_text(encoding="utf-8"))
        files = {str(name): str(sha) for name, sha in fields["files"].items()}
        parts = (part for name in files for part in name.split("/"))
        leads_out = any(part in ("", ".", "..") or "\\" in part or ":" in part for part in parts)
        if fields["name"] != resources.SKILL_NAME or leads_out:
            return None
        return Record(str(fields["version"]), str(fields["dsl_version"]), files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def dsl_version() -> str:
    """The installed DSL's version, "" without one."""
    try:
        return importlib.metadata.version(DSL)
    except importlib.metadata.PackageNotFoundError:
        return ""


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def mode_of(name: str) -> int:
    """The permissions of a file of the copy: scripts can be run, the rest is read."""
    return 0o755 if name.startswith("scripts/") and name.endswith(".py") else 0o644
