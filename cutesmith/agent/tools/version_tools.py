"""`backup_file`, `revert_file`, `list_checkpoints`: versions that are kept for good, out of the file tools' reach.

Docstrings here are what the model reads.
"""

from __future__ import annotations

import hashlib

from cutesmith.agent.outcome import Effect, KeepVersion, Outcome, WriteFile
from cutesmith.agent.tools.confined_folder import ConfinedFolder
from cutesmith.agent.tools.text_edits import difference
from cutesmith.agent.tools.workspace import KERNEL, Workbench, store_of
from cutesmith.checkpoints import CheckpointStore
from cutesmith.errors import UsageError

MOST_LISTED = 40


class VersionTools:
    """The checkpoints of one line of work."""

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench
        self.files = ConfinedFolder(workbench.folder)

    async def backup_file(self, note: str, path: str = KERNEL) -> Outcome:
        """Keep a file as it is now, for good. Use it before a risky change and for a version that works in part.

        Versions that pass verify_kernel are kept without it.

        Args:
            note: one line that says what this version is and why it is worth keeping.
            path: relative to the work folder.
        """
        text, store = self.files.read(path), self._store(path)
        number = len(store.checkpoints()) + 1
        return Outcome(text=f"{path} is kept as checkpoint {number}", effects=(KeepVersion(path, text, note, {}),))

    async def revert_file(self, version: str, path: str = KERNEL) -> Outcome:
        """Put a kept version back. Use it when a change made things worse. What the file holds now is kept first.

        Args:
            version: the number that list_checkpoints gives, or at least four characters of the hash.
            path: relative to the work folder.
        """
        current, store = self.files.read_or_none(path), self._store(path)
        kept = store.checkpoints()
        version = version.strip().removeprefix("#")
        try:
            wanted = store.find(version)
        except UsageError as error:
            hint = f"list_checkpoints with path {path} shows them."
            raise UsageError(f"{path} has no checkpoint {version!r}, or more than one", hint=hint) from error
        text = store.read(wanted).decode()
        if text == current:
            return Outcome(text=f"{path} is checkpoint {wanted.number} already")
        self.files.require_writable(path, text)
        effects: list[Effect] = [WriteFile(path, text)]
        told = f"{path} is checkpoint {wanted.number} again ({wanted.note or 'no note'})"
        hashes = [checkpoint.hash for checkpoint in kept]
        if current is not None and hashlib.sha256(current.encode()).hexdigest() not in hashes:
            effects.insert(0, KeepVersion(path, current, f"before the return to {wanted.number}", {}))
            told += f"; what it held is kept as checkpoint {len(kept) + 1}"
        return Outcome(text=f"{told}: {difference(current or '', text, path)}", effects=tuple(effects))

    async def list_checkpoints(self, path: str = KERNEL) -> Outcome:
        """List the kept versions of a file: number, time, hash, status, median time, note. revert_file puts one back.

        Args:
            path: relative to the work folder.
        """
        kept = self._store(path).checkpoints()
        if not kept:
            return Outcome(
                text=f"{path} has no checkpoints yet: verify_kernel makes one on a pass, backup_file any time"
            )
        shown = kept[-MOST_LISTED:]
        left = f"; the newest {MOST_LISTED} are shown" if len(kept) > MOST_LISTED else ""
        lines = [f"{len(kept)} checkpoints of {path}{left} (number, UTC, hash, status, median, note):"]
        for version in shown:  # each with the latest that is known of its text
            judged = self.workbench.state.kernels.get(version.hash)
            status = (judged.state if judged else "") or str(version.verdict.get("status", "not verified"))
            median = (judged.median_us if judged else None) or version.verdict.get("median_us")
            time = f"{median:.2f} µs" if isinstance(median, (int, float)) else "not timed"
            note = " ".join(version.note.split())  # one line, that it passes for no other
            told = f"{version.number:>3}  {version.time[11:19]}  {version.hash[:8]}  {status}, {time}  {note}"
            lines.append(told.rstrip())
        return Outcome(text="\n".join(lines))

    def _store(self, path: str) -> CheckpointStore:
        return store_of(path, self.workbench.folder, self.workbench.checkpoints)
