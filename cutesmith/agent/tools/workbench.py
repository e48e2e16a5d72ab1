"""What the tools of one line of work act on: its folder, the judge's problem, and where to compile and run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cutesmith.agent.session_state import SessionState
from cutesmith.checkpoints import CheckpointStore
from cutesmith.verb_process import Follower, ignore

KERNEL = "kernel.py"


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """One line's place of work.

    `folder` is all that the model's file tools reach; `problem` is the judge's own copy, out of their reach; `judged`
    is where snapshots are put that the judge then reads, so that nothing changes under it. `arch` such as "sm_90a";
    `on`: "auto", "gpu", "emulator" or "compile"; `timeout` in seconds a call of the kernel. `confine_problem`: a model
    wrote the problem too, so that the judge confines it. `bare`: the judge's and the file tools alone; `hidden_pages`
    of the references are neither found nor read nor named.
    """

    line: int
    folder: Path
    problem: Path
    judged: Path
    checkpoints: CheckpointStore
    state: SessionState
    arch: str
    on: str = "auto"
    timeout: float = 120.0
    tolerance: dict[str, float] = field(default_factory=dict)  # "rtol", "atol" when asked for
    confine_problem: bool = False
    follower: Follower = ignore
    bare: bool = False
    hidden_pages: tuple[str, ...] = ()

    @property
    def kernel(self) -> Path:
        """The file that is judged."""
        return self.folder / KERNEL
