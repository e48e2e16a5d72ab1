"""What an agent may call in a session of `evals.json`: files of its folder, the skill's scripts, and the skill's text.

Docstrings of tools are what the model reads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
from anyio.streams.text import TextReceiveStream

from cutesmith import resources
from cutesmith.agent.outcome import Effect, Outcome
from cutesmith.agent.texts.bounded_text import bounded
from cutesmith.errors import UsageError
from cutesmith.skill.content import skill_files
from cutesmith.verb_process import PARENT_VARIABLE, without_secrets

JUDGE = ("lint_kernel.py", "compile_kernel.py", "verify_kernel.py", "benchmark_kernel.py")
"""The scripts that a session without the skill has too: they judge, and teach nothing."""
SCRIPTS = (
    *JUDGE,
    *("emulate_kernel.py", "profile_kernel.py", "checkpoint_kernel.py", "generate_kernel.py", "audit_problem.py"),
    *("search_references.py", "find_example.py", "fetch_example.py", "note_design.py", "doctor.py"),
)
"""The scripts that a session with the skill has: those that SKILL.md sends an agent to."""
WITHHELD = ("--agent", "--resume")
"""Options that would begin a session inside this one."""
SCRIPT_SECONDS = 900.0
PAGE_CHARACTERS = 24_000
MOST_CHARACTERS = 200_000  # that are kept of what a script prints
TIMED_OUT = 124


class SkillTools:
    """The scripts and, with the whole skill, its files; `folder` is where scripts are run."""

    def __init__(self, folder: Path, scripts: Sequence[str] = SCRIPTS) -> None:
        self.folder, self.scripts = folder, tuple(scripts)

    async def run_script(self, script: str, arguments: list[str]) -> Outcome:
        """Run one of the scripts in the work folder, and give what it prints and its exit code.

        Args:
            script: its file's name, such as verify_kernel.py; there is no shell and no other program.
            arguments: its arguments one by one, such as ["kernel.py", "--arch", "sm_90a"]; paths are relative.
        """
        name = script.removeprefix("scripts/")
        self._require_allowed(name, arguments)
        code, text = await run_script(name, arguments, self.folder)
        called: Effect = {"do": "script", "script": name, "arguments": list(arguments), "exit_code": code}
        return Outcome(text=f"{bounded(text)}\nexit code {code}".lstrip(), effects=(called,))

    def _require_allowed(self, name: str, arguments: Sequence[str]) -> None:
        if name not in self.scripts:
            raise UsageError(f"there is no script {name[:100]!r}", hint=f"There are: {', '.join(self.scripts)}")
        for argument in arguments:
            if argument.partition("=")[0] in WITHHELD:
                raise UsageError(f"{argument[:100]} is not for a session: it would begin another one")
            place = argument.partition("=")[2] if argument.startswith("--") else argument
            if place.startswith(("/", "~")) or ".." in place.split("/"):
                raise UsageError(f"{argument[:100]} leaves the work folder", hint="Give paths relative to it.")

    async def read_skill_file(self, path: str, first_line: int = 1) -> Outcome:
        """Read a file of the skill, such as references/faq.md.

        Args:
            path: relative to the skill's folder.
            first_line: where to begin, from 1: a long file is shown in parts.
        """
        shown = path.removeprefix("./")
        place = skill_files().get(shown) if shown.startswith(("SKILL.md", "references/", "examples_index/")) else None
        if place is None:
            raise UsageError(f"the skill has no file {path[:200]!r}", hint="Its pages are references/NAME.md.")
        lines = place.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)[max(first_line, 1) - 1 :]
        return Outcome(text=bounded("".join(lines), PAGE_CHARACTERS), effects=({"do": "page", "path": shown},))


async def run_script(name: str, arguments: Sequence[str], folder: Path) -> tuple[int, str]:
    """A script's exit code and the end of what it prints, run in a folder without any key; 124 after fifteen minutes.

    Cancelled, it ends the script and all that this started.
    """
    text = ""
    with anyio.move_on_after(SCRIPT_SECONDS):
        async with await _started(name, arguments, folder) as child:
            try:
                assert child.stdout is not None
                async for part in TextReceiveStream(child.stdout, errors="replace"):
                    text = (text + part)[-MOST_CHARACTERS:]
                return await child.wait(), text.strip()
            finally:
                with contextlib.suppress(ProcessLookupError):  # all of it has ended
                    os.killpg(child.pid, signal.SIGKILL)
    return TIMED_OUT, f"{text}\n{name} was ended after {SCRIPT_SECONDS:g} s"


async def _started(name: str, arguments: Sequence[str], folder: Path) -> anyio.abc.Process:
    return await anyio.open_process(
        [sys.executable, str(resources.folder("scripts") / name), *arguments],
        cwd=folder,
        env={**without_secrets(os.environ), PARENT_VARIABLE: "1"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
