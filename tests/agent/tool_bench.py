"""A line of work without a loop: a real folder and store; each call's effects are applied as the loop applies them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cutesmith.agent.outcome import Outcome
from cutesmith.agent.session_state import SessionState
from cutesmith.agent.settings import Settings
from cutesmith.agent.tools.toolbox import Toolbox
from cutesmith.agent.tools.workspace import Workbench, Workspace
from cutesmith.checkpoints import CheckpointStore
from tests.agent.events import event

RELU = (Path(__file__).parent.parent / "kernels" / "relu_tvm_ffi.py").read_text(encoding="utf-8")
PROBLEM = """\
import torch


def reference_fn(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(512, device="cuda")]
"""


class ToolBench:
    """The tools of one line in a folder; `call` gives an outcome whose effects have been applied."""

    def __init__(self, folder: Path, *, problem: str = PROBLEM, confine_problem: bool = False, **settings: Any) -> None:
        self.root = folder
        self.work = folder / "work" / "1"
        self.work.mkdir(parents=True)
        (folder / "problem.py").write_text(problem)
        store = CheckpointStore(self.work / "kernel.py", folder=folder / "checkpoints" / "1")
        self.workspace, self.state, self.seq = Workspace(self.work, store), SessionState(), 0
        self.workbench = Workbench(
            line=1,
            folder=self.work,
            problem=folder / "problem.py",
            judged=folder / "judged",
            checkpoints=store,
            state=self.state,
            arch="sm_90a",
            settings=Settings(**settings),
            confine_problem=confine_problem,
        )
        self.toolbox = Toolbox(self.workbench)

    def call(self, tool: str, **given: Any) -> Outcome:
        """Call a tool and let its effects take effect, as the loop does."""
        outcome = self.ask({"type": "tool_use", "id": "toolu_1", "name": tool, "input": given})
        self.seq += 1
        self.state.follow(event(self.seq, "tool", effects=outcome.effects))
        for effect in outcome.effects:
            self.workspace.apply(effect, self.seq)
        return outcome

    def ask(self, block: dict[str, Any]) -> Outcome:
        """The outcome of any block, its effects left alone."""
        return asyncio.run(self.toolbox.call(block))

    def refused(self, tool: str, **given: Any) -> str:
        """The text of a call that must be an error without effects."""
        outcome = self.call(tool, **given)
        assert outcome.is_error and not outcome.effects and not outcome.finish, outcome.text
        return outcome.text
