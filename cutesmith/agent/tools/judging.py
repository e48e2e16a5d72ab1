"""The judge, asked for one text of the kernel: a snapshot out of the model's reach, and a verb run on it as a child.

The text that was hashed is the text that is judged: nothing that happens to the work folder meanwhile changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutesmith.agent.outcome import KeepVersion
from cutesmith.agent.session_state import GRADES, TIE, JudgedKernel, SessionState
from cutesmith.agent.tools.confined_folder import ConfinedFolder
from cutesmith.agent.tools.workspace import KERNEL, Workbench
from cutesmith.checkpoints import write_atomically
from cutesmith.errors import CutesmithError
from cutesmith.remote_judge import RemoteHost, run_remotely
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from cutesmith.verb_process import run_verb
from cutesmith.verdicts import ExitCode

SHA_SHOWN = 12  # characters of a hash in a folder's name
BENCHMARK_TIMEOUT = 300.0  # seconds a call: it compiles the baselines too
QUICK = ("--quick", "--no-compile-baseline")
PROBLEM_SHOWN = "problem.py"
CONDEMNED = (
    "This very text was found wrong or rejected before, with other inputs: it does not count until it is changed."
)

Verdict = Mapping[str, Any]


class StorageError(CutesmithError):
    """The session's disk is full, read-only or broken: nothing can be judged any more."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One text of the kernel file, its hash, and the read-only copy that the judge reads."""

    sha256: str
    text: str
    path: Path


def take_snapshot(workbench: Workbench) -> Snapshot:
    """Copy the kernel as it is now to where only the judge reads.

    Raises PathError when there is no readable kernel file, StorageError when the copy cannot be written.
    """
    return snapshot_of(workbench, ConfinedFolder(workbench.folder).read(KERNEL))


def snapshot_of(workbench: Workbench, text: str) -> Snapshot:
    """This text where only the judge reads; raises StorageError when it cannot be written."""
    data = text.encode()
    sha256 = hashlib.sha256(data).hexdigest()
    path = workbench.judged / sha256[:SHA_SHOWN] / KERNEL
    try:
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data, mode=0o444)
    except OSError as error:
        wrong = f"{path} cannot be written: {error.strerror}"
        raise StorageError(wrong, hint="Make room, or give the session another folder.") from error
    return Snapshot(sha256=sha256, text=text, path=path)


async def judge(workbench: Workbench, stage: str, kernel: Snapshot, *options: str) -> Verdict:
    """A stage's verdict on a snapshot; raises VerbError when the judge's process gave none."""
    arguments = (*_common(workbench, stage), *options, "--", str(kernel.path))
    verdict = await _asked(workbench, stage, *arguments, files=(kernel.path, workbench.problem))
    return {**verdict, "stage": stage}  # an error of the command line has none of its own


async def _asked(workbench: Workbench, stage: str, *arguments: str, files: Sequence[Path]) -> Verdict:
    """What the judge says here, or on the machine that judges for the session; lint and emulate need no GPU."""
    if workbench.settings.remote and stage not in ("lint", "emulate"):
        remote = RemoteHost.of(workbench.settings.remote)
        return await run_remotely(remote, stage, *arguments, files=files, follower=workbench.follower)
    return await run_verb(stage, *arguments, follower=workbench.follower, lender=lend_fork_server)


def _common(workbench: Workbench, stage: str) -> list[str]:
    """What every call of this stage is given."""
    if stage == "lint":
        return []
    options = [f"--problem={workbench.problem}", f"--arch={workbench.arch}"]
    if stage in ("verify", "check"):
        tolerance = [f"--{name}={value!r}" for name, value in workbench.settings.tolerance.items()]
        options += [f"--on={workbench.settings.on}", f"--timeout={workbench.settings.timeout:g}", *tolerance]
    if stage == "profile" and workbench.settings.on in ("gpu", "emulator"):
        options.append(f"--on={workbench.settings.on}")
    if workbench.confine_problem and stage in ("verify", "check", "benchmark", "profile"):
        options.append("--confine-problem")
    if stage in ("benchmark", "profile", "emulate"):
        options.append(f"--timeout={max(BENCHMARK_TIMEOUT, workbench.settings.timeout):g}")
    return options


def kept(kernel: Snapshot, verified: Verdict, timed: Verdict | None, note: str) -> KeepVersion:
    """The effect that keeps a version that passed, with its verdict and its time (µs)."""
    timings = timed["timings"] if timed and timed["exit_code"] == ExitCode.PASSED else ()
    fields = {name: value for name, value in verified.items() if name != "cases"}
    verdict = {**fields, **({"median_us": timings[0]["median_us"]} if timings else {})}
    return KeepVersion(KERNEL, kernel.text, note or str(verified["status"]), verdict)


def shown_names(workbench: Workbench, kernel: Snapshot) -> dict[str, str]:
    """The judge's paths, and what the model knows these files by."""
    paths = {kernel.path: KERNEL, workbench.problem: PROBLEM_SHOWN}
    return {str(path): name for key, name in paths.items() for path in (key.resolve(), key)}


def after(state: SessionState, kernel: Snapshot, line: int, verdicts: Iterable[Verdict]) -> JudgedKernel:
    """The kernel as the state will know it once these verdicts are recorded."""
    known = state.kernels.get(kernel.sha256) or JudgedKernel(kernel.sha256, kernel.text, line, 0)
    latest, trial = 1 + max((other.seq for other in state.kernels.values()), default=0), replace(known)
    for verdict in verdicts:
        trial.follow(verdict, latest)
    return trial


def comparison(workbench: Workbench, kernel: Snapshot, verdicts: Iterable[Verdict]) -> str:
    """One sentence: whether this kernel is the best now, and which is if it is not."""
    state = workbench.state
    trial = after(state, kernel, workbench.line, verdicts)
    before = state.best()
    best = SessionState(kernels={**state.kernels, kernel.sha256: trial}).best()
    doubt = f"{CONDEMNED} " if trial.condemned and trial.state in GRADES else ""
    if best is None:
        return f"{doubt}No kernel is verified yet."
    if best.sha256 != kernel.sha256:
        fewer = trial.grade == best.grade and best.declined < trial.declined
        why = f" This one declined {trial.declined} cases, that one {best.declined}." if fewer else ""
        return (
            f"{doubt}Best so far is {_described(best, workbench)}; it stays the result until something beats it.{why}"
        )
    if before is None or before.sha256 == kernel.sha256:
        return (
            f"This version is the best so far: {_speed(best)}." if before else f"NEW BEST, the first: {_speed(best)}."
        )
    why = f" ({TIE})" if best.merit == before.merit else ""
    return f"NEW BEST: {_speed(best)}{why}; before it {_described(before, workbench)}."


def _speed(kernel: JudgedKernel) -> str:
    declined = f", {kernel.declined} case{'s' * (kernel.declined > 1)} declined" if kernel.declined else ""
    return f"{kernel.state}{declined}, " + ("not timed" if kernel.median_us is None else f"{kernel.median_us:.2f} µs")


def _described(kernel: JudgedKernel, workbench: Workbench) -> str:
    """Status, time, and where it is kept."""
    numbers = [c.number for c in workbench.checkpoints.checkpoints() if c.hash == kernel.sha256]
    elsewhere = f"line {kernel.line}" if kernel.line != workbench.line else "not among your checkpoints"
    place = f"checkpoint {numbers[-1]}" if numbers else elsewhere
    return f"{kernel.sha256[:8]} ({_speed(kernel)}; {place})"
