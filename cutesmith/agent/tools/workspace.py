"""What effects do to a line's folder; applying one twice, as after a kill, comes to applying it once."""

from __future__ import annotations

from pathlib import Path

from cutesmith.agent.outcome import Effect, KeepVersion, WriteFile
from cutesmith.agent.tools.confined_folder import ConfinedFolder, parts_of
from cutesmith.checkpoints import CheckpointStore


class Workspace:
    """The folder that a line's file tools reach, and the store of what was kept of its kernel."""

    def __init__(self, folder: Path, checkpoints: CheckpointStore) -> None:
        self.folder, self.checkpoints = folder, checkpoints
        self.files = ConfinedFolder(folder)

    def apply(self, effect: Effect, seq: int) -> None:
        """Do what an effect of event number `seq` says: files and versions; all others are the session's.

        A write gives the file its text again. A checkpoint is kept once for its event, whose number is its key in the
        store. Raises OSError or CheckpointError when the disk takes no more, PathError for a path outside the folder.
        """
        if isinstance(effect, WriteFile):
            self.files.write(effect.path, effect.text)
        elif isinstance(effect, KeepVersion):
            store = store_of(effect.path, self.folder, self.checkpoints)
            store.keep(effect.text.encode(), note=effect.note, verdict=effect.verdict, key=f"event {seq}")


def store_of(path: str, folder: Path, checkpoints: CheckpointStore) -> CheckpointStore:
    """The checkpoints of one file of the work folder: files of one name in different folders do not meet.

    A store's folder holds `objects`, `NAME.jsonl` and `NAME.lock`; the stores below it end otherwise, whatever a model
    calls its folders.
    """
    *folders, _ = parts_of(path)
    return CheckpointStore(folder / path, folder=checkpoints.folder.joinpath(*(f"{name}.below" for name in folders)))
