"""`search_references`, `read_reference`, `find_example`, `fetch_example`.

Each is a verb as a child process: a fifth of a second, and it ends when the session does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread

from cutesmith.agent.outcome import Outcome, WriteFile
from cutesmith.agent.texts.bounded_text import bounded
from cutesmith.agent.tools.confined_folder import MAX_BYTES, ConfinedFolder
from cutesmith.agent.tools.workspace import Workbench
from cutesmith.errors import UsageError
from cutesmith.verb_process import run_verb
from cutesmith.verdicts import ExitCode

EXAMPLES = "examples"
PAGE_CHARACTERS = 14_000
ANSWER_CHARACTERS = 6000

NAMES = {
    "scripts/find_example.py": "find_example",
    "cutesmith find": "find_example",
    "cutesmith search": "search_references",
}
"""The tools that a hint of the command line means."""

Object = Mapping[str, Any]


class LibraryTools:
    """The references and the example index."""

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench
        self.files = ConfinedFolder(workbench.folder)

    async def search_references(self, *words: str) -> Outcome:
        found = await self._verb("search", *self._hidden(), *words)
        lines: list[str] = []
        for hit in found["hits"]:
            lines += [f"{hit['address']}  {hit['heading']}", *(f"  {line['text']}" for line in hit["lines"])]
        return Outcome(text=bounded("\n".join([*lines, found["summary"]]), ANSWER_CHARACTERS))

    async def read_reference(self, *words: str) -> Outcome:
        found = await self._verb("search", *self._hidden(), *words)
        text = "\n\n".join(section["text"] for section in found["hits"])
        if len(text) <= PAGE_CHARACTERS:
            return Outcome(text=text)
        sections = "\n".join(f"- {hit['address']}  {hit['heading']}" for hit in found["hits"])
        head = f"This page has {len(text)} characters; read it by sections:\n{bounded(sections, ANSWER_CHARACTERS)}\n\n"
        return Outcome(text=head + bounded(text, PAGE_CHARACTERS - len(head)))

    async def find_example(self, *words: str) -> Outcome:
        found = await self._verb("find", f"--arch={self.workbench.arch}", *words)  # the last --arch counts
        lines = [line for place, example in enumerate(found["examples"], 1) for line in _example(place, example)]
        hint = found["hint"] or found["summary"]
        return Outcome(text=bounded("\n".join([*lines, hint]), ANSWER_CHARACTERS))

    async def fetch_example(self, *words: str) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="cutesmith-fetch-") as folder:
            fetched = await self._verb("fetch", f"--out={folder}", *words)
            return await anyio.to_thread.run_sync(self._brought, fetched, Path(folder))

    def _hidden(self) -> list[str]:
        return [f"--without={page}" for page in self.workbench.settings.hidden_pages]

    def _brought(self, fetched: Object, folder: Path) -> Outcome:
        """What was fetched, as files of the work folder; what was not, with the reason."""
        lines, effects = [], []
        for example in fetched["examples"]:
            if example["error"]:
                lines.append(f"{example['id']}: not fetched: {example['error']}")
                continue
            effect, told = self._file(Path(example["path"]), folder)
            lines.append(f"{example['id']}: {told}\n  {example['licence']}, {example['origin']}")
            effects += [effect] if effect else []
            if example["siblings"]:
                lines.append(f"  it imports {', '.join(example['siblings'])}: with_siblings fetches them too")
            lines += map(_part, example["parts"])
        failed = [example["id"] for example in fetched["examples"] if example["error"]]
        if failed:
            lines.append("Take another that find_example names: those whose id starts with cutesmith/ are always here.")
        asked = any("text" in part for example in fetched["examples"] for part in example["parts"])
        text = bounded("\n".join(lines), PAGE_CHARACTERS if asked else ANSWER_CHARACTERS)
        none = len(failed) == len(fetched["examples"])
        return Outcome(text=text, is_error=none, effects=tuple(effects))

    def _file(self, path: Path, folder: Path) -> tuple[WriteFile | None, str]:
        """The effect that puts a fetched file into the work folder, and what to say of it."""
        name = f"{EXAMPLES}/{path.relative_to(folder).as_posix()}"
        data = path.read_bytes()
        if len(data) > MAX_BYTES:
            return None, f"not put into your folder: it has {len(data)} bytes, more than {MAX_BYTES}"
        text = data.decode("utf-8", "replace")
        old = self.files.read_or_none(name)
        if old == text:
            return None, f"{name} is there already"
        self.files.require_writable(name, text)
        return WriteFile(name, text), f"{name}, {len(text.splitlines())} lines"

    async def _verb(self, verb: str, *arguments: str) -> Object:
        """A verb's JSON object; raises UsageError with its hint where the verb refused."""
        if any(not word.strip() for word in arguments):
            raise UsageError("the query is empty", hint="Give a few words.")
        found = await run_verb(verb, *arguments, follower=self.workbench.follower)
        if found["stage"] == "error":
            kind = f"{verb} failed: " if found["exit_code"] != ExitCode.USAGE else ""
            hint = str(found.get("hint", ""))
            for command, tool in NAMES.items():
                hint = hint.replace(command, tool)
            raise UsageError(f"{kind}{found['summary']}", hint=hint)
        return found


def _part(part: Object) -> str:
    """A line of the outline, or the text of a part below its lines."""
    where = f"lines {part['first_line']}-{part['last_line']}"
    if "text" in part:
        return f"  {part['name']}, {where}:\n{part['text']}"
    return f"  {where}, about {part['tokens']} tokens: {part['name']}"


def _example(place: int, example: Object) -> list[str]:
    archs, dtypes = ", ".join(example["arch"]), ", ".join(example["dtypes"])
    missing = f"; missing: {', '.join(example['missing'])}" if example["missing"] else ""
    contract = "; keeps the contract of kernel.py" if example["meets_contract"] else ""
    return [
        f"{place}. {example['id']}  ({archs}; {dtypes}; {example['lines']} lines{contract})",
        f"   {example['summary']}",
        f"   to learn: {example['lesson']}",
        f"   why: {', '.join(example['matched'])}{missing}",
        *([f"   {example['fit']}: {example['note']}"] if example["note"] else []),
    ]
