"""A line's folder: what effects do to it (twice, as after a kill, is once), and what its tools act on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutesmith.agent.outcome import Effect, KeepVersion, WriteFile
from cutesmith.agent.session_state import SessionState
from cutesmith.agent.settings import Settings
from cutesmith.agent.tools.confined_folder import ConfinedFolder, parts_of
from cutesmith.checkpoints import CheckpointStore
from cutesmith.verb_process import Follower, ignore

KERNEL = "kernel.py"


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


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """One line's place of work.

    `folder` is all that the model's file tools reach; `problem` is the judge's own copy, out of their reach; `judged`
    is where snapshots are put that the judge then reads, so that nothing changes under it. `arch` such as "sm_90a",
    also where `settings` name none. `confine_problem`: a model wrote the problem too, so that the judge confines it.
    """

    line: int
    folder: Path
    problem: Path
    judged: Path
    checkpoints: CheckpointStore
    state: SessionState
    arch: str
    settings: Settings = Settings()
    confine_problem: bool = False
    follower: Follower = ignore
