"""`view_file`, `create_file`, `edit_file`: the work folder's files. Docstrings here are what the model reads."""

from __future__ import annotations

from cutesmith.agent.outcome import Outcome, WriteFile
from cutesmith.agent.texts.bounded_text import bounded
from cutesmith.agent.tools.confined_folder import MAX_BYTES, MAX_FILES, ConfinedFolder
from cutesmith.agent.tools.text_edits import LEFT_OUT, VIEW_CHARACTERS, difference, near_misses, numbered, occurrences
from cutesmith.agent.tools.workspace import Workbench
from cutesmith.errors import UsageError

SHOWN_OCCURRENCES = 20
SHOWN_REPLACEMENT = 24  # lines of a difference that create_file shows


def _replaced(old: str, new: str, path: str) -> str:
    """The difference where it is short; of a long one how many lines changed: the model has just written them."""
    whole = difference(old, new, path)
    return whole if len(whole.splitlines()) <= SHOWN_REPLACEMENT else whole.partition("\n")[0]


class FileTools:
    """Files of one work folder; what changes them is an effect."""

    def __init__(self, workbench: Workbench) -> None:
        self.files = ConfinedFolder(workbench.folder)

    async def view_file(self, path: str = ".", first_line: int = 1, last_line: int = 0) -> Outcome:
        """Show a file of the work folder with line numbers, or list a folder. Call it before edit_file.

        A long file is shown from both ends: page through it with first_line and last_line. Numbers and the two spaces
        after them are not part of the file.

        Args:
            path: relative to the work folder, such as kernel.py; "." lists the folder.
            first_line: the first line to show, from 1.
            last_line: the last line to show; 0 for the end of the file.
        """
        if self.files.is_folder(path):
            entries = self.files.entries(path)
            if not entries:
                return Outcome(text=f"{path} holds no files")
            full = f"; only {MAX_FILES} are shown" if len(entries) >= MAX_FILES else ""
            lines = [f"{path} holds {len(entries)} files{full} (bytes, path):"]
            lines += [f"{entry.size:>8}  {entry.name}" for entry in entries]
            return Outcome(text=bounded("\n".join(lines), VIEW_CHARACTERS))
        text = self.files.read(path)
        count = len(text.splitlines())
        last = min(last_line, count) if last_line > 0 else count
        if first_line < 1 or (count and first_line > last):
            raise UsageError(f"{path} has lines 1 to {count}; {first_line} to {last_line or count} are not among them")
        shown = numbered(text, first_line, last)
        more = f"\nPage with first_line and last_line: about {VIEW_CHARACTERS} characters fit."
        cut = more if LEFT_OUT in f"\n{shown}" else ""
        part = "" if (first_line, last) == (1, count) else f", lines {first_line} to {last}"
        return Outcome(text=f"{path} ({count} lines{part}, {len(text.encode())} bytes)\n{shown}{cut}")

    async def create_file(self, path: str, text: str) -> Outcome:
        """Write a whole file of the work folder; one that exists is replaced. kernel.py is the file that is judged.

        For a new kernel, or when most of a file changes; smaller changes are safer with edit_file. Versions that
        passed verify_kernel are kept already; keep anything else worth keeping with backup_file first.

        Args:
            path: relative to the work folder; folders are made as needed.
            text: the whole new content.
        """
        old = self.files.read_or_none(path)
        self.files.require_writable(path, text)
        if old == text:
            return Outcome(text=f"{path} holds this very text already; nothing was changed")
        size = f"{len(text.splitlines())} lines"
        told = f"created {path}, {size}" if old is None else f"replaced {path}, {size}: {_replaced(old, text, path)}"
        return Outcome(text=told, effects=(WriteFile(path, text),))

    async def edit_file(self, path: str, old_text: str, new_text: str, replace_all: bool = False) -> Outcome:
        """Replace a part of a file. old_text must occur exactly once, to the letter, indentation included.

        Give enough lines around the change to make it unique. The answer is the difference; view_file is not needed
        after it.

        Args:
            path: relative to the work folder.
            old_text: the text to replace, without line numbers.
            new_text: what stands there afterwards; empty to remove the text.
            replace_all: replace every occurrence instead of the only one.
        """
        text = self.files.read(path)
        if not old_text:
            raise UsageError("old_text is empty", hint="Use create_file to write a whole file.")
        if old_text == new_text:
            raise UsageError("old_text and new_text are the same: nothing would change")
        found = occurrences(text, old_text)
        if not found:
            raise UsageError(f"old_text does not occur in {path}. {near_misses(text, old_text)}")
        if len(found) > 1 and not replace_all:
            lines = ", ".join(map(str, found[:SHOWN_OCCURRENCES])) + ", …" * (len(found) > SHOWN_OCCURRENCES)
            raise UsageError(
                f"old_text occurs {len(found)} times in {path}, at lines {lines}",
                hint="Give more lines around the one that is meant, or replace_all.",
            )
        if len(text) + len(found) * (len(new_text) - len(old_text)) > MAX_BYTES:  # before it fills the memory
            raise UsageError(f"{path} would be larger than {MAX_BYTES} bytes, which is what a file may have")
        new = text.replace(old_text, new_text)
        self.files.require_writable(path, new)
        return Outcome(text=f"edited {path}: {difference(text, new, path)}", effects=(WriteFile(path, new),))
