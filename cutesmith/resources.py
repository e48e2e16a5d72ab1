"""Where the texts and data that travel with the package are: references, the example index, scripts, the manifest.

They stand in one of three places: in the wheel (`cutesmith/_content/`), beside the package in an installed skill
(`SKILL.md`, `references/`, …), or beside it in the repository (`skill/cute-dsl-kernels/SKILL.md`, `references/`, …).
"""

from __future__ import annotations

from pathlib import Path

from cutesmith.errors import UnavailableError

PACKAGE = Path(__file__).resolve().parent
SKILL_NAME = "cute-dsl-kernels"
FOLDERS = ("references", "examples_index", "scripts")


def content_root() -> Path:
    """The folder that holds `references/`, `examples_index/` and `scripts/`; raises UnavailableError."""
    for root in (PACKAGE / "_content", PACKAGE.parent):
        if all((root / name).is_dir() for name in FOLDERS):
            return root
    raise UnavailableError(
        f"no references, examples_index and scripts in {PACKAGE / '_content'} or beside {PACKAGE}",
        hint="The installation is not whole: pip install --force-reinstall cutesmith",
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
    raise UnavailableError(f"no SKILL.md in {root}", hint="pip install --force-reinstall cutesmith")
