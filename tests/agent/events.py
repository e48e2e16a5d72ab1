"""Events as a session would record them, for tests that need no session."""

from __future__ import annotations

from typing import Any

from cutesmith.agent.outcome import RecordVerdict

_TIME = "2026-01-01T00:00:00.000+00:00"
VERIFY = {"stage": "verify", "status": "verified", "exit_code": 0, "summary": "19 cases agree", "seconds": 1.0}


def event(seq: int, kind: str, line: int = 1, **fields: Any) -> dict[str, Any]:
    if "effects" in fields:
        fields["effects"] = [effect.to_dict() for effect in fields["effects"]]
    return {"seq": seq, "time": _TIME, "line": line, "kind": kind, **fields}


def reply(seq: int, *content: dict[str, Any], line: int = 1, stop_reason: str = "", **fields: Any) -> dict[str, Any]:
    calls = any(block["type"] == "tool_use" for block in content)
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 0, "cache_write_tokens": 0}
    filled = {"usage": usage, "dollars": 0.5, "model": "m", "turn": seq, "seconds": 1.0, **fields}
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    return event(seq, "reply", line, content=list(content), stop_reason=reason, **filled)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, name: str = "note", **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def tool(seq: int, id: str, *, line: int = 1, words: str = "done", effects: Any = (), **fields: Any) -> dict[str, Any]:
    filled = {"is_error": False, "finish": "", "name": "note", "input": {}, "turn": 1, "seconds": 0.1, **fields}
    return event(seq, "tool", line, id=id, text=words, effects=effects, **filled)


def judged(sha: str, verdict: dict[str, Any], words: str = "") -> RecordVerdict:
    return RecordVerdict(sha, words or f"# {sha}", verdict)


def timed(median: float, *, speedups: dict[str, float] | None = None, floor: float | None = None) -> dict[str, Any]:
    names = ("kernel", *(speedups or ()))
    timings = [{"name": name, "median_us": median, "samples_us": [median]} for name in names]
    passed = {"stage": "benchmark", "status": "passed", "exit_code": 0, "summary": "", "seconds": 1.0}
    return {**passed, "timings": timings, "speedups": speedups or {}, "floor_percent": floor}
