"""`cutesmith eval skill`: does the skill help, which of its pages do, and is it chosen when it should be?"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from cutesmith.agent.settings import Settings
from cutesmith.commands import eval_run
from cutesmith.commands._agent_options import settings_of
from cutesmith.commands._run import INTERRUPTED, command_parser, report, run_command
from cutesmith.errors import UsageError
from cutesmith.evals.report.files import write_texts
from cutesmith.evals.running.screen import open_screen
from cutesmith.evals.running.sources import parse_source
from cutesmith.evals.skill_trials.report import Findings, findings, html, markdown
from cutesmith.evals.skill_trials.running import Progress, run_trial, spent_dollars
from cutesmith.evals.skill_trials.trial import (
    Arm,
    Trial,
    arms_of,
    is_complete,
    is_of_evals,
    keep_trial,
    read_trial,
    run_folder,
)
from cutesmith.evals.suites import load_suite
from cutesmith.verbs.definition import positive
from cutesmith.verdicts import ExitCode, Verdict

DESCRIPTION = """\
Give the same tasks to the same agent with the skill (its text, references, examples, the offline generator's draft) and
with a bare prompt (the contract, the problem, the judge's tools), several times each, and say what the difference is:
share solved, fast_1, speed-up, dollars, tokens, turns, each paired by task with a bootstrap 95 % interval.

--ablate leaves one page of the references out at a time and lists them by what their absence costs.
--triggers asks something else: whether a model that sees the skill's name and description among others loads it, for
queries that it is for and for near misses; precision and recall with Wilson's intervals.
--evals holds the prompts of evals.json with and without the skill, and decides each of their expectations: by code
where checks.json beside it has a check, else by --grader, else not at all; pass rates of each with intervals.

--agent is claude, script:FILE or replay:DIR; {task}, {arm} (with, bare, without-PAGE) and {repeat} stand for what they
say. Options after -- are those of every session (cutesmith generate). Each repeat of each arm is a run of its own in
OUT/runs/ARM/REPEAT, made repeat by repeat with the arms in random order; with --engine ray its kernels are judged on a
cluster, while sessions stay on this machine. The folder may be killed at any moment: --resume goes on. --plan says how
many sessions there are and what they cost at most, and does nothing.

The exit code is 0 when every session has its line, whatever it shows; 6 when --max-dollars came first, 7 when some
could not be judged or the model could not be asked, 130 after Ctrl-C."""

EXAMPLES = (
    "cutesmith eval skill --suite level2 --agent claude --max-dollars 100 --plan",
    "cutesmith eval skill --suite level2 --agent claude --repeats 3 --out TRIAL -- --max-dollars 1 --max-turns 20",
    "cutesmith eval skill --only '*softmax*' --agent claude --ablate patterns-reduction --max-dollars 30 --out PAGES",
    "cutesmith eval skill --resume --out TRIAL",
    "cutesmith eval skill --suite level2 --agent claude --max-dollars 100 --engine ray --address auto --out TRIAL",
    "cutesmith eval skill --triggers --agent claude --max-dollars 5 --out TRIGGERS",
    "cutesmith eval skill --evals --agent claude --grader claude --max-dollars 20 --out EVALS",
)
FORWARDED = (
    *("suite", "path", "level", "tag", "only"),
    *("on", "arch", "tolerance", "rounds", "quick", "no_benchmark", "libraries", "timeout"),
    *("gpus", "jobs", "judges", "engine", "address"),
)
"""Options that every run gets as they are."""
REFUSED = {
    "--samples": "every repeat of an arm is a run of one sample: say --repeats",
    "--configurations": "sessions have it: give it after --",
    "--cache": "every session of a trial is held anew",
    "--no-cache": "every session of a trial is held anew, and needs no such option",
    "--time-limit": "it is one run's, and a trial has many: end it by Ctrl-C, and go on by --resume",
}
"""Options of `eval run` that a trial cannot forward, and why."""
SHARED = ("agent", "repeats", "out", "max_dollars", "plan", "yes", "quiet", "json")
FITTING = {
    "--triggers": ("triggers", "queries", *SHARED),
    "--evals": ("evals", "grader", "whole", "bare", "only", "seed", "resume", *SHARED),
}
"""What goes with these; a trial over a suite takes everything else and none of their own."""
OF_OTHERS = ("queries", "grader")
WITH_RESUME = ("out", "resume", "max_dollars", "plan", "yes", "quiet", "json")
NAMES = {"whole": "with", "bare": "without"}
OVERSHOOT = "a session's last answer may go above that by what it costs more than the one before"


@dataclass(frozen=True, kw_only=True)
class PlanVerdict(Verdict):
    """What a trial would do; `dollars` and `dollars_a_session` None where nothing costs anything."""

    stage: ClassVar[str] = "eval skill --plan"

    sessions: int
    tasks: int
    repeats: int
    arms: tuple[str, ...]
    dollars_a_session: float | None
    dollars: float | None


@dataclass(frozen=True, kw_only=True)
class SkillTrialVerdict(Verdict):
    """A trial as it stands; PASSED when every session has its line, whatever it shows."""

    stage: ClassVar[str] = "eval skill"

    folder: str
    sessions: int
    runs: int
    done: int
    dollars: float
    open: dict[str, str]
    findings: Findings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(_eval_skill, argv)


def _eval_skill(argv: list[str]) -> int:
    own, session = eval_run.split_options(argv)
    _require_forwardable(own)
    options = _parser().parse_args(own)
    if options.triggers:
        from cutesmith.commands._skill_triggers import ask_triggers

        _require_fitting(options, "--triggers")
        return ask_triggers(options, session)
    if options.evals is not None or (options.resume and options.out and is_of_evals(read_trial(Path(options.out)))):
        return _hold_evals(options, session)
    _require_fitting(options)
    trial, arms = _trial(options, session)
    tasks = _tasks(trial)
    plan = _plan(trial, tasks, options.max_dollars)
    if options.plan:
        return report(plan, as_json=options.json, lines=[plan.summary])
    print(plan.summary, file=sys.stderr)
    if not options.out:
        raise UsageError("--out is missing: the folder of the trial", hint="--plan alone needs none.")
    out = Path(options.out)
    accept_costs(trial.cap is not None, options.yes)
    keep_trial(out, trial)
    return _run(options, trial, arms, tasks, out)


def _hold_evals(options: Namespace, session: list[str]) -> int:
    from cutesmith.commands._skill_expectations import hold_evals

    _require_fitting(options, "--evals")
    if options.resume:
        _require_unchanged(options, session, but=("evals", "grader"))
    return hold_evals(options, session)


def _require_forwardable(words: Sequence[str]) -> None:
    """Raise UsageError for an option of `eval run` that means nothing to a trial."""
    for word in words:
        name = word.partition("=")[0]
        if name in REFUSED:
            raise UsageError(f"{name} is not for a trial: {REFUSED[name]}")


def _require_fitting(options: Namespace, kind: str = "") -> None:
    """Raise UsageError for an option that would be passed over in silence."""
    usual = vars(_parser().parse_args([]))
    given = [name for name in usual if getattr(options, name) != usual[name]]
    wrong = [name for name in given if (name not in FITTING[kind] if kind else name in OF_OTHERS)]
    if wrong:
        beside = kind or "a trial over the tasks of a suite"
        homes = "" if kind else " --queries goes with --triggers, --grader with --evals."
        raise UsageError(f"{_flags(wrong)}: not with {beside}", hint=f"Leave it out.{homes}")


def _flags(names: Sequence[str]) -> str:
    return ", ".join(f"--{NAMES.get(name, name).replace('_', '-')}" for name in names)


def _parser() -> Any:
    parser = command_parser("eval skill", DESCRIPTION, examples=EXAMPLES)
    what = parser.add_argument_group("what")
    eval_run.add_task_options(what)
    what.add_argument("--agent", default="claude", metavar="WHO", help="claude, script:FILE, replay:DIR (claude)")
    what.add_argument("--repeats", type=positive, default=3, metavar="K", help="of each arm (3; fewer say little)")
    what.add_argument("--with", dest="whole", action="store_true", help="the skill's arm (default: this and --without)")
    what.add_argument("--without", dest="bare", action="store_true", help="the bare prompt's arm")
    what.add_argument("--ablate", default="", metavar="all|PAGES", help="leave out these pages, one at a time: a,b,c")
    what.add_argument("--seed", type=int, default=0, metavar="N", help="of the order of the arms (0)")
    what.add_argument("--triggers", action="store_true", help="ask whether the skill is chosen, and nothing else")
    what.add_argument("--queries", metavar="FILE", help="with --triggers: instead of our own triggers.json")
    what.add_argument("--evals", nargs="?", const="", metavar="FILE", help="hold the prompts of evals.json (our own)")
    what.add_argument(
        "--grader", default="", metavar="WHO", help="with --evals, decides what code cannot: claude, script:FILE"
    )
    eval_run.add_judge_options(parser.add_argument_group("how kernels are judged"))
    where = parser.add_argument_group("where, how long, and what it may cost")
    where.add_argument("--out", metavar="DIR", help="the trial's folder")
    where.add_argument("--resume", action="store_true", help="go on with the trial in --out, as it was begun")
    where.add_argument("--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
    where.add_argument("--address", default="auto", metavar="HOST:PORT", help="of the Ray cluster (auto: this node's)")
    eval_run.add_machine_options(where)
    where.add_argument("--max-dollars", type=_dollars, metavar="USD", help="of all sessions together")
    where.add_argument("--plan", action="store_true", help="say what would be done and what it costs at most")
    where.add_argument("--yes", action="store_true", help="do not ask before dollars are spent")
    where.add_argument("--quiet", action="store_true", help="say nothing on the way")
    return parser


def _dollars(text: str) -> float:
    value = eval_run.seconds(text)
    if not 0 < value < float("inf"):
        raise UsageError(f"--max-dollars {text}: it must be positive")
    return value


# What is to be done


def _trial(options: Namespace, session: list[str]) -> tuple[Trial, tuple[Arm, ...]]:
    """The trial that is asked for, or the one that is resumed."""
    known = read_trial(Path(options.out)) if options.out else None
    if options.resume:
        if known is None:
            raise UsageError(f"{options.out or '--resume'}: no trial to go on with", hint="Give its folder by --out.")
        _require_unchanged(options, session)
        return known, _arms_named(known.arms)
    both = not (options.whole or options.bare)
    pages = [page for page in options.ablate.split(",") if page]
    arms = arms_of(whole=options.whole or both, bare=options.bare or (both and not pages), pages=pages)
    trial = Trial(
        words=tuple(_forwarded(options)),
        agent=_agent(options.agent),
        session=tuple(session),
        arms=tuple(arm.name for arm in arms),
        repeats=options.repeats,
        seed=options.seed,
    )
    cap = known.cap if known else _cap(options, session, trial)
    return replace(trial, cap=cap), arms


def _require_unchanged(options: Namespace, session: Sequence[str], but: Sequence[str] = ()) -> None:
    """A trial goes on as it was begun: what is given beside that would be passed over in silence."""
    usual, free = vars(_parser().parse_args([])), (*WITH_RESUME, *but)
    others = [name for name in usual if name not in free and getattr(options, name) != usual[name]]
    if others or session:
        wrong = f"--resume goes on with the trial as it was begun, without {_flags(others) or 'options after --'}"
        raise UsageError(wrong, hint="Leave them out, or begin another trial.")


def _arms_named(names: Sequence[str]) -> tuple[Arm, ...]:
    pages = [page for name in names if (page := Arm(name=name).page)]
    return arms_of(whole="with" in names, bare="bare" in names, pages=pages)


def _forwarded(options: Namespace) -> Iterator[str]:
    """The options of `eval run` that were given, files by their absolute paths."""
    here = options.engine == "local"
    if here and options.address != "auto":
        raise UsageError("--address is that of a Ray cluster", hint="Add --engine ray.")
    for name in FORWARDED:
        value, flag = getattr(options, name), f"--{name.replace('_', '-')}"
        if value in (None, "", False) or (here and name in ("engine", "address")):
            continue
        if name == "path" or (name in ("suite", "libraries") and Path(value).exists()):
            value = str(Path(value).absolute())
        for item in value if isinstance(value, list) else [value]:
            yield flag
            yield from () if item is True else (str(item),)


def _agent(text: str) -> str:
    """The agent with the absolute place of its files; raises UsageError for one that holds no conversation."""
    kind, _, place = text.partition(":")
    if kind in ("draft", "dir"):
        raise UsageError(f"--agent {text}: it reads no skill", hint="Use claude, script:FILE or replay:DIR.")
    if "{arm}" in place or "{repeat}" in place:
        return f"{kind}:{Path(place).absolute()}"
    source = parse_source(text)
    return f"{source.kind}:{source.place}" if source.place else source.kind


def _cap(options: Namespace, session: Sequence[str], trial: Trial) -> float | None:
    """What a session may cost: as it says after --, else its part of --max-dollars; UsageError without either."""
    if options.agent != "claude":
        return None
    from cutesmith.commands.generate import generate_parser

    given = generate_parser().parse_args(["problem.py", "--agent=claude", *session])
    own = settings_of(given, Settings()).limits.dollars
    if own is None and options.max_dollars is None:
        raise UsageError(
            "nothing limits what this costs",
            hint="Give --max-dollars for all sessions together, or after -- for each of them.",
        )
    return own if own is not None else options.max_dollars / (_tasks(trial) * len(trial.arms) * trial.repeats)


def _tasks(trial: Trial) -> int:
    """How many sessions a run has."""
    options = _parser().parse_args(list(trial.words))
    suite = load_suite(
        options.suite, path=options.path, ids=options.only or (), levels=options.level or (), tags=options.tag or ()
    )
    return len(suite.tasks)


def _plan(trial: Trial, tasks: int, most: float | None) -> PlanVerdict:
    """What will be done and what it costs at most."""
    sessions = tasks * len(trial.arms) * trial.repeats
    total = None if trial.cap is None else min(sessions * trial.cap, most or float("inf"))
    arms = ", ".join(trial.arms)
    said = [f"{sessions} sessions with {trial.agent}: {tasks} tasks, {trial.repeats} repeats of {arms}"]
    if trial.cap is None or total is None:
        said.append("no session costs anything")
    else:
        said.append(f"at most {trial.cap:.4g} dollars a session, {total:,.2f} in all; {OVERSHOOT}")
        if total < sessions * trial.cap:
            said.append(f"sessions that all take what they may would come to {sessions * trial.cap:,.2f}")
    return PlanVerdict(
        exit_code=ExitCode.PASSED,
        summary="\n".join(said),
        sessions=sessions,
        tasks=tasks,
        repeats=trial.repeats,
        arms=trial.arms,
        dollars_a_session=trial.cap,
        dollars=total,
    )


def accept_costs(costs: bool, yes: bool) -> None:
    """Ask before anything is spent; raises UsageError when nobody says yes."""
    if not costs or yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to accept what this costs", hint="Add --yes.")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("the costs were not accepted", hint="Give fewer tasks, repeats or dollars.")


# Doing it


def _run(options: Namespace, trial: Trial, arms: Sequence[Arm], tasks: int, out: Path) -> int:
    began = time.monotonic()
    progress = run_trial(
        trial,
        arms,
        out,
        eval_run.prepared_run,
        lambda plan: open_screen(quiet=options.quiet, gpus=plan.gpus),
        tasks=tasks,
        most_dollars=options.max_dollars,
        say=lambda text: None if options.quiet else print(text, file=sys.stderr, flush=True),
    )
    found = findings(trial, out)
    text = "\n".join(markdown(found)) + "\n"
    verdict = SkillTrialVerdict(
        exit_code=_code(progress),
        summary=_summary(progress, out),
        seconds=round(time.monotonic() - began, 1),
        folder=str(out),
        sessions=tasks * progress.total,
        runs=progress.total,
        done=sum(is_complete(run_folder(out, step)) for step in trial.steps()),
        dollars=round(spent_dollars(trial, out), 4),
        open=progress.open,
        findings=found,
    )
    told = verdict.to_json(indent=1) + "\n"
    write_texts({out / "report.md": text, out / "report.html": html(found), out / "result.json": told})
    code = report(verdict, as_json=options.json, lines=[text, verdict.summary])
    return INTERRUPTED if progress.interrupted else code


def _code(progress: Progress) -> ExitCode:
    if progress.complete:
        return ExitCode.PASSED
    return ExitCode.TIMED_OUT if progress.out_of_dollars and not progress.open else ExitCode.UNAVAILABLE


def _summary(progress: Progress, out: Path) -> str:
    head = f"{progress.done} of {progress.total} runs are whole"
    if progress.complete:
        return f"{head}; {out / 'report.html'}"
    why = "interrupted" if progress.interrupted else "no dollars left" if progress.out_of_dollars else "some are open"
    return f"{head}; {why}; go on with: cutesmith eval skill --resume --out {out}"


if __name__ == "__main__":
    sys.exit(main())
