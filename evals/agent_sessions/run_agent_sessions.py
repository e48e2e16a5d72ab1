#!/usr/bin/env python3
"""Run the scripted sessions of evals/agent_sessions through the command line, and compare what each came to.

    python evals/agent_sessions/run_agent_sessions.py --out evals/results/h200/agent_sessions --jobs 4
    python evals/agent_sessions/run_agent_sessions.py cheat --small --out /tmp/cheat

Each is a process `cutesmith generate problem.py --agent script:script.json …`: the real tools, the real judge, a model
that says what it was told to say. OUT/NAME/ holds the session's transcript.jsonl, result.json, report.html, DEVLOG.md
and kernel.py, with this machine's paths replaced; OUT/summary.json and summary.md the table. Exit code: 0 when every
session came to what its expected.json says, 1 otherwise. evals/agent_sessions/README.md describes both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from cutesmith.agent.outcome import KeepVersion, RecordVerdict, effects_of, judgements  # noqa: E402
from cutesmith.sandbox.shared_fork_server import lend_fork_server  # noqa: E402

SCENARIOS = Path(__file__).resolve().parent
KEPT = ("transcript.jsonl", "result.json", "report.html", "DEVLOG.md", "kernel.py")
FEW_ROWS = "rows=2"  # of get_inputs(), with --small
DRAFT = "draft/kernel.py"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen sessions; returns the exit code."""
    options = _parser().parse_args(argv)
    known = sorted(path.parent.name for path in SCENARIOS.glob("*/script.json"))
    if unknown := sorted(set(options.names) - set(known)):
        print(f"no session {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    out, names, started = Path(options.out).resolve(), options.names or known, time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda name: run_session(name, out / name, options), names))
    write_summary(out, rows, time.monotonic() - started, options)
    print(table(rows))
    for row in rows:
        for difference in row["differences"]:
            print(f"{row['session']}: {difference}")
    return 0 if all(row["ok"] for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="sessions (default: all)")
    parser.add_argument("--out", default="cutesmith-out/agent_sessions", metavar="DIR", help="default: %(default)s")
    parser.add_argument("--on", choices=("auto", "gpu", "emulator"), default="auto")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="sessions at a time (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="few rows, and no call twice: for the emulated GPU")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="seconds a session")
    return parser


# ------------------------------------------------------------------------------------------------------ one session


def run_session(name: str, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run one session in a folder of its own, keep its files under `out`, and give its row of the summary."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as scratch:
        given = copy_scenario(name, Path(scratch) / name, small=options.small)
        expected = json.loads((given / "expected.json").read_text(encoding="utf-8"))
        arguments = [*expected.get("arguments", ()), f"--on={options.on}", "--out=session", "--json"]
        ended = run_command(
            ["generate", "problem.py", "--agent=script:script.json", *arguments], given, options.timeout
        )
        keep(given / "session", out)
        came = Came.of(given, ended) if (given / "session" / "transcript.jsonl").is_file() else None
        differences = list(compare(expected, came)) if came else [f"no session: {ended.stderr[-800:]}"]
    return {
        "session": name,
        "ok": not differences,
        "place": came.place if came else "",
        "turns": len(came.turns) if came else 0,
        "verdicts": came.turns if came else [],
        "result": came.result.get("summary", "") if came else "",
        "exit_code": ended.returncode,
        "seconds": round(time.monotonic() - started, 1),
        "differences": differences,
    }


def copy_scenario(name: str, folder: Path, *, small: bool) -> Path:
    """The scenario's files in a folder that the session may fill; `small`: what a slow machine should run of it."""
    folder.mkdir(parents=True)
    for path in sorted(path for path in SCENARIOS.joinpath(name).iterdir() if path.is_file()):
        (folder / path.name).write_bytes(path.read_bytes())
    if small:
        make_small(folder)
    return folder


def make_small(folder: Path) -> None:
    """Give get_inputs() few rows, and leave out the calls whose verdict another session shows as well."""
    problem, script, expected = (folder / name for name in ("problem.py", "script.json", "expected.json"))
    problem.write_text(re.sub(r"(?<=def get_inputs\()rows=\d+", FEW_ROWS, problem.read_text("utf-8")), "utf-8")
    said, wanted = (json.loads(path.read_text("utf-8")) for path in (script, expected))
    for number, tool in (call.split() for call in wanted.get("shown_elsewhere", ())):
        turn = int(number) - 1
        place = next(i for i, call in enumerate(said[turn]["calls"]) if call["name"] == tool)
        del said[turn]["calls"][place], wanted["turns"][turn][place]
    script.write_text(json.dumps(said), "utf-8")
    expected.write_text(json.dumps(wanted), "utf-8")


def run_command(arguments: Sequence[str], folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """`cutesmith` with these arguments in a folder; a session that takes too long is killed, with what it started."""
    path = os.pathsep.join(p for p in (str(REPOSITORY), os.environ.get("PYTHONPATH", "")) if p)
    command = [sys.executable, "-m", "cutesmith", *arguments]
    try:
        with lend_fork_server() as (variables, descriptors):  # PyTorch and the DSL are imported once for all sessions
            return subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, "CUTESMITH_CHILD": "1", **variables},
                pass_fds=descriptors,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 6, "", f"not over after {timeout:g} s")


def keep(session: Path, out: Path) -> None:
    """The files of a session that tell its story, without this machine's paths."""
    out.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        (out / name).unlink(missing_ok=True)
        if (session / name).is_file():
            (out / name).write_text(without_paths((session / name).read_text(encoding="utf-8"), session), "utf-8")


def without_paths(text: str, session: Path) -> str:
    """The text with SESSION, REPOSITORY, PYTHON, HOME and TEMPORARY in place of this machine's folders."""
    folders = {session: "SESSION", session.parent: "SCENARIO", REPOSITORY: "REPOSITORY", Path(sys.prefix): "PYTHON"}
    folders |= {Path(sys.base_prefix): "PYTHON", Path.home(): "HOME", Path(tempfile.gettempdir()): "TEMPORARY"}
    for folder in sorted(folders, key=lambda path: -len(str(path))):
        for written in {str(folder), str(folder.resolve())} - {"/"}:
            text = text.replace(written, folders[folder])
    return text


# ------------------------------------------------------------------------------------------------- what it came to


@dataclass(frozen=True, kw_only=True)
class Came:
    """What a session came to, in the words of expected.json."""

    place: str  # "gpu" or "emulator"
    result: Mapping[str, Any]
    exit_code: int
    kernel: str  # the scenario's file, "draft", "other" or ""
    draft: list[str]  # what the judge said of it
    turns: list[list[str]]
    closing: list[str]  # what the judge said of the result once the lines had ended
    checkpoints: list[str]

    @classmethod
    def of(cls, given: Path, ended: subprocess.CompletedProcess[str]) -> Came:
        """Read off the session's folder and its process."""
        session = given / "session"
        events = [json.loads(line) for line in (session / "transcript.jsonl").read_text("utf-8").splitlines()]
        names = {digest(path.read_text("utf-8")): path.name for path in sorted(given.glob("*.py"))}
        if (session / DRAFT).is_file():
            names[digest((session / DRAFT).read_text("utf-8"))] = "draft"
        kernel = session / "kernel.py"
        first = next((event["seq"] for event in events if event["kind"] == "line"), len(events))
        effects = [effect for event in events for effect in effects_of(event)]
        verdicts = [effect.verdict for effect in effects if isinstance(effect, (KeepVersion, RecordVerdict))]
        return cls(
            place="gpu" if any(verdict.get("ran_on") == "gpu" for verdict in verdicts) else "emulator",
            result=json.loads((session / "result.json").read_text("utf-8"))
            if (session / "result.json").is_file()
            else {},
            exit_code=ended.returncode,
            kernel=names.get(digest(kernel.read_text("utf-8")), "other") if kernel.is_file() else "",
            draft=unasked([e for e in events if e["seq"] < first]),
            turns=turns_of(events),
            closing=unasked([e for e in events if e["seq"] > first]),
            checkpoints=[names.get(digest(e.text), "other") for e in effects if isinstance(e, KeepVersion)],
        )


def digest(text: str) -> str:
    """SHA-256 of a file's text."""
    return sha256(text.encode()).hexdigest()


def turns_of(events: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """For each answer of the model its tool calls, each with what the judge said: "verify_kernel · verify verified"."""
    turns: list[list[str]] = []
    for event in events:
        if event["kind"] == "reply":
            turns.append([])
        elif event["kind"] == "tool":
            error = ["error"] if event["is_error"] else []
            turns[-1].append(" · ".join([event["name"], *map(said, judgements(event)), *error]))
    return turns


def unasked(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the judge said without a tool call."""
    return [said(effect) for event in events if event["kind"] == "judged" for effect in judgements(event)]


def said(effect: RecordVerdict) -> str:
    """A judged effect in words: stage, status, and the rule of a rejection or of lint's first error."""
    verdict = effect.verdict
    errors = [finding["rule"] for finding in verdict.get("findings", ()) if finding["severity"] == "error"]
    rule = (verdict.get("rule") if verdict["status"] == "rejected" else "") or next(iter(errors), "")
    return " ".join(filter(None, (verdict["stage"], verdict["status"], rule)))


def compare(expected: Mapping[str, Any], came: Came) -> Iterator[str]:
    """Every difference between what was expected and what came, as sentences."""
    result = came.result
    found = {
        "exit_code": came.exit_code,
        "ending": result.get("ending"),
        "state": result.get("state"),
        "kernel": came.kernel,
        "draft": came.draft,
        "turns": came.turns,
        "closing": came.closing,
        "checkpoints": came.checkpoints,
    }
    wanted = {key: _at(came.place, value) for key, value in expected.items() if key in found}
    for key, value in wanted.items():
        if not _agrees(value, found[key]):
            yield f"{key}: expected {value!r}, found {found[key]!r}"


def _at(place: str, value: Any) -> Any:
    """The value with every {"emulator": …, "gpu": …} replaced by what holds at this place."""
    if isinstance(value, dict):
        return _at(place, value[place]) if value.keys() == {"emulator", "gpu"} else value
    return [_at(place, item) for item in value] if isinstance(value, list) else value


def _agrees(wanted: Any, found: Any) -> bool:
    """Whether they are the same; {"any": […]} agrees with each of its values."""
    if isinstance(wanted, dict):
        return any(_agrees(one, found) for one in wanted["any"])
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(_agrees, wanted, found))
    return bool(wanted == found)


# ------------------------------------------------------------------------------------------------------ the summary


def write_summary(out: Path, rows: Sequence[Mapping[str, Any]], seconds: float, options: argparse.Namespace) -> None:
    """`summary.json` and `summary.md`."""
    from cutesmith.checkpoints import write_atomically
    from cutesmith.devices import current_device
    from cutesmith.verdicts import strict_json

    device = current_device() if any(row["place"] == "gpu" for row in rows) else None
    place = device.name if device else "the emulated GPU"
    command = " ".join(["python evals/agent_sessions/run_agent_sessions.py", *_arguments(options)])
    summary = {"device": place, "command": command, "seconds": round(seconds, 1), "sessions": rows}
    page = [f"# Scripted sessions on {place}", "", f"`{command}`, {seconds:.0f} s", "", *markdown(rows)]
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "summary.json", (strict_json(summary, indent=1) + "\n").encode())
    write_atomically(out / "summary.md", ("\n".join(page) + "\n").encode())


def _arguments(options: argparse.Namespace) -> Iterator[str]:
    yield from options.names
    for name, value in vars(options).items():
        if value is True:
            yield f"--{name}"
        elif name in ("on", "jobs"):
            yield f"--{name} {value}"


def markdown(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table, then every session turn by turn."""
    yield "| session | turns | ok | exit code | seconds | result |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        ok = "yes" if row["ok"] else "no"
        yield f"| {row['session']} | {row['turns']} | {ok} | {row['exit_code']} | {row['seconds']} | {row['result']} |"
    for row in rows:
        yield from ("", f"## {row['session']}", "")
        yield from (f"{number}. {', '.join(calls)}" for number, calls in enumerate(row["verdicts"], start=1))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The sessions in columns, for a terminal; verdicts are stage and status."""
    lines = [("session", "turns", "verdicts", "seconds", "ok")]
    for row in rows:
        verdicts = [call.partition(" · ")[2] for calls in row["verdicts"] for call in calls if " · " in call]
        short = ", ".join(" ".join(verdict.split()[:2]) for verdict in verdicts)
        lines.append((row["session"], str(row["turns"]), short, str(row["seconds"]), "ok" if row["ok"] else "DIFFERS"))
    return in_columns(lines)


def in_columns(lines: Sequence[Sequence[str]]) -> str:
    """Rows of cells as text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


if __name__ == "__main__":
    sys.exit(main())
