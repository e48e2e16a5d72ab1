"""An installed copy of this package's skill."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutesmith.skill import installation
from cutesmith.skill.content import skill_files


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy's folder; tests that change it make their own."""
    folder = tmp_path_factory.mktemp("project") / ".claude/skills/cute-dsl-kernels"
    installation.install(folder, skill_files())
    return folder
