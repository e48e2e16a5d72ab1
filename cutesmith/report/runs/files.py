"""Pages and tables on the disk: each whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cutesmith.checkpoints import write_atomically
from cutesmith.errors import UsageError


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write every text as UTF-8, folders on the way made; raises UsageError for what the disk does not take."""
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode("utf-8", "replace"))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", hint="Name another place: --out") from error
