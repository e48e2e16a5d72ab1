"""A trial: arms (how much of the skill a session has), repeats, and in which order the runs are made.

Every repeat of every arm is a run of its own (`runs/ARM/REPEAT/`, as `eval run` makes them), so that a trial that was
killed goes on where it was, and each run can be reported alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cutesmith.agent.texts.hidden_pages import check_pages, known_pages
from cutesmith.checkpoints import write_atomically
from cutesmith.errors import UsageError
from cutesmith.evals.reading import RESULTS, read_attempts, read_facts
from cutesmith.verdicts import strict_json

FILE = "trial.json"
WITH, BARE, WITHOUT = "with", "bare", "without-"
ALL = "all"
EVALS = "--evals"
"""The first of a trial's words where it is over evals.json: its file and the chosen numbers follow."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to set an agent up: a name that is a folder's too, and the options of `cutesmith generate` for it."""

    name: str
    options: tuple[str, ...] = ()

    @property
    def page(self) -> str:
        """The page that it is without, "" for none."""
        return f"{self.name.removeprefix(WITHOUT)}.md" if self.name.startswith(WITHOUT) else ""


def arms_of(*, whole: bool, bare: bool, pages: Sequence[str]) -> tuple[Arm, ...]:
    """The arms that were asked for; pages need the whole skill beside them. Raises UsageError for unknown pages."""
    chosen = known_pages() if ALL in pages else check_pages(pages)
    arms = [Arm(name=WITH)] if whole or chosen else []
    arms += [Arm(name=BARE, options=("--bare",))] if bare else []
    stems = (page.removesuffix(".md") for page in chosen)
    arms += [Arm(name=f"{WITHOUT}{stem}", options=("--without-page", f"{stem}.md")) for stem in stems]
    return tuple(arms)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One run of a trial: an arm and the number of the repeat, from 0."""

    arm: str
    repeat: int


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a trial is: kept in `trial.json`, and the same when it is resumed.

    `words` are options of `eval run` but --agent and --out, `session` those of every session; `agent` may hold {arm}
    and {repeat}. `cap` is what a session may cost in dollars, None for nothing to pay.
    """

    words: tuple[str, ...]
    agent: str
    session: tuple[str, ...]
    arms: tuple[str, ...]
    repeats: int
    seed: int = 0
    cap: float | None = None

    def steps(self) -> list[Step]:
        """Every run, repeat by repeat and in each the arms in random order: a service that drifts favours none."""
        draws = random.Random(f"order of arms {self.seed}")
        steps = []
        for repeat in range(self.repeats):
            steps += [Step(arm=arm, repeat=repeat) for arm in draws.sample(self.arms, len(self.arms))]
        return steps

    def command(self, step: Step, arm: Arm, out: Path) -> list[str]:
        """The command line of `eval run` that makes one of its runs."""
        agent = self.agent.replace("{arm}", step.arm).replace("{repeat}", str(step.repeat))
        cap = () if self.cap is None else ("--max-dollars", f"{self.cap:g}")
        session = (*self.session, *cap, *arm.options)
        place = ("--agent", agent, "--no-cache", "--out", str(run_folder(out, step)))
        return [*self.words, *place, *(("--", *session) if session else ())]


def run_folder(out: Path, step: Step) -> Path:
    """Where a run is."""
    return out / "runs" / step.arm / str(step.repeat)


def is_complete(folder: Path) -> bool:
    """Whether every task of a run has its line."""
    if not (folder / RESULTS).is_file():
        return False
    planned = {task.id for task in read_facts(folder).tasks}
    return bool(planned) and planned <= {attempt.task for attempt in read_attempts(folder)}


def read_trial(out: Path) -> Trial | None:
    """The trial of a folder, None where there is none; raises UsageError for what is no trial."""
    path = out / FILE
    try:
        known = json.loads(path.read_bytes())
        return _trial(known)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path} describes no trial: {error}", hint="Give another --out.") from error


def is_of_evals(trial: Trial | None) -> bool:
    """Whether a trial is over the evaluations of a file, and not over the tasks of a suite."""
    return trial is not None and trial.words[:1] == (EVALS,)


def _trial(known: Any) -> Trial:
    if not isinstance(known, dict):
        raise TypeError("it is no JSON object")
    values: dict[str, Any] = {field.name: known[field.name] for field in fields(Trial) if field.name in known}
    values.update({name: tuple(value) for name, value in values.items() if isinstance(value, list)})
    return Trial(**values)


def keep_trial(out: Path, trial: Trial) -> None:
    """Write `trial.json`, or see that it says the same; raises UsageError where it is of another trial."""
    known = read_trial(out)
    if known is not None and known != trial:
        raise UsageError(
            f"{out} holds a trial with another {_difference(asdict(known), asdict(trial))}",
            hint=f"Go on with it as it was begun: cutesmith eval skill --resume --out {out}; or give another --out.",
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / FILE, (strict_json(trial, indent=1) + "\n").encode())
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}", hint="Give another --out.") from error


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    name = next(name for name in after if before[name] != after[name])
    if isinstance(before[name], tuple) and isinstance(after[name], tuple):
        mine, theirs = before[name], after[name]
        place = next(
            (at for at, pair in enumerate(zip(mine, theirs)) if pair[0] != pair[1]), min(len(mine), len(theirs))
        )
        return f"{name}: {_from(mine, place)}, not {_from(theirs, place)}"
    return f"{name}: {before[name]!r:.100}, not {after[name]!r:.100}"


def _from(words: Sequence[str], place: int) -> str:
    """Words from a place on, with the option that they may belong to."""
    return " ".join(words[max(0, place - 1) : place + 3]) or "nothing"
