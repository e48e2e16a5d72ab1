"""The CuTe DSL examples of a CUTLASS checkout: a work tree; git is asked for its commit where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from cutesmith.errors import UsageError

FOLDER = "examples/python/CuTeDSL"
REPOSITORY = "NVIDIA/cutlass"
SUFFIXES = (".py", ".ipynb")
LEFT_OUT = re.compile(r"(__init__|conftest|test_.*|.*_test)\.py")
"""Files that are no examples: package markers and tests. Everything else with a suffix of SUFFIXES is one."""
COMMIT = re.compile(r"[0-9a-f]{40}")
DROPPED = {"cute", "kernel", "tutorial", "experimental"}  # folders that say nothing in an id


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
    commit = given or _head(checkout)
    if not COMMIT.fullmatch(commit):
        said = f"{commit!r} is no commit of 40 digits" if commit else f"{checkout} is no git work tree"
        raise UsageError(said, hint="Say which commit this is: --commit <40 hexadecimal digits>")
    return commit


def identifiers(paths: Iterable[str]) -> dict[str, str]:
    """Path → id, `cutlass/hopper/dense_gemm_persistent`: short, and where two would be alike the whole path."""
    shorts = {path: _short(path) for path in paths}
    uses = Counter(shorts.values())
    return {path: short if uses[short] == 1 else _long(path) for path, short in shorts.items()}


def _short(path: str) -> str:
    *folders, name = PurePosixPath(path).relative_to(FOLDER).parts
    if "kernel" in folders:  # cute/hopper/kernel/dense_gemm/x.py: the file says what the folder says
        folders = folders[: folders.index("kernel")]
    if "task_scheduling" in folders:
        folders = [folder for folder in folders if folder != "blackwell"]
    kept = [folder for folder in folders if folder not in DROPPED]
    return "/".join(["cutlass", *kept, PurePosixPath(name).stem]).lower()


def _long(path: str) -> str:
    return f"cutlass/{PurePosixPath(path).relative_to(FOLDER)}".lower().replace(".", "_")


def _head(checkout: Path) -> str:
    git = shutil.which("git")
    if not git or not (checkout / ".git").exists():
        return ""
    command = [git, "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
