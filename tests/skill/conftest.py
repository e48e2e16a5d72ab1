"""Small stand-ins for the skill's files, and an installed copy of the real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cutesmith.skill import installation
from cutesmith.skill.content import skill_files

FEW = {
    "SKILL.md": "---\nname: cute-dsl-kernels\n---\n",
    "references/faq.md": "# FAQ\n",
    "references/glossary.md": "# Glossary\n",
    "scripts/doctor.py": "print('well')\n",
}


@pytest.fixture
def make_files(tmp_path: Path) -> Callable[..., dict[str, Path]]:
    """A function that writes path → text into a new folder and gives path → file, as `skill_files` does."""

    def make(texts: dict[str, str] | None = None, **changes: str) -> dict[str, Path]:
        texts = {**(texts or FEW), **changes}
        folder = tmp_path / f"source-{len(list(tmp_path.glob('source-*')))}"
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return {name: folder / name for name in sorted(texts)}

    return make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a copy goes; nothing is there yet."""
    return tmp_path / "project/.agents/skills/cute-dsl-kernels"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this package's skill; tests that change it make their own."""
    folder = tmp_path_factory.mktemp("project") / ".claude/skills/cute-dsl-kernels"
    installation.install(folder, skill_files())
    return folder
