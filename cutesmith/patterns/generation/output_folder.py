"""Where a generator run leaves its files: each appears whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cutesmith.checkpoints import CheckpointStore, write_atomically
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
        if self.kernel.exists():  # its author can have it back
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
        write_atomically(path, source.encode())
        return path

    def keep(self, source: str, verdict: Verdict) -> None:
        """Make this the kernel, and a checkpoint of it with the verdict that held."""
        if not self.kernel.exists() or self.kernel.read_text(encoding="utf-8") != source:
            write_atomically(self.kernel, source.encode())
        self.checkpoints.backup(note=verdict.stage, verdict=verdict.to_dict())

    def write_result(self, result: Mapping[str, Any]) -> None:
        """`result.json`, strict JSON."""
        write_atomically(self.path / "result.json", (strict_json(dict(result), indent=1) + "\n").encode())

    def write_report(self, page: str) -> None:
        """`report.html`."""
        write_atomically(self.path / "report.html", page.encode())


def default_folder(problem: str | Path) -> Path:
    """`cutesmith-out/NAME` in the current folder."""
    return Path(DEFAULT_FOLDER) / Path(problem).stem
