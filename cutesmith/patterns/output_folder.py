"""Where a generator run leaves its files: each appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cutesmith.checkpoints import CheckpointStore
from cutesmith.errors import UsageError
from cutesmith.verdicts import Verdict, strict_json

DEFAULT_FOLDER = "cutesmith-out"


class OutputFolder:
    """`kernel.py` (the best so far, with checkpoints), `candidates/`, `result.json`, `report.html`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self.kernel = self.path / "kernel.py"
        self.candidates = self.path / "candidates"
        self._create()
        self.checkpoints = CheckpointStore(self.kernel)
        if self.kernel.exists():  # whoever wrote it must be able to have it back
            self.checkpoints.backup(note="before generate")

    def _create(self) -> None:
        try:
            self.candidates.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be made a folder: {error.strerror}", hint="Give another folder with --out."
            ) from error
        for old in self.candidates.glob("kernel_*.py"):
            old.unlink()

    def write_candidate(self, number: int, source: str) -> Path:
        """`candidates/kernel_NN.py`."""
        path = self.candidates / f"kernel_{number:02d}.py"
        write_atomically(path, source)
        return path

    def keep(self, source: str, verdict: Verdict) -> None:
        """Make this the kernel, and a checkpoint of it with the verdict that held."""
        if not self.kernel.exists() or self.kernel.read_text(encoding="utf-8") != source:
            write_atomically(self.kernel, source)
        self.checkpoints.backup(note=verdict.stage, verdict=verdict.to_dict())

    def write_result(self, result: Mapping[str, Any]) -> None:
        """`result.json`, strict JSON."""
        write_atomically(self.path / "result.json", strict_json(dict(result), indent=1) + "\n")

    def write_report(self, page: str) -> None:
        """`report.html`."""
        write_atomically(self.path / "report.html", page)


def default_folder(problem: str | Path) -> Path:
    """`cutesmith-out/NAME` in the current folder."""
    return Path(DEFAULT_FOLDER) / Path(problem).stem


def write_atomically(path: Path, text: str) -> None:
    """Give the file this content by a temporary one beside it, fsync and rename."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
