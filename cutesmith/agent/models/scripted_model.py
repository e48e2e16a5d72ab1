"""A model that says what it was told to say: for tests, demonstrations, and evaluations of everything but the model.

A script is a list of turns for every line of work, or an object that maps "1", "2", … (and "*" for the others) to such
lists. A turn is an object, every field optional:

    {"text": "…", "calls": [{"name": "create_file", "input": {…}}], "stop_reason": "…", "usage": {…}, "dollars": 0.01}

An argument {"$file": "kernel_v1.py"} stands for that file's text, relative to the script's own folder.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cutesmith.agent.models.model import Block, Listener, ModelError, Reply, Request, Usage, ignore
from cutesmith.errors import UsageError

Turn = Mapping[str, Any]
Script = Mapping[str, Sequence[Turn]]
FIELDS = {"text", "thinking", "calls", "stop_reason", "usage", "dollars", "seconds"}


class ScriptedModel:
    """Answers turn N of a line with the script's Nth turn; asked again for a turn, it gives the same answer.

    When a line has no more turns, `reply` raises ModelError.
    """

    def __init__(self, script: Script | Sequence[Turn], *, name: str = "scripted") -> None:
        self.name = name
        self.script: Script = script if isinstance(script, Mapping) else {"*": script}
        self.requests: list[Request] = []

    async def ready(self) -> None:
        """Nothing is needed."""

    async def reply(self, request: Request, listener: Listener = ignore) -> Reply:
        """The turn that the request asks for."""
        self.requests.append(request)
        turns = self.script.get(str(request.line), self.script.get("*", ()))
        if request.turn > len(turns):
            raise ModelError(f"the script of line {request.line} has {len(turns)} turns, no turn {request.turn}")
        turn = turns[request.turn - 1]
        await asyncio.sleep(float(turn.get("seconds", 0)))
        for kind in ("thinking", "text"):
            if turn.get(kind):
                listener(kind, str(turn[kind]))
        return _reply(turn, f"toolu_{request.line}_{request.turn}", self.name)


def read_script(path: str | Path) -> ScriptedModel:
    """The model of a script file (JSON); raises UsageError for a file that is not a script."""
    path = Path(path)
    try:
        script = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a script: {error}", hint=str(__doc__).partition("\n\n")[2]) from error
    lines = script if isinstance(script, dict) else {"*": script}
    for turn in (turn for turns in lines.values() for turn in turns):
        if not isinstance(turn, dict) or not FIELDS.issuperset(turn):
            raise UsageError(f"{path}: a turn is an object of {', '.join(sorted(FIELDS))}, not {str(turn)[:80]}")
    return ScriptedModel(_with_files(lines, path.parent), name=f"script {path.name}")


def _with_files(value: Any, folder: Path) -> Any:
    """The value with every {"$file": NAME} replaced by the file's text."""
    if isinstance(value, dict):
        if value.keys() == {"$file"}:
            return (folder / value["$file"]).read_text(encoding="utf-8")
        return {key: _with_files(item, folder) for key, item in value.items()}
    return [_with_files(item, folder) for item in value] if isinstance(value, list) else value


def _reply(turn: Turn, prefix: str, name: str) -> Reply:
    calls: list[Block] = [
        {"type": "tool_use", "id": f"{prefix}_{number}", "name": call["name"], "input": call.get("input", {})}
        for number, call in enumerate(turn.get("calls", ()), start=1)
    ]
    words: list[Block] = [{"type": "text", "text": turn["text"]}] if turn.get("text") else []
    return Reply(
        content=[*words, *calls],
        stop_reason=turn.get("stop_reason") or ("tool_use" if calls else "end_turn"),
        usage=Usage(**turn.get("usage", {})),
        model=name,
        dollars=turn.get("dollars", 0.0),
    )
