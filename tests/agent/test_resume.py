"""A session that is killed at any event goes on as if nothing had been: nothing lost, no paid turn asked for again.

Run as a program with an empty folder, this file kills a session with SIGKILL at every event, resumes it, and prints one
JSON object: how the result differs from an undisturbed one. It forks: one process that has run a session once, and so
imported everything, can die as often as it likes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith.agent.closing import conclude
from cutesmith.agent.confirmation import confirm_best
from cutesmith.agent.conversation import messages_of
from cutesmith.agent.display.screen import Screen
from cutesmith.agent.loop import Line
from cutesmith.agent.models.scripted_model import ScriptedModel
from cutesmith.agent.outcome import RecordVerdict
from cutesmith.agent.session import new_session, resumed_session
from cutesmith.agent.tools.toolbox import Toolbox
from cutesmith.agent.tools.workspace import Workbench
from cutesmith.patterns.generation.target import Target

EMULATED = Target("sm_90a", None, "", emulated=True)


def call(name, **input):
    return {"name": name, "input": input}


TURNS = [
    {"text": "first", "calls": [call("create_file", path="kernel.py", text="a = 1\nb = 2\n")]},
    {
        "calls": [
            call("note", prediction="10 us"),
            call("edit_file", path="kernel.py", old_text="a = 1", new_text="a = 3"),
        ]
    },
    {"text": "thinking aloud"},
    {"calls": [call("backup_file", path="kernel.py", note="three")]},
    {"calls": [call("edit_file", path="kernel.py", old_text="a = 3", new_text="a = 5"), call("no_such_tool")]},
    {"calls": [call("revert_file", version="1"), call("create_file", path="other.py", text="x\n")]},
    {"calls": [call("finish", summary="enough", give_up=True)]},
]


PASS = {"stage": "verify", "status": "verified", "exit_code": 0, "summary": "19 cases", "seconds": 1.0, "cases": []}
WRONG = {**PASS, "status": "wrong_result", "exit_code": 1, "summary": "case 7 differs"}
DRAFTS = [RecordVerdict(name * 64, f"# {name}\n", PASS) for name in "abc"]  # the last one is the best


async def judge(kernel, stage):
    """Verified again, the two latest drafts turn out to be wrong."""
    return WRONG if kernel.text in ("# b\n", "# c\n") else PASS


class Killer(Screen):
    """Kills this process when event `at` is on the disk and has not taken effect yet, or while an answer streams."""

    def __init__(self, at: int, while_streaming: int) -> None:
        super().__init__()
        self.at, self.while_streaming = at, while_streaming

    def event(self, event):
        if event["seq"] == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def stream(self, line, kind, text):
        self.while_streaming -= 1
        if self.while_streaming == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path, *, at: int = -1, while_streaming: int = -1, resume: bool = False) -> None:
    """Run or resume the session to its end, or to its death."""
    opened = resumed_session(folder) if resume else new_session(folder, Killer(at, while_streaming), request="r")
    with opened as session:
        for draft in DRAFTS[sum(event["kind"] == "judged" for event in session.events) :]:
            session.record("judged", text="a draft", effects=[draft], seconds=0.0)
        if session.first("line") is None:
            session.record("line", 1, parent=0, opening="begin", effects=[])
        workspace = session.workspace(1)
        workbench = Workbench(
            line=1,
            folder=workspace.files.root,
            problem=folder / "problem.py",
            judged=folder / "judged",
            checkpoints=workspace.checkpoints,
            state=session.state,
            arch="sm_90a",
        )
        if not session.state.endings:
            asyncio.run(Line(1, session, ScriptedModel(TURNS), Toolbox(workbench), "system").run())
        asyncio.run(confirm_best(session, judge, timed=False))
        session.record("result", verdict=conclude(session, EMULATED, problem="problem.py", model="script").to_dict())


def in_child(*args, **kwargs) -> int:
    """The same in a forked process; its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            run(*args, **kwargs)
            os._exit(0)
        except BaseException as error:  # nothing may run twice
            print(repr(error), file=sys.stderr)
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def state(folder: Path) -> dict:
    """What a session came to, without its times."""
    with resumed_session(folder) as session:
        store = session.workspace(1).checkpoints
        files = {path.name: path.read_text() for path in sorted((folder / "work" / "1").iterdir())}
        log = [line for line in (folder / "DEVLOG.md").read_text().splitlines() if not line.startswith("## ")]
        kinds = [event["kind"] for event in session.events]
        return {
            "files": files,
            "checkpoints": [(c.number, c.hash, c.note) for c in store.checkpoints()],
            "log": log,
            "messages": json.loads(json.dumps(messages_of(session.events, 1))),
            "replies": kinds.count("reply"),
            "ending": session.state.endings[1]["ending"],
            "delivered": (folder / "kernel.py").read_text(),
            "asked again": [event["confirms"][0] for event in session.events if "confirms" in event],
            "summary": session.events[-2]["verdict"]["summary"],  # before this process's `run`
        }


def main() -> None:
    root = Path(sys.argv[1])
    run(root / "whole")
    wanted, problems, kills = state(root / "whole"), [], 0
    events = len((root / "whole" / "transcript.jsonl").read_bytes().splitlines()) - 1
    points = [{"at": n} for n in range(1, events)] + [{"while_streaming": n} for n in (1, 2)]
    for point in points:
        folder = root / "-".join(f"{name}{n}" for name, n in point.items())
        kills += in_child(folder, **point) == signal.SIGKILL
        if in_child(folder, resume=True) != 0:
            problems.append(f"{point}: not resumed")
        elif state(folder) != wanted:
            problems.append(f"{point}: {state(folder)}")
    print(json.dumps({"points": len(points), "kills": kills, "problems": problems, "wanted": wanted}))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    command = [sys.executable, __file__, str(tmp_path_factory.mktemp("killed"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_killed_at_every_event_and_resumed_it_comes_to_the_same(outcome):
    assert outcome["points"] > 35 and outcome["kills"] == outcome["points"]
    assert outcome["problems"] == []


@pytest.mark.slow
def test_what_it_comes_to_is_what_the_script_did(outcome):
    wanted = outcome["wanted"]
    assert wanted["files"] == {"kernel.py": "a = 3\nb = 2\n", "other.py": "x\n"}
    assert wanted["delivered"] == "# a\n" and wanted["asked again"] == ["c", "b", "a"]
    assert "verified again with fresh draws; 2 that ranked before it failed" in wanted["summary"]
    assert wanted["replies"] == len(TURNS) and wanted["ending"] == "finished"
    assert [note for _, _, note in wanted["checkpoints"]][0] == "three" and "- Prediction: 10 us" in wanted["log"]


if __name__ == "__main__":
    main()
