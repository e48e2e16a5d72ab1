"""Where kernels come from: made by the offline generator or a session with a model, or found in somebody's folder."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.evals.engines.jobs import DRAFT, SESSION
from cutesmith.problems.contract import MAX_BYTES
from cutesmith.unicode import encodable

AGENTS = "draft, claude, openai:MODEL, script:FILE, replay:DIR or dir:PATH"
MODELS = ("claude", "openai")
"""Kinds of agents that a server answers."""


class NoKernelError(UsageError):
    """There is no kernel for a task, or what is there cannot be one: `status` is "missing" or "unreadable"."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Source:
    """What `--agent` names: `kind` is "draft", "claude", "openai", "script", "replay" or "dir".

    `place` is its file or folder, or the name of the model on an OpenAI-compatible server.
    In `script:` and `replay:` the text {task} stands for the task's id, so that each task has its own.
    """

    kind: str
    place: str = ""

    @property
    def stage(self) -> str:
        """The stage that makes a kernel; "" where there is nothing to make."""
        return {"draft": DRAFT, "dir": ""}.get(self.kind, SESSION)

    @property
    def name(self) -> str:
        """What attempts say of it: the folder's name and not where it lies."""
        return f"{self.kind}:{encodable(Path(self.place).name)}" if self.place else self.kind

    def agent(self, task: str) -> str:
        """The `--agent` of `cutesmith generate` for a task."""
        return f"{self.kind}:{self.place.replace('{task}', task)}" if self.place else self.kind


def parse_source(text: str) -> Source:
    """The source that `--agent` names; raises UsageError for what does not exist."""
    kind, _, place = text.partition(":")
    if (kind in ("draft", "claude") and not place) or (kind == "openai" and place):
        return Source(kind, place)
    if kind not in ("script", "replay", "dir") or not place:
        raise UsageError(f"--agent {text}: there is no such agent", hint=f"Use {AGENTS}.")
    place = os.path.abspath(place)
    if kind == "dir" and not os.path.isdir(place):
        raise UsageError(f"--agent {text}: no such folder", hint="Give the folder that holds the kernels.")
    if "{task}" not in place and not os.path.exists(place):
        raise UsageError(f"--agent {text}: no such file or folder")
    return Source(kind, place)


def find_kernel(folder: Path, task: str, sample: int) -> bytes:
    """The bytes of the kernel that a folder holds for a task and a sample (from 0). Raises NoKernelError.

    Looked for, in this order, with NAME the task's id ("level1/softmax") and then its last part ("softmax"):
    NAME/SAMPLE.py, NAME/SAMPLE/kernel.py, kernels/NAME/SAMPLE/kernel.py (the folder of a run), and for sample 0
    NAME.py and NAME/kernel.py. A link may point to where it likes within the folder, and nowhere else.
    """
    root = os.path.realpath(folder)
    for name in dict.fromkeys((task, task.rpartition("/")[2])):
        places = [f"{name}/{sample}.py", f"{name}/{sample}/kernel.py", f"kernels/{name}/{sample}/kernel.py"]
        for relative in (*places, f"{name}.py", f"{name}/kernel.py") if sample == 0 else places:
            if os.path.lexists(path := os.path.join(root, relative)):
                return _read(path, root, relative)
    raise NoKernelError(f"{folder.name} holds no kernel for {task}, sample {sample}", "missing")


def _read(path: str, root: str, shown: str) -> bytes:
    real = os.path.realpath(path)
    if os.path.commonpath((real, root)) != root:
        raise NoKernelError(f"{shown} is a link that leaves the folder", "unreadable")
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe must not make us wait
    except OSError as error:
        raise NoKernelError(f"{shown} cannot be read: {error.strerror}", "unreadable") from error
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise NoKernelError(f"{shown} is not a regular file", "unreadable")
        if about.st_size > MAX_BYTES:
            wrong = f"{shown} has {about.st_size} bytes; a kernel file has at most {MAX_BYTES}"
            raise NoKernelError(wrong, "unreadable")
        return os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def folder_name(text: str) -> str:
    """A task's id as a relative path that stays below its folder, whatever the id says; different for different ids."""

    def harmless(part: str) -> bool:
        plain = part.isprintable() and "\\" not in part and len(part.encode()) < 200
        return bool(part) and part == part.strip() and not part.startswith(".") and plain

    if all(map(harmless, text.split("/"))):
        return text
    short_hash = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return "_".join(filter(None, ("".join(c if c.isalnum() else "-" for c in text)[:60], short_hash)))
