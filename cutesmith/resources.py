"""Where the texts and data that travel with the package are: references, the example index, scripts, the manifest.

They stand in one of three places: in the wheel (`cutesmith/_content/`), beside the package in an installed skill
(`SKILL.md`, `references/`, …), or beside it in the repository (`skill/cute-dsl-kernels/SKILL.md`, `references/`, …).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cutesmith import __version__
from cutesmith.errors import UnavailableError

PACKAGE = Path(__file__).resolve().parent
SKILL_NAME = "cute-dsl-kernels"
CACHE_VARIABLE = "CUTESMITH_CACHE"
FOLDERS = ("references", "examples_index", "scripts")
REINSTALL = "The installation is not whole: pip install --force-reinstall cutesmith, or install the skill again."


def content_root() -> Path:
    """The folder that holds `references/`, `examples_index/` and `scripts/`; raises UnavailableError."""
    for root in (PACKAGE / "_content", PACKAGE.parent):
        if all((root / name).is_dir() for name in FOLDERS):
            return root
    raise UnavailableError(
        f"no references, examples_index and scripts in {PACKAGE / '_content'} or beside {PACKAGE}", hint=REINSTALL
    )


def folder(name: str) -> Path:
    """One of `FOLDERS`; raises UnavailableError."""
    return content_root() / name


def manifest() -> Path:
    """`SKILL.md`; raises UnavailableError."""
    root = content_root()
    for path in (root / "SKILL.md", root / "skill" / SKILL_NAME / "SKILL.md"):
        if path.is_file():
            return path
    raise UnavailableError(f"no SKILL.md in {root}", hint=REINSTALL)


def tasks() -> Path:
    """The folder of our own tasks (`level1/`, …, `speed/`); raises UnavailableError in an installed skill."""
    for path in (PACKAGE / "_content" / "tasks", PACKAGE.parent / "evals" / "tasks"):
        if path.is_dir():
            return path
    hint = "pip install cutesmith brings them, or name a folder of problem files."
    raise UnavailableError(f"no tasks in {PACKAGE / '_content'} or {PACKAGE.parent / 'evals'}", hint=hint)


def libraries() -> Path:
    """The folder of library functions that compute tasks of ours, beside `tasks()`; raises as it does."""
    return tasks().parent / "libraries"


def licence() -> Path:
    """`LICENSE`, which a wheel keeps with its metadata; raises UnavailableError."""
    metadata = PACKAGE.parent / f"cutesmith-{__version__}.dist-info" / "licenses"
    for path in (content_root() / "LICENSE", metadata / "LICENSE"):
        if path.is_file():
            return path
    raise UnavailableError(f"no LICENSE in {content_root()} or {metadata}", hint=REINSTALL)


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """`$CUTESMITH_CACHE`, else `cutesmith` in the user's cache folder (XDG, LOCALAPPDATA, ~/Library/Caches)."""
    if chosen := environment.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "cutesmith" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "cutesmith"
    xdg = environment.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache") / "cutesmith"
