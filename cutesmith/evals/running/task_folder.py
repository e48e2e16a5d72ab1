"""A folder of task files as a suite: every .py file below it, by its path without the ending; nothing is run."""

from __future__ import annotations

import re
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.evals.records import Suite, Task
from cutesmith.evals.running.keys import sha256

LEVEL = re.compile(r"level[ _]?(\d+)$")


def suite_of_folder(folder: Path) -> Suite:
    """The tasks of a folder; `level1/softmax.py` is of level 1. Raises UsageError for a folder without any."""
    files = sorted(path for path in folder.rglob("*.py") if path.is_file() and path.name != "__init__.py")
    if not files:
        raise UsageError(f"--suite {folder}: the folder holds no .py file")
    return Suite(name=folder.resolve().name, tasks=tuple(_task(path, folder) for path in files))


def _task(path: Path, folder: Path) -> Task:
    relative = path.relative_to(folder).with_suffix("")
    levels = [int(found.group(1)) for part in relative.parts if (found := LEVEL.match(part))]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return Task(id=relative.as_posix(), path=path.absolute(), sha256=sha256(data), level=levels[0] if levels else 0)
